package pools

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/lease"
)

// call is a client's call about one pool, and what came of it.
type call struct {
	do   string // put, renew or delete
	pool string
	ttl  int64 // of put
}

// answer is "ok", "none" for a 404, or "unknown": it may have happened, or may still happen.
type answer string

// onePool says what a client may see of one pool: its state is its TTL, 0 for none.
var onePool = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			by[o.Input.(call).pool] = append(by[o.Input.(call).pool], o)
		}
		var out [][]porcupine.Operation
		for _, part := range by {
			out = append(out, part)
		}
		return out
	},
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		ttl, c, got := state.(int64), input.(call), output.(answer)
		switch c.do {
		case "put":
			return got != "none", c.ttl
		case "delete":
			return got == "unknown" || (got == "ok") == (ttl != 0), int64(0)
		case "read":
			return ttl == c.ttl, ttl
		}
		return got == "unknown" || (got == "ok") == (ttl != 0), ttl
	},
}

// gatewayOf is a gateway's keeper over a link to a broker.
type gatewayOf struct {
	keeper *Keeper
	conn   *nats.Conn
	stop   context.CancelFunc
	ended  chan struct{}
}

func startKeeper(t *testing.T, at string) *gatewayOf {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	conn, err := bus.Connect(bus.Options{URL: at, Name: "gateway", Inboxes: bus.GatewayInboxes, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	store, err := lease.NewStore(conn, bus.Streams{Storage: "file"})
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.New(log)
	g := &gatewayOf{conn: conn, ended: make(chan struct{}),
		keeper: New(Options{Lanes: testLanes, Limits: Limits{Pools: 64, TTL: 3600, Workers: 4},
			Fleet: f.Snapshot, Log: log})}
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	go func() {
		defer close(g.ended)
		if err := g.keeper.Run(ctx, store); err != nil {
			t.Error(err)
		}
	}()
	return g
}

func (g *gatewayOf) kill() {
	g.conn.Close()
	g.stop()
	<-g.ended
}

// Calls at three gateways, each of which is paused, cut off and killed, over a broker that is
// started again: there is an order of all calls, within the time of each, that explains every
// answer; what one gateway shows never goes back; and at the end all gateways show the same.
func TestHistoriesOfCallsAreLinearisable(t *testing.T) {
	server := bustest.Start(t, nil)
	host, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var links []*link
	var gateways []*gatewayOf
	for range 3 {
		links = append(links, newLink(t, host.Host))
		gateways = append(gateways, startKeeper(t, links[len(links)-1].url()))
	}
	t.Cleanup(func() {
		for _, g := range gateways {
			g.kill()
		}
	})
	var mu sync.Mutex // guards history and gateways
	var history []porcupine.Operation
	began := time.Now()
	const clients, calls = 9, 120
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(client), 1))
			for range calls {
				c := call{do: []string{"put", "put", "renew", "delete"}[r.IntN(4)],
					pool: fmt.Sprintf("p%d", r.IntN(5)), ttl: 600 + r.Int64N(3000)}
				mu.Lock()
				k := gateways[r.IntN(3)].keeper
				mu.Unlock()
				from := time.Since(began)
				got := perform(t, k, c)
				until := time.Since(began)
				if got == "unknown" {
					until = time.Hour
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: client, Input: c, Call: int64(from),
					Output: got, Return: int64(until)})
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(8)) * time.Millisecond)
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	watchers := watchMonotonic(t, &mu, &gateways, ended)
	disturb(t, server, links, &mu, &gateways, ended)
	<-ended
	watchers.Wait()
	for _, l := range links {
		l.set(false, false)
	}
	last := finalPools(t, &mu, &gateways)
	unknown := 0
	for _, o := range history {
		if o.Output.(answer) == "unknown" {
			unknown++
		}
	}
	for i := range 5 {
		name := fmt.Sprintf("p%d", i)
		history = append(history, porcupine.Operation{Input: call{"read", name, last[name]},
			Call: int64(time.Since(began)), Output: answer("ok"), Return: int64(time.Since(began))})
	}
	t.Logf("%d calls, %d without an answer", len(history), unknown)
	if unknown > len(history)/2 {
		t.Errorf("%d of %d calls have no answer: the history says little", unknown, len(history))
	}
	if result := porcupine.CheckOperationsTimeout(onePool, history, time.Minute); result != porcupine.Ok {
		t.Errorf("the history is %s", result)
	}
}

