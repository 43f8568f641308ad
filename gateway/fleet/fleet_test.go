package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

var lane = bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}

func heartbeat(id string, change func(*bus.WorkerHeartbeat)) (subject string, data []byte) {
	hb := bus.WorkerHeartbeat{Name: id, Ready: true, PoolName: lane.Pool, MachineProfile: lane.Profile,
		Bundle: lane.Bundle}
	if change != nil {
		change(&hb)
	}
	data, err := json.Marshal(hb)
	if err != nil {
		panic(err)
	}
	return bus.HealthPrefix + id, data
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// run starts a fleet whose Run ends with the test, which must be in a bubble.
func run(t *testing.T) *Fleet {
	t.Helper()
	f := New(quiet())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return f
}

// plain is what a fleet has to be: a list of workers with their ages.
type plain struct {
	connected bool
	workers   map[string]*plainWorker
}

type plainWorker struct {
	hb   bus.WorkerHeartbeat
	age  time.Duration
	live bool
}

func (p *plain) pass(d time.Duration) {
	if !p.connected {
		return
	}
	for id, w := range p.workers {
		if w.age += d; w.age > evictAfter {
			delete(p.workers, id)
		}
		w.live = w.live && w.age <= work.WorkerStale
	}
}

// A fleet does in every order of events what the plain model does: heartbeats of all kinds, silence
// of any length, and a broker that comes and goes.
func TestFleetDoesWhatThePlainModelDoes(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) { walk(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func walk(t *testing.T, r *rand.Rand) {
	f, p := run(t), &plain{workers: map[string]*plainWorker{}}
	ids := []string{"a", "b", "c", "d"}
	models := []string{"m1", "m2", "m3"}
	some := func() (out []string) {
		for _, m := range models {
			if r.IntN(3) == 0 {
				out = append(out, m)
			}
		}
		return out
	}
	for range 200 {
		switch op := r.IntN(12); {
		case op < 6:
			id := ids[r.IntN(len(ids))]
			var hb bus.WorkerHeartbeat
			subject, data := heartbeat(id, func(h *bus.WorkerHeartbeat) {
				h.Ready, h.Bundle = r.IntN(4) > 0, []string{"default", "candle"}[r.IntN(2)]
				h.LoadedModels, h.FailedModels, h.UnsupportedModels = some(), some(), some()
				h.FreeCredit, h.Terminated = int64(r.IntN(1000)-100), r.IntN(12) == 0
				h.Pending = map[string]bus.Pending{"m1": {Items: r.IntN(5), Tokens: int64(r.IntN(100))}}
				hb = *h
			})
			f.Heartbeat(subject, data)
			if hb.Terminated {
				delete(p.workers, id)
			} else {
				p.workers[id] = &plainWorker{hb: hb, live: true}
			}
		case op < 7:
			f.Connected()
			if !p.connected {
				for _, w := range p.workers {
					if w.live {
						w.age = 0
					}
				}
			}
			p.connected = true
		case op < 8:
			f.Disconnected()
			p.connected = false
		default:
			d := time.Duration(r.IntN(28)) * tick
			if r.IntN(20) == 0 {
				d = time.Duration(r.IntN(int(700*time.Second/tick))) * tick
			}
			// half a tick more: never at the very time of a tick
			d += tick / 2
			time.Sleep(d)
			p.pass(d)
		}
		time.Sleep(rebuildEvery + tick) // numbers follow
		p.pass(rebuildEvery + tick)
		synctest.Wait()
		for !settled(p) { // between a limit and the tick that notices it either answer is right
			time.Sleep(tick)
			p.pass(tick)
			synctest.Wait()
		}
		compare(t, f.Snapshot(), p, models)
		if t.Failed() {
			return
		}
	}
}

// settled reports whether no age has just passed a limit.
func settled(p *plain) bool {
	for _, w := range p.workers {
		for _, limit := range []time.Duration{work.WorkerStale, evictAfter} {
			if over := w.age - limit; over > 0 && over <= tick {
				return false
			}
		}
	}
	return true
}

func compare(t *testing.T, s *Snapshot, p *plain, models []string) {
	t.Helper()
	if s.Connected != p.connected {
		t.Errorf("connected %v, want %v", s.Connected, p.connected)
	}
	// A worker at the age at which it is forgotten may be there for one tick more.
	known := slices.Sorted(maps.Keys(p.workers))
	var got []string
	for _, w := range s.Workers {
		if p.workers[w.ID] != nil || w.Live {
			got = append(got, w.ID)
		}
	}
	if !slices.Equal(got, known) {
		t.Fatalf("workers %v, want %v", got, known)
	}
	for _, bundle := range []string{"default", "candle"} {
		id := bus.Lane{Pool: lane.Pool, Profile: lane.Profile, Bundle: bundle}
		l := s.Lane(id)
		var live, ready []string
		var credit int64
		for _, id := range known {
			if w := p.workers[id]; w.live && w.hb.Bundle == bundle {
				live = append(live, id)
				if w.hb.Ready {
					ready = append(ready, id)
					credit += max(w.hb.FreeCredit, 0)
				}
			}
		}
		if l == nil {
			if len(live) > 0 {
				t.Errorf("no lane %v, want %v", id, live)
			}
			continue
		}
		if got := names(l.Workers); !slices.Equal(got, live) {
			t.Errorf("%v has %v, want %v", id, got, live)
		}
		if got := names(l.Ready); !slices.Equal(got, ready) {
			t.Errorf("ready in %v are %v, want %v", id, got, ready)
		}
		if l.Credit() != credit {
			t.Errorf("credit of %v: %d, want %d", id, l.Credit(), credit)
		}
		for _, m := range models {
			compareModel(t, l, p, m, live, ready)
		}
	}
}

func compareModel(t *testing.T, l *Lane, p *plain, m string, live, ready []string) {
	t.Helper()
	var warm, able []string
	var pending bus.Pending
	unsupported := false
	for _, id := range live {
		hb := p.workers[id].hb
		unsupported = unsupported || slices.Contains(hb.UnsupportedModels, m)
		pending.Items += hb.Pending[m].Items
		pending.Tokens += hb.Pending[m].Tokens
	}
	for _, id := range ready {
		hb := p.workers[id].hb
		if slices.Contains(hb.UnsupportedModels, m) {
			continue
		}
		if slices.Contains(hb.LoadedModels, m) {
			warm = append(warm, id)
		}
		if !slices.Contains(hb.FailedModels, m) {
			able = append(able, id)
		}
	}
	if got := names(l.Warm(m)); !slices.Equal(got, warm) {
		t.Errorf("warm for %s are %v, want %v", m, got, warm)
	}
	if got := names(l.Able(m)); !slices.Equal(got, able) {
		t.Errorf("able to run %s are %v, want %v", m, got, able)
	}
	if l.Pending(m) != pending || l.Unsupported(Hashes{}, m) != unsupported {
		t.Errorf("%s: pending %v, unsupported %v; want %v and %v",
			m, l.Pending(m), l.Unsupported(Hashes{}, m), pending, unsupported)
	}
}

func names(ws []*Worker) (out []string) {
	for _, w := range ws {
		out = append(out, w.ID)
	}
	return out
}

// ready=false takes a worker out of its lane's ready workers with the next snapshot, and whoever
// waits is told.
func TestAWorkerThatIsNotReadyIsDemotedAtOnce(t *testing.T) {
	f := New(quiet())
	f.Connected()
	f.Heartbeat(heartbeat("a", nil))
	s := f.Snapshot()
	if s.Lane(lane).Empty() || s.Worker("a") == nil || s.Worker("b") != nil {
		t.Fatalf("%+v", s)
	}
	f.Heartbeat(heartbeat("a", func(h *bus.WorkerHeartbeat) { h.Ready = false }))
	select {
	case <-s.Changed():
	default:
		t.Error("nobody was told")
	}
	if s = f.Snapshot(); !s.Lane(lane).Empty() || len(s.Lane(lane).Workers) != 1 {
		t.Errorf("%+v", s.Lane(lane))
	}
	f.Heartbeat(heartbeat("a", func(h *bus.WorkerHeartbeat) { h.Terminated, h.PoolName = true, "" }))
	if s = f.Snapshot(); len(s.Workers) != 0 || len(s.Lanes) != 0 {
		t.Errorf("after its last heartbeat: %+v", s)
	}
}

// A gateway that was stopped for 40 s does not take the workers for dead: their heartbeats wait to
// be read. Those that stay silent are gone 6 s later.
func TestAStoppedGatewayKeepsItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(quiet())
		f.Connected()
		f.Heartbeat(heartbeat("a", nil))
		f.Heartbeat(heartbeat("b", nil))
		time.Sleep(40 * time.Second) // nothing runs
		f.grow()
		if got := len(f.Snapshot().Lane(lane).Ready); got != 2 {
			t.Fatalf("%d ready workers after a stop, want 2", got)
		}
		f.Heartbeat(heartbeat("a", nil))
		for range 6 * 4 {
			time.Sleep(tick)
			f.grow()
		}
		if got := names(f.Snapshot().Lane(lane).Ready); !slices.Equal(got, []string{"a"}) {
			t.Errorf("ready %v, want a: b is silent", got)
		}
	})
}

