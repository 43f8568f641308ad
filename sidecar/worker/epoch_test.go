package worker

import (
	"testing"

	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/work"
)

// A process of a worker tells one epoch, in its heartbeats and in its marks; the next process of
// the same worker tells another one.
func TestEachProcessHasAnEpoch(t *testing.T) {
	s := bustest.Start(t, nil)
	g := newGateway(t, s, "gw")
	beats := heartbeats(t, g)
	g.prepare("org/m")
	seen := map[string]bool{}
	for _, r := range []string{"r1", "r2"} {
		f := startFake(t)
		w1 := startSidecar(t, s, f, "w1")
		g.publish("org/m", r, nil, "!hold")
		g.await("mark", func() bool { return len(g.marks[r+".0"]) > 0 })
		f.letGo()
		if got := g.result(r); !got.Success {
			t.Errorf("%+v", got)
		}
		w1.stop()
		epoch := ""
		for h := range beats {
			if h.Epoch == "" || epoch != "" && h.Epoch != epoch {
				t.Errorf("a heartbeat has the epoch %q after %q", h.Epoch, epoch)
			}
			if epoch = h.Epoch; h.Terminated {
				break
			}
		}
		if err := <-w1.ended; err != nil {
			t.Error(err)
		}
		w1.ended <- nil
		g.lock(func() {
			for _, m := range g.marks[r+".0"] {
				if m.WorkerEpoch != epoch {
					t.Errorf("a mark has the epoch %q, the heartbeats %q", m.WorkerEpoch, epoch)
				}
			}
			if len(g.marks[r+".0"]) == 0 || g.marks[r+".0"][0].State != work.Taken {
				t.Errorf("marks: %+v", g.marks[r+".0"])
			}
		})
		if seen[epoch] {
			t.Errorf("both processes have the epoch %q", epoch)
		}
		seen[epoch] = true
	}
}
