package models

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
)

// nearest is the least time between two readings of sie-config that deltas cause.
const nearest = 200 * time.Millisecond

// maxDelta bounds a delta, in bytes.
const maxDelta = 1 << 20

// Listen has the Bootstrap ask sie-config at once when a producer that is trusted tells of a
// change. A producer is trusted if its name is one of trusted, or begins with one and a dash. What
// a delta says is not believed: it only says when to ask, so that one that is lost, late, doubled
// or forged leads to nothing wrong.
func (b *Bootstrap) Listen(conn *nats.Conn, trusted []string) (*nats.Subscription, error) {
	return conn.Subscribe(bus.ConfigAll, func(m *nats.Msg) { b.hear(m.Data, trusted) })
}

func (b *Bootstrap) hear(data []byte, trusted []string) {
	var d struct {
		Producer string `json:"producer_id"`
		Router   string `json:"router_id"`
	}
	if len(data) > maxDelta || json.Unmarshal(data, &d) != nil {
		b.deltas.Broken.Add(1)
		return
	}
	if d.Producer == "" {
		d.Producer = d.Router
	}
	if !slices.ContainsFunc(trusted, func(name string) bool {
		return d.Producer == name || strings.HasPrefix(d.Producer, name+"-")
	}) {
		if b.deltas.Untrusted.Add(1) == 1 {
			b.log.Warn("a change was told by a producer that is not trusted; see SIE_NATS_CONFIG_TRUSTED_PRODUCERS",
				"producer", fmt.Sprintf("%.80q", d.Producer))
		}
		return
	}
	b.deltas.Told.Add(1)
	b.Ask()
}

// Ask has the Bootstrap ask sie-config soon. It returns at once, and many calls cause one question.
func (b *Bootstrap) Ask() {
	select {
	case b.now <- struct{}{}:
	default:
	}
}
