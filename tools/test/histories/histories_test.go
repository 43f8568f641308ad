package histories

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sie-engine/sie/internal/testrig"
)

var lasting = flag.Duration("histories.for", 0, "how long to go on; 0: once through all faults")

// run is one history on one control plane.
type run struct {
	t       *testing.T
	seed    uint64
	world   *world
	configs *history
	pools   *history
	ttls    atomic.Int64  // so that no two pools have the same
	ended   chan struct{} // closed when the faults have ended
}

func (r *run) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

func (r *run) until(what string, ok func() bool) { testrig.Until(r.t, what, ok) }

// rest lets a moment pass between two calls.
func (c *client) rest() { time.Sleep(time.Duration(5+c.r.IntN(40)) * time.Millisecond) }

// checkTime bounds the search for an order. Where there is one it is found in less than a second;
// that there is none may take longer to see than anybody waits, and counts as the same.
const checkTime = 30 * time.Second

// roundTime is how long one history of a long run goes on: a checker's work grows with it.
const roundTime = 20 * time.Second

// There is an order of all calls, within the time of each, that explains every answer of three
// gateways, whatever is killed, stopped and cut off meanwhile.
func TestHistories(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("SIE_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	w := startWorld(t)
	for end := time.Now().Add(*lasting); ; seed++ {
		if !t.Run(fmt.Sprint("SIE_SEED=", seed), func(t *testing.T) { record(t, w, seed) }) {
			return
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

// record makes one history and checks it.
func record(t *testing.T, w *world, seed uint64) {
	began := time.Now()
	r := &run{t: t, seed: seed, world: w, configs: &history{began: began}, pools: &history{began: began},
		ended: make(chan struct{})}
	first := w.clear(t)
	var all sync.WaitGroup
	n := 0
	start := func(do func(c *client)) {
		c := r.client(n)
		n++
		all.Go(func() { do(c) })
	}
	for range 4 {
		start((*client).writeConfigs)
		start((*client).callPools)
	}
	start((*client).readConfigs)
	for g := range 3 {
		start(func(c *client) { c.watchGateway(g) })
		start(func(c *client) { c.readPools(g) })
	}
	start((*client).forge)
	r.disturb()
	close(r.ended)
	all.Wait()
	if t.Failed() {
		return
	}
	c := r.client(n)
	c.lastConfigs()
	c.lastPools()
	result, model, info := checkConfigs(r.configs.all, first)
	r.report("models", r.configs, result, model, info)
	result, info = porcupine.CheckOperationsVerbose(poolModel, r.pools.all, checkTime)
	r.report("pools", r.pools, result, poolModel, info)
}

// clear removes what an earlier history has left, and returns the epoch then, which all gateways
// show.
func (w *world) clear(t *testing.T) uint64 {
	began := time.Now()
	r := &run{t: t, world: w, configs: &history{began: began}, pools: &history{began: began}}
	c := r.client(0)
	for i := range ids {
		c.change(configCall{do: "delete", model: i}, 0, fmt.Sprint("clear-", rand.Uint64()))
	}
	for i := range pools {
		r.until("a pool is gone", func() bool {
			return c.callPool(poolCall{do: "delete", pool: i}) == 404
		})
	}
	for g := range 3 {
		r.until("a gateway shows no pool", func() bool {
			return slices.Equal(c.getPools(g, true), make([]int, pools))
		})
	}
	return c.allShow()
}

// report tells how a history was judged. One that nothing explains is drawn into a file.
func (r *run) report(
	what string, h *history, result porcupine.CheckResult, m porcupine.Model,
	info porcupine.LinearizationInfo,
) {
	answered, open := h.count()
	r.t.Logf("%s: %d calls answered, %d not; the history is %s", what, answered, open, result)
	if result == porcupine.Ok {
		return
	}
	dir := cmp.Or(os.Getenv("SIE_HISTORIES_DIR"), os.TempDir())
	path := filepath.Join(dir, fmt.Sprintf("sie-history-%s-%d.html", what, r.seed))
	if err := porcupine.VisualizePath(m, info, path); err != nil {
		r.t.Error(err)
	}
	r.t.Errorf("SIE_SEED=%d: the history of %s is %s; %s shows it", r.seed, what, result, path)
}

// disturb does every kind of fault, two at a time, in an order that follows from the seed; in a
// long run again and again.
func (r *run) disturb() {
	rnd := rand.New(rand.NewPCG(r.seed, 1<<32))
	for end := time.Now().Add(min(*lasting, roundTime)); ; {
		faults := r.faults()
		rnd.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		for len(faults) > 0 {
			var two sync.WaitGroup
			for _, f := range faults[:min(2, len(faults))] {
				g, d := rnd.IntN(3), time.Duration(50+rnd.IntN(350))*time.Millisecond
				two.Go(func() { f(g, d) })
			}
			two.Wait()
			faults = faults[min(2, len(faults)):]
			time.Sleep(time.Duration(rnd.IntN(150)) * time.Millisecond)
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

// faults returns one of each kind. Each is of one gateway, as far as it has one, and lasts for d.
func (r *run) faults() []func(gateway int, d time.Duration) {
	w := r.world
	stop := func(p *process, d time.Duration) {
		p.signal(syscall.SIGSTOP)
		time.Sleep(d)
		p.signal(syscall.SIGCONT)
	}
	spoil := func(l *link, as weather, d time.Duration) {
		l.set(as)
		time.Sleep(d)
		l.set(weather{})
	}
	var out []func(int, time.Duration)
	for _, as := range []weather{{cut: true}, {still: true}, {mute: true}, {delay: 30 * time.Millisecond}} {
		out = append(out,
			func(g int, d time.Duration) { spoil(w.brokerOf[g], as, d) },
			func(g int, d time.Duration) { spoil(w.configOf[g], as, d) })
	}
	return append(out,
		func(g int, d time.Duration) { // what was asked arrives, and its answer is lost
			w.configOf[g].set(weather{mute: true})
			time.Sleep(d)
			spoil(w.configOf[g], weather{cut: true}, 20*time.Millisecond)
		},
		func(g int, d time.Duration) {
			w.brokerOf[g].set(weather{mute: true})
			time.Sleep(d)
			spoil(w.brokerOf[g], weather{cut: true}, 20*time.Millisecond)
		},
		func(_ int, d time.Duration) { spoil(w.brokerOfConfig, weather{cut: true}, d) },
		func(_ int, d time.Duration) { spoil(w.brokerOfConfig, weather{still: true}, d) },
		func(g int, d time.Duration) { stop(w.gateways[g], d) },
		func(_ int, d time.Duration) { stop(w.config, d) },
		func(_ int, d time.Duration) { stop(w.nats, d) },
		func(g int, d time.Duration) { w.restart(g, d/4) },
		func(g int, d time.Duration) { w.restart(g, d/4) },
		func(_ int, d time.Duration) { w.restartConfig(d / 4) },
		func(_ int, d time.Duration) { w.restartConfig(d / 4) },
		func(_ int, d time.Duration) { w.restartBroker(d / 4) })
}

// lastConfigs makes a last change through each gateway, and waits until all show it.
func (c *client) lastConfigs() {
	for g := range 3 {
		c.change(configCall{do: "put", model: g, content: newContent(512, []string{"default"})}, g,
			fmt.Sprintf("last-%d", c.r.Uint64()))
	}
	c.allShow()
}

// allShow waits until all gateways show what sie-config has, and returns its epoch.
func (c *client) allShow() (epoch uint64) {
	c.until("sie-config answers", func() (ok bool) { epoch, ok = c.export(0); return ok })
	for g := range 3 {
		c.until(fmt.Sprintf("gateway %d has epoch %d", g, epoch),
			func() bool { return c.list(g, 0) == epoch })
	}
	return epoch
}
