package natscheck

import (
	"testing"

	"github.com/sie-engine/sie/gateway/broker"
	"github.com/sie-engine/sie/internal/bus"
)

const (
	publish   = "publish"
	subscribe = "subscribe"
)

// What each user may do, and what it may not, on a server with the chart's own configuration.
func TestWhoMayDoWhat(t *testing.T) {
	s := Start(t, Conf(t))
	const gateway, worker = broker.GatewayUser, broker.WorkerUser
	const config, exporter = broker.ConfigUser, broker.ExporterUser
	lane := bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}
	work, inbox := lane.WorkSubject("m"), bus.Inbox("router", "request")
	for _, c := range []struct {
		user, do, subject string
		allowed           bool
	}{
		// a slice's way: its stream and consumer, the work, its result and receipt
		{gateway, publish, "$JS.API.STREAM.CREATE.WORK_POOL_default", true},
		{gateway, publish, "$JS.API.STREAM.UPDATE.WORK_POOL_default", true},
		{gateway, publish, "$JS.API.CONSUMER.CREATE.WORK_POOL_default.m_0." + work, true},
		{gateway, publish, work, true},
		{gateway, publish, lane.DemandSubject("m"), true},
		{worker, subscribe, lane.DemandSubject("*"), true},
		{worker, publish, "$JS.API.STREAM.CREATE.WORK_POOL_default", true},
		{worker, publish, "$JS.API.CONSUMER.MSG.NEXT.WORK_POOL_default.m_0", true},
		{worker, publish, inbox, true},
		{gateway, subscribe, bus.GatewayInboxes + ".router.>", true},
		{gateway, publish, bus.SidecarInboxes + ".x.y", true},
		{worker, subscribe, bus.SidecarInboxes + ".>", true},
		{worker, publish, "$JS.ACK.WORK_POOL_default.m_0.1.1.1.1.1", true},
		// what they tell each other
		{worker, publish, bus.HealthPrefix + "w", true},
		{gateway, subscribe, bus.HealthPrefix + "*", true},
		{worker, subscribe, bus.HealthPrefix + "*", true},
		{gateway, publish, bus.GatewayPrefix + "g", true},
		{gateway, subscribe, bus.GatewayPrefix + "*", true},
		{worker, subscribe, bus.GatewayPrefix + "*", true},
		{gateway, publish, bus.CancelSubject("router", "request"), true},
		{worker, subscribe, bus.CancelPrefix + ">", true},
		// dead letters, pools, changes of models, how the servers are
		{gateway, publish, bus.DLQPrefix + "m", true},
		{gateway, publish, "$JS.API.DIRECT.GET." + bus.DLQStream, true},
		{gateway, publish, "$JS.API.STREAM.MSG.DELETE." + bus.DLQStream, true},
		{gateway, publish, bus.PoolsSubject, true},
		{gateway, publish, "$JS.API.STREAM.MSG.GET." + bus.PoolsStream, true},
		{worker, publish, "$JS.API.STREAM.MSG.GET." + bus.PoolsStream, true},
		{gateway, subscribe, bus.PoolsChanged, true},
		{worker, subscribe, bus.PoolsChanged, true},
		{gateway, publish, "$JS.API.STREAM.DELETE.WORK_POOL_mine", true},
		{config, publish, bus.ConfigAll, true},
		{config, publish, bus.ConfigPrefix + "default", true},
		{gateway, subscribe, bus.ConfigAll, true},
		{worker, subscribe, bus.ConfigPrefix + "default", true},
		{exporter, publish, "$SYS.REQ.SERVER.PING.STATSZ", true},
		{exporter, subscribe, broker.ExporterInboxes + ".x", true},

		// a worker is no gateway: it makes no work and takes no other's results or work
		{worker, publish, work, false},
		{worker, publish, lane.DemandSubject("m"), false},
		{worker, publish, bus.GatewayPrefix + "g", false},
		{worker, publish, bus.CancelSubject("router", "request"), false},
		{worker, publish, bus.DLQPrefix + "m", false},
		{worker, publish, bus.PoolsSubject, false},
		{worker, publish, bus.PoolsChanged, false},
		{worker, publish, bus.ConfigAll, false},
		{worker, publish, bus.SidecarInboxes + ".x.y", false},
		{worker, subscribe, inbox, false},
		{worker, subscribe, bus.GatewayInboxes + ".>", false},
		{worker, subscribe, bus.WorkSubjects, false},
		{worker, subscribe, work, false},
		{worker, subscribe, bus.DLQPrefix + ">", false},
		{worker, subscribe, "$KV.>", false},
		{worker, subscribe, "$JS.EVENT.>", false},
		{worker, subscribe, ">", false},
		{worker, publish, "$JS.API.STREAM.UPDATE.WORK_POOL_default", false},
		{worker, publish, "$JS.API.STREAM.DELETE.WORK_POOL_default", false},
		{worker, publish, "$JS.API.STREAM.PURGE.WORK_POOL_default", false},
		{worker, publish, "$JS.API.STREAM.LIST", false},
		{worker, publish, "$JS.API.STREAM.SNAPSHOT.WORK_POOL_default", false},
		{worker, publish, "$JS.API.STREAM.MSG.GET.WORK_POOL_default", false},
		{worker, publish, "$JS.API.STREAM.MSG.GET." + bus.DLQStream, false},
		{worker, publish, "$JS.API.STREAM.MSG.DELETE.WORK_POOL_default", false},
		{worker, publish, "$JS.API.DIRECT.GET.WORK_POOL_default", false},
		{worker, publish, "$JS.API.DIRECT.GET." + bus.PoolsStream + "." + bus.PoolsSubject, false},
		// a gateway is no worker: it takes no work, and cannot say that it is done
		{gateway, publish, bus.HealthPrefix + "w", false},
		{gateway, publish, inbox, false},
		{gateway, publish, "$JS.ACK.WORK_POOL_default.m_0.1.1.1.1.1", false},
		{gateway, publish, "$JS.API.CONSUMER.MSG.NEXT.WORK_POOL_default.m_0", false},
		{gateway, publish, "$KV.SIE_POOLS.other", false},
		{gateway, publish, bus.PoolsChanged, false},
		{gateway, publish, bus.ConfigAll, false},
		{gateway, subscribe, bus.WorkSubjects, false},
		{gateway, subscribe, bus.SidecarInboxes + ".>", false},
		{gateway, subscribe, "$JS.EVENT.>", false},
		{gateway, subscribe, ">", false},
		{gateway, publish, "$JS.API.STREAM.DELETE." + bus.DLQStream, false},
		{gateway, publish, "$JS.API.STREAM.DELETE." + bus.PoolsStream, false},
		{gateway, publish, "$JS.API.STREAM.PURGE." + bus.DLQStream, false},
		{gateway, publish, "$JS.API.STREAM.SNAPSHOT." + bus.DLQStream, false},
		{gateway, publish, "$JS.API.ACCOUNT.PURGE.SIE", false},
		// sie-config tells, and hears nothing
		{config, publish, work, false},
		{config, publish, "$JS.API.STREAM.LIST", false},
		{config, subscribe, bus.ConfigAll, false},
		{config, subscribe, bus.GatewayInboxes + ".x", false},
		{config, subscribe, bus.HealthPrefix + "*", false},
		{config, subscribe, ">", false},
		// an exporter asks, and changes nothing
		{exporter, publish, "$SYS.REQ.SERVER.X.RELOAD", false},
		{exporter, publish, "$SYS.REQ.ACCOUNT.SIE.CONNZ", false},
		{exporter, publish, work, false},
		{exporter, subscribe, "$SYS.>", false},
		{exporter, subscribe, bus.WorkSubjects, false},
	} {
		if a := (Action{c.user, c.do, c.subject}); s.Refuses(t, a) == c.allowed {
			t.Errorf("%v: allowed is not %v", a, c.allowed)
		}
	}
}
