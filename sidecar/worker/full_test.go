package worker

import (
	"fmt"
	"testing"

	"github.com/sie-engine/sie/internal/bus/bustest"
)

// Results without receipts are bounded: at 64 MiB of them the sidecar pulls and runs no more, and
// says that it is saturated. When the gateway answers again, every slice is answered, and none ran
// twice. It is the same to a gateway that takes messages and is silent, and to one that reconnects
// and has no subscription.
func TestKeptResultsAreBounded(t *testing.T) {
	const n, each = 40, 3 << 20 // bytes of the result of !big
	for name, c := range map[string]struct{ leave, back func(g *fakeGateway) }{
		"silent": {
			func(g *fakeGateway) { g.lock(func() { g.mute = true }) },
			func(g *fakeGateway) { g.lock(func() { g.mute = false }) },
		},
		"reconnecting": {
			func(g *fakeGateway) {
				if err := g.inbox.Unsubscribe(); err != nil {
					g.t.Fatal(err)
				}
			},
			func(g *fakeGateway) { g.listen() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := bustest.Start(t, nil), startFake(t)
			f.tokens.Store(1) // two tokens of credit, and a slice is one at least
			g := newGateway(t, s, "gw")
			beats := heartbeats(t, g)
			startSidecar(t, s, f, "w1")
			g.prepare("org/m")
			c.leave(g)
			for i := range n {
				g.publish("org/m", fmt.Sprint("big", i), nil, "!big")
			}
			running := func() (ran int) {
				for i := range n {
					ran += f.runs(fmt.Sprintf("big%d.0", i))
				}
				return ran
			}
			const full = maxKeptBytes/each + 1
			idle := 0
			for h := range beats { // until nothing was in the server for 4 s, though it has credit
				if h.InflightBatches > 0 || !h.Saturated || h.QueueDepth < full {
					idle = 0
				} else if idle++; idle == 3 {
					break
				}
			}
			const most = full + 3 // what was in the server is kept too
			if ran := running(); ran < full || ran > most {
				t.Errorf("%d slices ran without a receipt, want %d to %d", ran, full, most)
			}
			c.back(g)
			for i := range n {
				id := fmt.Sprint("big", i)
				if r := g.result(id); len(texts(r)) != each {
					t.Errorf("%d: %d bytes", i, len(texts(r)))
				}
				g.lock(func() { g.results[id+".0"][0].Results = nil })
				if ran := f.runs(fmt.Sprintf("big%d.0", i)); ran != 1 {
					t.Errorf("%d ran %d times", i, ran)
				}
			}
			g.settled(empty0)
			for h := range beats {
				if !h.Saturated {
					break
				}
			}
		})
	}
}
