package histories

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/testrig"
)

// What becomes of deltas on their way: of each, how many copies arrive, and after how many others.
var fates = map[string]func(r *rand.Rand) (copies, late int){
	"arrive":      func(*rand.Rand) (int, int) { return 1, 0 },
	"are lost":    func(*rand.Rand) (int, int) { return 0, 0 },
	"are two":     func(*rand.Rand) (int, int) { return 2, 0 },
	"are late":    func(r *rand.Rand) (int, int) { return 1, r.IntN(8) },
	"have a fate": func(r *rand.Rand) (int, int) { return r.IntN(3), r.IntN(8) },
}

// Deltas are lost, doubled, late, in another order and forged: a gateway and a sidecar show nothing
// but what sie-config has had, and come to what it has. Both ask every everyTest; that they ask
// often enough for 35 s is TestConverges of their packages.
func TestDeltasOnTheirWay(t *testing.T) {
	for name, fate := range fates {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			f := startFollowed(t)
			heard, err := f.inside.SubscribeSync(bus.ConfigPrefix + ">")
			if err == nil {
				err = f.inside.Flush()
			}
			if err != nil {
				t.Fatal(err)
			}
			var waiting []*nats.Msg
			for range 30 {
				f.change(r)
				if r.IntN(2) == 0 {
					f.forge(r)
				}
				for m, err := heard.NextMsg(0); err == nil; m, err = heard.NextMsg(0) {
					for copies, late := fate(r); copies > 0; copies-- {
						at := max(0, len(waiting)-late)
						waiting = append(waiting[:at], append([]*nats.Msg{m}, waiting[at:]...)...)
					}
				}
				for n := r.IntN(len(waiting) + 1); n > 0; n-- {
					f.pass(waiting[0])
					waiting = waiting[1:]
				}
			}
			for _, m := range waiting {
				f.pass(m)
			}
			f.converges()
			deltas := f.gateway.Deltas()
			what := fmt.Sprintf("%d deltas are heard, and %d are not", f.told, f.forged)
			testrig.Until(t, what, func() bool {
				return deltas.Told.Load() == f.told && deltas.Untrusted.Load() == f.forged
			})
		})
	}
}

// pass lets a delta reach the followers.
func (f *followed) pass(m *nats.Msg) {
	if err := f.outside.Publish(m.Subject, m.Data); err != nil {
		f.t.Error(err)
	}
	switch {
	case m.Subject != bus.ConfigAll:
	case bytes.Contains(m.Data, []byte(`"router_id":"sie-config-1"`)):
		f.told++
	default:
		f.forged++
	}
}

// forge tells of a change that nobody made, in another's name, or in the right one with nonsense.
func (f *followed) forge(r *rand.Rand) {
	name := []string{"evil", "evil", "sie-configs", "sie-config-1"}[r.IntN(4)]
	data := fmt.Appendf(nil, `{"router_id":%q,"bundle_id":"default","epoch":%d,"model_id":"new/forged",`+
		`"model_config":%q,"deleted":%t}`, name, r.IntN(99), changedModel("new/forged", 99, 9),
		r.IntN(2) == 0)
	for _, subject := range []string{bus.ConfigAll, bus.ConfigPrefix + "default"} {
		f.pass(&nats.Msg{Subject: subject, Data: data})
	}
}

// The store of sie-config is an older one, and the next change gives the epoch a number that it had
// before, of other models: it differs in the width of one model alone, which no config hash has.
func TestAnOlderStore(t *testing.T) {
	f := startFollowed(t)
	f.ask("PUT", "/v1/configs/models/new/a", changedModel("new/a", 64, 8))
	f.converges()
	f.end()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(f.store)); err != nil {
		t.Fatal(err)
	}
	f.begin()
	f.ask("PUT", "/v1/configs/models/new/a", changedModel("new/a", 32, 8))
	before := f.converges()
	f.end()
	f.store = older
	f.begin()
	f.ask("PUT", "/v1/configs/models/new/a", changedModel("new/a", 16, 8))
	after := f.converges()
	if after.epoch != before.epoch || after.models == before.models ||
		!strings.Contains(after.models, "dim: 16") {
		t.Errorf("epoch %d, then %d with %s", before.epoch, after.epoch, after.models)
	}
	f.ask("DELETE", "/v1/configs/models/new/a", "")
	f.converges()
}