// While the broker is away no worker grows old; afterwards each has 6 s to send a heartbeat.
func TestAgesStopWhileTheBrokerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := run(t)
		f.Connected()
		f.Heartbeat(heartbeat("a", nil))
		time.Sleep(5 * time.Second)
		f.Disconnected()
		time.Sleep(time.Hour)
		if l := f.Snapshot().Lane(lane); l.Empty() {
			t.Error("gone while the broker is away")
		}
		f.Connected()
		time.Sleep(5900 * time.Millisecond)
		if l := f.Snapshot().Lane(lane); l.Empty() {
			t.Error("gone 5.9 s after the reconnect")
		}
		time.Sleep(100*time.Millisecond + 2*tick)
		if l := f.Snapshot().Lane(lane); !l.Empty() {
			t.Error("there 6.5 s after the reconnect without a heartbeat")
		}
		if w := f.Snapshot().Worker("a"); w == nil || w.Live || w.Ready() {
			t.Errorf("a silent worker: %+v", w)
		}
		time.Sleep(evictAfter)
		if w := f.Snapshot().Worker("a"); w != nil {
			t.Errorf("kept for ever: %+v", w)
		}
	})
}

// Until every worker had the time for a heartbeat, nobody may conclude that there is none.
func TestAFleetSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := run(t)
		time.Sleep(time.Hour)
		f.Connected()
		f.Heartbeat(heartbeat("a", nil))
		time.Sleep(work.WorkerHeartbeat)
		s := f.Snapshot()
		if s.Settled {
			t.Error("settled before the second of two heartbeats")
		}
		f.Disconnected()
		time.Sleep(time.Hour)
		if f.Snapshot().Settled {
			t.Error("settled without a connection")
		}
		f.Connected()
		time.Sleep(4 * tick)
		if !f.Snapshot().Settled {
			t.Error("never settled")
		}
		select {
		case <-s.Changed():
		default:
			t.Error("nobody was told")
		}
	})
}

