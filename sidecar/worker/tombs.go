package worker

import (
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// The bounds of tombstones: the oldest are forgotten.
const (
	maxTombs = 100_000
	tombAge  = 5 * time.Minute
)

// tombs remembers the requests that were cancelled, and from which slice on.
type tombs struct {
	at    map[string]tomb
	order []tomb // by time
}

type tomb struct {
	request string
	at      time.Time
	from    uint32
}

func (t *tombs) add(now time.Time, request string, from uint32) {
	if t.at == nil {
		t.at = map[string]tomb{}
	}
	for len(t.order) > 0 && (len(t.order) >= maxTombs || now.Sub(t.order[0].at) > tombAge) {
		if old := t.order[0]; t.at[old.request].at.Equal(old.at) {
			delete(t.at, old.request)
		}
		t.order = t.order[1:]
	}
	if old, ok := t.at[request]; ok {
		from = min(from, old.from)
	}
	x := tomb{request, now, from}
	t.at[request] = x
	t.order = append(t.order, x)
}

func (t *tombs) has(now time.Time, request string, index uint32) bool {
	x, ok := t.at[request]
	return ok && now.Sub(x.at) <= tombAge && index >= x.from
}

// cancelled handles a cancellation.
func (c *core) cancelled(subject string, data []byte) {
	request, ok := strings.CutPrefix(subject, bus.CancelPrefix)
	if !ok || strings.Count(request, ".") != 1 || len(request) > 2*maxIDBytes {
		c.do.count("bad_messages", "cancellation")
		return
	}
	var body work.Cancel
	if len(data) > 0 {
		if _, err := body.UnmarshalMsg(data); err != nil {
			c.do.count("bad_messages", "cancellation")
			return
		}
	}
	c.tombs.add(c.now, request, body.From)
	for s := range c.requests[request] {
		if s.item.Index >= body.From {
			c.drop(s, "cancelled")
		}
	}
}

// maxGateways bounds the gateways that are followed; the one that was silent the longest is
// forgotten.
const maxGateways = 4096

// gateway is one that has work here, or had.
type gateway struct {
	seen time.Time
	gone bool // it was silent for too long
}

// heardOf takes a sign of life of a gateway. Work of it is none: work may be old.
func (c *core) heardOf(router string) {
	if router == "" || len(router) > maxIDBytes {
		return
	}
	g := c.knownGateway(router)
	g.seen, g.gone = c.now, false
}

// knownGateway returns the state of a gateway, whose age begins now when it is new.
func (c *core) knownGateway(router string) *gateway {
	if g := c.gateways[router]; g != nil {
		return g
	}
	if len(c.gateways) >= maxGateways {
		oldest := ""
		for r, g := range c.gateways {
			if oldest == "" || g.seen.Before(c.gateways[oldest].seen) {
				oldest = r
			}
		}
		delete(c.gateways, oldest)
	}
	g := &gateway{seen: c.now}
	c.gateways[router] = g
	return g
}

// silence drops what belongs to gateways that have been silent while this sidecar was connected.
func (c *core) silence() {
	if !c.connected {
		return
	}
	any := false
	for router, g := range c.gateways {
		if !g.gone && c.now.Sub(g.seen) > work.GatewaySilence {
			g.gone, any = true, true
			c.do.log("warn", "a gateway is silent; its work is dropped: "+router, nil, nil)
		}
	}
	if !any {
		return
	}
	for _, s := range c.slices {
		if g := c.gateways[s.router]; g != nil && g.gone && !s.dropped {
			c.drop(s, "gateway_silent")
		}
	}
}
