package worker

import (
	"container/list"
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

// tombs remembers the requests that were cancelled, and from which slice on: each once, by the time
// of its last cancellation.
type tombs struct {
	at    map[string]*list.Element // of order, by request
	order list.List                // of tomb, the oldest first
}

type tomb struct {
	request string
	at      time.Time
	from    uint32
}

func (t *tombs) add(now time.Time, request string, from uint32) {
	if t.at == nil {
		t.at = map[string]*list.Element{}
	}
	if e := t.at[request]; e != nil {
		e.Value = tomb{request, now, min(from, e.Value.(tomb).from)}
		t.order.MoveToBack(e)
		return
	}
	for e := t.order.Front(); e != nil; e = t.order.Front() {
		old := e.Value.(tomb)
		if len(t.at) < maxTombs && now.Sub(old.at) <= tombAge {
			break
		}
		t.order.Remove(e)
		delete(t.at, old.request)
	}
	t.at[request] = t.order.PushBack(tomb{request, now, from})
}

func (t *tombs) has(now time.Time, request string, index uint32) bool {
	e := t.at[request]
	if e == nil {
		return false
	}
	x := e.Value.(tomb)
	return now.Sub(x.at) <= tombAge && index >= x.from
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