// What is no heartbeat changes nothing and is counted.
func TestHostileHeartbeatsAreRefused(t *testing.T) {
	many := make([]string, bus.MaxHeartbeatModels+1)
	for i := range many {
		many[i] = fmt.Sprint("m", i)
	}
	subject, good := heartbeat("a", nil)
	body := func(change func(*bus.WorkerHeartbeat)) []byte { _, b := heartbeat("a", change); return b }
	pending := map[string]bus.Pending{}
	for _, m := range many {
		pending[m] = bus.Pending{}
	}
	for name, c := range map[string]struct {
		subject string
		data    []byte
	}{
		"no JSON":       {subject, []byte("hello")},
		"a list":        {subject, []byte("[]")},
		"empty":         {subject, nil},
		"deep":          {subject, []byte(`{"x":` + strings.Repeat("[", 100_000))},
		"wrong type":    {subject, []byte(`{"ready":"yes"}`)},
		"overflow":      {subject, []byte(`{"queue_depth":1e99}`)},
		"large":         {subject, append([]byte(strings.Repeat(" ", maxHeartbeatBytes)), good...)},
		"another":       {bus.HealthPrefix + "b", good},
		"no id":         {bus.HealthPrefix, good},
		"two tokens":    {bus.HealthPrefix + "a.b", good},
		"wildcard":      {bus.HealthPrefix + "*", good},
		"other subject": {"sie.gateway.a", good},
		"no lane":       {subject, []byte(`{"ready":true}`)},
		"bad lane":      {subject, body(func(h *bus.WorkerHeartbeat) { h.Bundle = "a.>" })},
		"many loaded":   {subject, body(func(h *bus.WorkerHeartbeat) { h.LoadedModels = many })},
		"many pending":  {subject, body(func(h *bus.WorkerHeartbeat) { h.Pending = pending })},
		"long id": {subject, body(func(h *bus.WorkerHeartbeat) {
			h.FailedModels = []string{strings.Repeat("m", maxModelBytes+1)}
		})},
		"empty id": {subject, body(func(h *bus.WorkerHeartbeat) { h.LoadingModels = []string{""} })},
		"negative": {subject, body(func(h *bus.WorkerHeartbeat) { h.QueueDepth = -1 })},
		"negative pending": {subject, body(func(h *bus.WorkerHeartbeat) {
			h.Pending = map[string]bus.Pending{"m": {Tokens: -1}}
		})},
	} {
		f := New(quiet())
		f.Heartbeat(c.subject, c.data)
		f.Connected()
		if s := f.Snapshot(); len(s.Workers) != 0 || s.Refused != 1 {
			t.Errorf("%s: %d workers, %d refused; want 0 and 1", name, len(s.Workers), s.Refused)
		}
	}
	f := New(quiet())
	f.Heartbeat(heartbeat("a", func(h *bus.WorkerHeartbeat) { h.UnsupportedModels = many }))
	if l := f.Snapshot().Lane(lane); !l.Unsupported(Hashes{}, "any") || len(l.Able("any")) != 0 {
		t.Error("a worker with more unsupported models than may be told takes work")
	}
}

