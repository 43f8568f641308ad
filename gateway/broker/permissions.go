package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sie-engine/sie/internal/bus"
)

// ExporterInboxes begins the subjects on which ExporterUser is answered.
const ExporterInboxes = "_INBOX_EXPORTER"

// permissions holds what each user may publish and subscribe to. A worker reaches no other worker's
// work but through its lane's consumers, and of streams it reads that of pools alone; a gateway
// cannot answer as a worker, and deletes no stream but those of work; sie-config tells and does not
// listen; an exporter asks the servers how they are. The chart has the same, as Permissions writes
// it.
var permissions = map[string]server.Permissions{
	WorkerUser: {
		Publish: allow(
			bus.GatewayInboxes+".>", bus.HealthPrefix+"*", "$JS.ACK.>",
			"$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.*",
			"$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.INFO.*.*",
			"$JS.API.CONSUMER.CREATE.*.>", "$JS.API.CONSUMER.DELETE.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*",
			"$JS.API.STREAM.MSG.GET."+bus.PoolsStream,
		),
		Subscribe: allow(
			bus.SidecarInboxes+".>", bus.HealthPrefix+"*", bus.GatewayPrefix+"*", "sie.demand.>",
			bus.CancelPrefix+">", bus.ConfigPrefix+"*", bus.PoolsChanged,
		),
	},
	GatewayUser: {
		Publish: &server.SubjectPermission{Allow: []string{
			bus.WorkSubjects, "sie.demand.>", bus.GatewayPrefix + "*", bus.QuotaPrefix + "*",
			bus.DLQPrefix + ">",
			bus.CancelPrefix + ">", bus.PoolsSubject,
			bus.SidecarInboxes + ".>", // receipts
			"$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*",
			"$JS.API.STREAM.LIST", "$JS.API.STREAM.MSG.GET.*",
			"$JS.API.STREAM.MSG.DELETE.*", "$JS.API.DIRECT.GET.>",
			"$JS.API.STREAM.DELETE.*", // of pools that are gone
			"$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.INFO.*.*",
			"$JS.API.CONSUMER.CREATE.*.>", "$JS.API.CONSUMER.DELETE.*.*",
		}, Deny: []string{
			"$JS.API.STREAM.DELETE." + bus.DLQStream, "$JS.API.STREAM.DELETE." + bus.PoolsStream,
		}},
		Subscribe: allow(
			bus.GatewayInboxes+".>", bus.HealthPrefix+"*", bus.GatewayPrefix+"*", bus.QuotaPrefix+"*",
			bus.ConfigAll, bus.PoolsChanged,
		),
	},
	ConfigUser: {
		Publish:   allow(bus.ConfigPrefix + "*"),
		Subscribe: &server.SubjectPermission{Deny: []string{">"}},
	},
	ExporterUser: {
		Publish:   allow("$SYS.REQ.SERVER.PING.*"),
		Subscribe: allow(ExporterInboxes + ".>"),
	},
}

func allow(subjects ...string) *server.SubjectPermission {
	return &server.SubjectPermission{Allow: subjects}
}

// Permissions returns what each user may do, in the format of NATS's configuration files: a
// variable for each user, its name with "_" for "-" and "_may" behind it.
func Permissions() string {
	var b strings.Builder
	list := func(name string, subjects []string) {
		if len(subjects) == 0 {
			return
		}
		fmt.Fprintf(&b, "    %s: [\n", name)
		for _, s := range subjects {
			fmt.Fprintf(&b, "      %q\n", s)
		}
		b.WriteString("    ]\n")
	}
	for _, user := range slices.Sorted(maps.Keys(permissions)) {
		p := permissions[user]
		fmt.Fprintf(&b, "%s_may: {\n", strings.ReplaceAll(user, "-", "_"))
		for _, x := range []struct {
			name string
			may  *server.SubjectPermission
		}{{"publish", p.Publish}, {"subscribe", p.Subscribe}} {
			fmt.Fprintf(&b, "  %s: {\n", x.name)
			list("allow", x.may.Allow)
			list("deny", x.may.Deny)
			b.WriteString("  }\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}