// perform calls a gateway, for at most a moment.
func perform(t *testing.T, k *Keeper, c call) answer {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var code string
	switch c.do {
	case "put":
		_, e := k.Put(ctx, lease.Spec{Name: c.pool, GPUs: map[string]int{"l4": 1}, TTL: c.ttl})
		code = codeOf(e)
	case "renew":
		code = codeOf(k.Renew(ctx, c.pool))
	default:
		code = codeOf(k.Delete(ctx, c.pool))
	}
	switch code {
	case "":
		return "ok"
	case "POOL_NOT_FOUND":
		return "none"
	}
	return "unknown"
}

// watchMonotonic sees that what a gateway shows never goes back.
func watchMonotonic(
	t *testing.T, mu *sync.Mutex, gateways *[]*gatewayOf, ended <-chan struct{},
) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			var of *Keeper
			var last lease.View
			for {
				select {
				case <-ended:
					return
				case <-time.After(time.Millisecond):
				}
				mu.Lock()
				k := (*gateways)[i].keeper
				mu.Unlock()
				v := *k.view.Load()
				if k == of && v.Epoch.Equal(last.Epoch) && v.Revision < last.Revision {
					t.Errorf("gateway %d went from revision %d to %d", i, last.Revision, v.Revision)
				}
				of, last = k, v
			}
		})
	}
	return &all
}

// disturb pauses, cuts off and kills gateways, and starts the broker again, until the calls end.
func disturb(t *testing.T, server *bustest.Server, links []*link, mu *sync.Mutex, gateways *[]*gatewayOf,
	ended <-chan struct{},
) {
	r := rand.New(rand.NewPCG(3, 3))
	over := func(d time.Duration) bool {
		select {
		case <-ended:
			return true
		case <-time.After(d):
			return false
		}
	}
	for round := 0; !over(100 * time.Millisecond); round++ {
		i := r.IntN(3)
		switch {
		case round == 6:
			server.Stop()
			server.Restart()
		case round%4 == 3:
			links[i].set(false, true)
			over(150 * time.Millisecond)
			links[i].set(false, false)
		case round%4 == 1:
			mu.Lock()
			old := (*gateways)[i]
			(*gateways)[i] = startKeeper(t, links[i].url())
			mu.Unlock()
			old.kill()
		default:
			links[i].set(true, false)
			over(100 * time.Millisecond)
			links[i].set(false, false)
		}
	}
}

// finalPools returns the TTLs of the pools that all gateways show in the end.
func finalPools(t *testing.T, mu *sync.Mutex, gateways *[]*gatewayOf) map[string]int64 {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		mu.Lock()
		views := []lease.View{}
		for _, g := range *gateways {
			views = append(views, *g.keeper.view.Load())
		}
		truth, err := (*gateways)[0].keeper.store.Look(t.Context(), lease.View{})
		mu.Unlock()
		same := err == nil
		for _, v := range views {
			same = same && v.Same(truth)
		}
		if same {
			out := map[string]int64{}
			for _, p := range truth.Table.Pools {
				out[p.Spec.Name] = p.Spec.TTL
			}
			return out
		}
		if time.Now().After(deadline) {
			t.Fatalf("the gateways do not agree: %v, %v", views, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A deletion whose answer is lost has happened, also when others wrote after it, and is not told as
// one of a pool that was not there.
func TestALostAnswerIsFoundAgain(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, nil)
	host, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(t, host.Host)
	far, near := startKeeper(t, l.url()), startKeeper(t, server.URL)
	t.Cleanup(func() { far.kill(); near.kill() })
	for perform(t, near.keeper, call{"put", "p", 600}) != "ok" || far.keeper.Find("p") == nil {
		time.Sleep(time.Millisecond)
	}
	// It has looked when it writes, and is deaf from then on.
	store := far.keeper.store
	v, err := store.Look(t.Context(), lease.View{})
	if err != nil {
		t.Fatal(err)
	}
	l.setDeaf(true)
	ended := make(chan error, 1)
	var at uint64
	go func() {
		var err error
		at, err = store.Swap(t.Context(), v, &lease.Table{Writes: v.Table.Writes})
		ended <- err
	}()
	for near.keeper.Find("p") != nil {
		time.Sleep(time.Millisecond)
	}
	written := near.keeper.view.Load().Revision
	if got := perform(t, near.keeper, call{"put", "q", 600}); got != "ok" {
		t.Fatal(got)
	}
	l.setDeaf(false)
	if err := <-ended; err != nil || at != written {
		t.Errorf("the write at %d was told at %d: %v", written, at, err)
	}
}