// The number of workers is bounded: a silent one makes room, live ones do not.
func TestWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(quiet())
		f.Connected()
		add := func(n int) { f.Heartbeat(heartbeat(fmt.Sprintf("w%05d", n), nil)) }
		for n := range MaxWorkers / 100 {
			add(n)
		}
		f.mu.Lock() // the others at once: a snapshot for each takes minutes
		for n := MaxWorkers / 100; n < MaxWorkers; n++ {
			w, err := parse(heartbeat(fmt.Sprintf("w%05d", n), nil))
			if err != nil {
				t.Fatal(err)
			}
			w.Live = true
			f.workers[w.ID] = &entry{w, f.age}
			f.bytes += w.bytes
		}
		f.mu.Unlock()
		add(MaxWorkers)
		if s := f.Snapshot(); s.Worker(fmt.Sprintf("w%05d", MaxWorkers)) != nil || f.refused.Load() != 1 {
			t.Errorf("a worker above the bound was kept; refused %d", f.refused.Load())
		}
		for range 4 * 7 {
			time.Sleep(tick)
			if f.grow(); f.age == 3*time.Second {
				for n := 2; n < MaxWorkers; n++ {
					f.workers[fmt.Sprintf("w%05d", n)].seen = f.age
				}
				f.workers["w00001"].seen = time.Millisecond // silent too, but not for as long
			}
		}
		add(MaxWorkers)
		s := f.Snapshot()
		if s.Worker(fmt.Sprintf("w%05d", MaxWorkers)) == nil || s.Worker("w00000") != nil ||
			s.Worker("w00001") == nil ||
			len(s.Workers) != MaxWorkers {
			t.Errorf("%d workers: the silent one did not make room", len(s.Workers))
		}
	})
}

