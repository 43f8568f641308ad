//go:build native

package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/work"
)

const bgeSmall = "BAAI/bge-small-en-v1.5"

// Two real workers, one of whose servers makes no progress for longer than the stall timeout: it
// takes no more work, and its peer answers everybody else meanwhile, of the same model too. A text
// that only took long is answered, once, and its worker is ready again. One that hangs for ever is
// never answered; when its caller has left and its server is killed, nothing of it is left.
func TestAServerStalls(t *testing.T) {
	for _, text := range []string{"!sleep=15s", "!hang"} {
		t.Run(text, func(t *testing.T) {
			s := bustest.Start(t, nil)
			servers, sockets := map[string]*process{}, map[string]string{}
			serve := func(id string) *process {
				return start(t, "sie-server", nil, "serve", "--host", "127.0.0.1", "--port", "0",
					"--ipc-socket", sockets[id], "--device", "null", "--bundle", "default")
			}
			for _, id := range []string{"w1", "w2"} {
				dir := filepath.Join(t.TempDir(), "ipc")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				sockets[id] = filepath.Join(dir, "s")
				servers[id] = serve(id)
				start(t, "sie-sidecar", []string{
					"SIE_NATS_URL=" + s.URL, "SIE_POOL=" + lane.Pool, "SIE_BUNDLE=" + lane.Bundle,
					"SIE_MACHINE_PROFILE=" + lane.Profile, "SIE_WORKER_ID=" + id,
					"SIE_IPC_SOCKET_PATH=" + sockets[id], "SIE_WORKER_PROBE_PORT=0",
					"SIE_STALL_TIMEOUT=1s", "SIE_DRAIN_TIMEOUT=2s",
				})
			}
			g := newGateway(t, s, "gw")
			g.republish()
			var beats chan bus.WorkerHeartbeat
			ready := func(id string, want bool) {
				t.Helper()
				limit := time.After(patience)
				for {
					select {
					case h := <-beats:
						if h.Name == id && h.Ready == want {
							return
						}
					case <-limit:
						t.Fatalf("worker %s does not say that it is ready: %v", id, want)
					}
				}
			}
			g.prepare(minilm, bgeSmall)
			publish := func(model, request, text string) {
				g.publish(model, request, func(it *work.Item, _ *nats.Msg) {
					raw := msgp.AppendString(msgp.AppendMapHeader(nil, 1), "text")
					it.Items = []msgp.Raw{msgp.AppendString(raw, text)}
					it.ProfileID, it.OutputTypes = "default", []string{"dense"}
				})
			}
			publish(minilm, "stall", text)
			by := ""
			g.await("mark of the slice that stalls", func() bool {
				for _, m := range g.marks["stall.0"] {
					by = m.WorkerID
				}
				return by != ""
			})
			beats = heartbeats(t, g)
			ready(by, false)
			for i := range 20 {
				model := []string{minilm, bgeSmall}[i%2]
				publish(model, fmt.Sprint("other", i), "text")
				if r := g.result(fmt.Sprint("other", i)); !r.Success || r.WorkerID == by {
					t.Errorf("%d: by %s: %s", i, r.WorkerID, r.Error)
				}
			}
			g.lock(func() {
				if n := len(g.results["stall.0"]); n > 0 {
					t.Error("the others were answered after the one that stalls")
				}
			})
			if text == "!hang" {
				if err := g.nc.Publish(bus.CancelSubject("gw", "stall"), nil); err != nil {
					t.Fatal(err)
				}
				servers[by].kill()
				serve(by)
			} else if r := g.result("stall"); !r.Success || r.WorkerID != by {
				t.Errorf("by %s: %s", r.WorkerID, r.Error)
			}
			ready(by, true)
			g.settled(empty0)
			g.lock(func() {
				if n := len(g.results["stall.0"]); n != b2i(text != "!hang") {
					t.Errorf("the text that stalled has %d results", n)
				}
			})
		})
	}
}
