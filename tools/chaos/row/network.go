package row

import (
	"context"
	"time"

	"github.com/sie-engine/sie/tools/chaos/rig"
)

// The names with which components connect to the broker begin so.
const (
	gatewayName = "sie-gateway"
	sidecarName = "sie-sidecar"
)

// How long a partition and a slow network last: longer than every silence of the protocol, so that
// each is acted on.
const (
	partitionTime = 20 * time.Second
	slowTime      = 15 * time.Second
)

// partitionRows cut or slow the network between components and the broker.
func partitionRows(topology string) []Row {
	d := Demand{FullRate: fullRate, Felt: 2 * time.Second}
	slow := Demand{FullRate: fullRate, Felt: 200 * time.Millisecond}
	return []Row{
		{
			Name: "partition/gateways", Topology: topology, Demand: d,
			Fault: weather(gatewayName, rig.Weather{Cut: true}, partitionTime),
		},
		{
			Name: "partition/sidecars", Topology: topology, Demand: d,
			Fault: weather(sidecarName, rig.Weather{Cut: true}, partitionTime),
		},
		{
			Name: "partition/all", Topology: topology, Demand: d,
			Fault: weather("", rig.Weather{Cut: true}, partitionTime),
		},
		{
			Name: "network/slow", Topology: topology, Demand: slow,
			Fault: weather("", rig.Weather{Delay: 100 * time.Millisecond, Loss: 0.02}, slowTime),
		},
	}
}

// weather sets what a proxy does to a kind of component, for a while. A delay is that of one
// direction: half of the round trip's latency.
func weather(who string, w rig.Weather, d time.Duration) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		if e.Short {
			d = min(d, 5*time.Second)
		}
		set := func(w rig.Weather) {
			for _, p := range e.Nodes.Proxies {
				p.Set(who, w)
			}
		}
		e.hit("the network between %q and the broker: %+v", who, w)
		set(w)
		defer set(rig.Weather{})
		if err := wait(ctx, d); err != nil {
			return err
		}
		e.note("the network is well again")
		return nil
	}
}