// The memory of all heartbeats is bounded, and comes back with its workers.
func TestMemoryOfHeartbeatsIsBounded(t *testing.T) {
	f := New(quiet())
	f.Heartbeat(heartbeat("a", nil))
	start := f.bytes
	f.bytes = maxBytes
	f.Heartbeat(heartbeat("b", nil))
	f.Heartbeat(heartbeat("a", func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"model"} }))
	if f.refused.Load() != 2 || f.workers["b"] != nil || f.workers["a"].Loaded("model") {
		t.Errorf("%d refused, %v", f.refused.Load(), f.workers)
	}
	f.bytes = start
	f.Heartbeat(heartbeat("a", func(h *bus.WorkerHeartbeat) { h.LoadedModels = []string{"model"} }))
	f.Heartbeat(heartbeat("a", func(h *bus.WorkerHeartbeat) { h.Terminated = true }))
	if f.bytes != 0 {
		t.Errorf("%d bytes are left without a worker", f.bytes)
	}
}

// A worker is what it is since its process became so, not since its last heartbeat.
func TestSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := run(t)
		f.Connected()
		began := time.Now()
		check := func(what string, want time.Duration) {
			t.Helper()
			if got := f.Snapshot().Worker("a").Since.Sub(began); got != want {
				t.Errorf("%s: since %v, want %v", what, got, want)
			}
		}
		beat := func(ready bool, epoch string) {
			f.Heartbeat(heartbeat("a", func(h *bus.WorkerHeartbeat) { h.Ready, h.Epoch = ready, epoch }))
		}
		beat(true, "1")
		check("new", 0)
		time.Sleep(4 * time.Second)
		beat(true, "1")
		time.Sleep(time.Second) // a heartbeat that changes nothing is seen a moment later
		check("as before", 0)
		beat(false, "1")
		check("not ready", 5*time.Second)
		time.Sleep(4 * time.Second)
		beat(false, "1")
		time.Sleep(time.Second)
		check("still not ready", 5*time.Second)
		beat(true, "1")
		check("ready again", 10*time.Second)
		time.Sleep(time.Second)
		beat(true, "2")
		check("another process", 11*time.Second)
		time.Sleep(time.Minute)
		if w := f.Snapshot().Worker("a"); w.Live || w.Since.Sub(began) < 11*time.Second+work.WorkerStale {
			t.Errorf("silent: live %v, since %v", w.Live, w.Since.Sub(began))
		}
		beat(true, "2")
		check("back", 71*time.Second)
	})
}

// Only workers of the wanted configuration can take a lane out of service for a model.
func TestUnsupportedOfAConfiguration(t *testing.T) {
	f := New(quiet())
	f.Connected()
	f.Heartbeat(heartbeat("a", func(h *bus.WorkerHeartbeat) {
		h.BundleConfigHash, h.UnsupportedModels = "old", []string{"m"}
	}))
	says := func(hash string, want bool, models ...string) {
		t.Helper()
		hashes := Hashes{Config: hash}
		if got := f.Snapshot().Lane(lane).Unsupported(hashes, models...); got != want {
			t.Errorf("%q %v: %v, want %v", hash, models, got, want)
		}
	}
	says("new", false, "m")
	says("old", true, "m")
	says("", true, "m")
	says("old", true, "m:fast", "m")
	says("old", false, "m:fast")
	f.Heartbeat(heartbeat("a", func(h *bus.WorkerHeartbeat) { h.UnsupportedModels = []string{"m"} }))
	says("new", true, "m")
	f.Heartbeat(heartbeat("a", func(h *bus.WorkerHeartbeat) {
		h.BundleConfigHash, h.BundleDocumentsHash, h.UnsupportedModels = "new", "then", []string{"m"}
	}))
	says("new", true, "m") // sie-config does not tell of documents
	for documents, want := range map[string]bool{"now": false, "then": true} {
		if l := f.Snapshot().Lane(lane); l.Unsupported(Hashes{"new", documents}, "m") != want {
			t.Errorf("a worker of the documents then, asked for %s: %v", documents, !want)
		}
	}
}
