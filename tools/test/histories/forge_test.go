package histories

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
)

// forge tells of changes that nobody made, in the names of others and in the right one, and says
// again, late and in another order, what sie-config said.
func (c *client) forge() {
	var heard []*nats.Msg
	for !c.over() {
		c.world.nats.busy.Lock()
		at := c.world.nats.addr()
		c.world.nats.busy.Unlock()
		conn, err := nats.Connect("nats://"+at, nats.NoReconnect())
		if err != nil {
			c.rest()
			continue
		}
		sub, err := conn.SubscribeSync(bus.ConfigAll)
		if err != nil {
			conn.Close()
			continue
		}
		for !c.over() && conn.IsConnected() {
			for {
				m, err := sub.NextMsg(0)
				if err != nil {
					break
				}
				heard = append(heard, m)
			}
			heard = heard[max(0, len(heard)-50):]
			data := fmt.Appendf(nil, `{"router_id":%q,"epoch":%d,"model_id":%q,"deleted":%t}`,
				[]string{"evil", "sie-config", "sie-config-0"}[c.r.IntN(3)], c.r.IntN(1000),
				modelID(c.r.IntN(ids)), c.r.IntN(2) == 0)
			if len(heard) > 0 && c.r.IntN(2) == 0 {
				data = heard[c.r.IntN(len(heard))].Data
			}
			_ = conn.Publish(bus.ConfigAll, data)
			c.rest()
		}
		conn.Close()
	}
}
