package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/tenant"
	"github.com/sie-engine/sie/internal/testrig"
)

// The quotas of the tests, and the largest request.
const (
	perSecond = 200
	inFlight  = 60
	largest   = 12
)

const tokens = `tenants:
  - {name: rated, tokens: [rated], items_per_s: 200}
  - {name: bounded, tokens: [bounded], in_flight_items: 60}
  - {name: free, tokens: [free]}
`

// hub is a plain model of a broker: what one publishes comes to all, in order, within a few
// milliseconds.
type hub struct {
	mu      sync.Mutex
	rand    *rand.Rand
	up      bool
	members []*member
	in      chan *nats.Msg
}

// member is a gateway.
type member struct {
	*Exchange
	hub    *hub
	access *tenant.Access
	router string
	inbox  chan *nats.Msg
	stop   context.CancelFunc
	ended  chan struct{}
	dead   bool // killed: nothing comes from it and to it any more
}

func (h *hub) random(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rand.IntN(n)
}

// run hands messages on until ctx ends.
func (h *hub) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-h.in:
			time.Sleep(time.Duration(h.random(3000)) * time.Microsecond)
			h.mu.Lock()
			for _, x := range h.members {
				if h.up && !x.dead {
					x.inbox <- m
				}
			}
			h.mu.Unlock()
		}
	}
}

// join starts a gateway.
func (h *hub) join(t *testing.T, ctx context.Context, router, file string) *member {
	t.Helper()
	a, err := tenant.Open(tenant.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{hub: h, access: a, router: router, inbox: make(chan *nats.Msg, 10_000),
		ended: make(chan struct{})}
	m.Exchange = New(Options{Router: router, Access: a, Log: slog.New(slog.DiscardHandler)})
	m.publish = func(msg *nats.Msg) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.up || m.dead {
			return errors.New("no connection")
		}
		h.in <- msg
		return nil
	}
	h.mu.Lock()
	h.members = append(h.members, m)
	up := h.up
	h.mu.Unlock()
	ctx, m.stop = context.WithCancel(ctx)
	go func() {
		defer close(m.ended)
		m.Run(ctx)
	}()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case msg := <-m.inbox:
				time.Sleep(time.Duration(h.random(1000)) * time.Microsecond)
				var told Message
				if err := json.Unmarshal(msg.Data, &told); err != nil {
					panic(err)
				}
				m.heard(strings.TrimPrefix(msg.Subject, bus.QuotaPrefix), &told)
			}
		}
	}()
	if up {
		m.Connected()
	}
	return m
}

// leave ends a gateway, with a word to the others or without.
func (m *member) leave(kill bool) {
	m.hub.mu.Lock()
	m.dead = kill
	m.hub.mu.Unlock()
	m.stop()
	<-m.ended
	m.hub.mu.Lock()
	m.dead = true
	m.hub.mu.Unlock()
}

// connect makes or ends the connections of all.
func (h *hub) connect(up bool) {
	h.mu.Lock()
	h.up = up
	members := h.members
	h.mu.Unlock()
	for _, m := range members {
		if up {
			m.Connected()
		} else {
			m.Disconnected()
		}
	}
}

// ledger is what was admitted, by anybody.
type ledger struct {
	mu      sync.Mutex
	at      []time.Time
	items   []int
	flying  map[*member]int
	most    int // items in flight of gateways that live, at once
	refused int
}

// ask asks a gateway for items of a tenant, and holds them for a time.
func (l *ledger) ask(ctx context.Context, m *member, token string, n int, holds time.Duration) {
	release, err := m.access.Find(token).Take(ctx, n)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.refused++
		return
	}
	l.at, l.items = append(l.at, time.Now()), append(l.items, n)
	l.flying[m] += n
	sum := 0
	for x, n := range l.flying {
		x.hub.mu.Lock()
		if !x.dead {
			sum += n
		}
		x.hub.mu.Unlock()
	}
	l.most = max(l.most, sum)
	time.AfterFunc(holds, func() {
		release()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.flying[m] -= n
	})
}

// excess returns by how many items the worst time had more than the quota: that of the time, and of
// one second.
func (l *ledger) excess() (worst float64) {
	for from := range l.at {
		sum := 0
		for i := from; i < len(l.at); i++ {
			sum += l.items[i]
			worst = max(worst, float64(sum)-perSecond*(l.at[i].Sub(l.at[from]).Seconds()+1))
		}
	}
	return worst
}

// since returns the items that were admitted after a time.
func (l *ledger) since(at time.Time) (n int) {
	for i := range l.at {
		if l.at[i].After(at) {
			n += l.items[i]
		}
	}
	return n
}

// cluster runs f with a broker and a number of gateways that have met.
func cluster(t *testing.T, seed uint64, gateways int, f func(ctx context.Context, h *hub, all []*member)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := &hub{rand: rand.New(rand.NewPCG(seed, 11)), up: true, in: make(chan *nats.Msg, 10_000)}
		ctx, cancel := context.WithCancel(t.Context())
		go h.run(ctx)
		for i := range gateways {
			h.join(t, ctx, fmt.Sprint("g", i), file)
		}
		time.Sleep(3 * time.Second)
		f(ctx, h, h.members)
		time.Sleep(time.Minute) // what is in flight ends
		for _, m := range h.members {
			if !m.dead {
				m.leave(false)
			}
		}
		cancel()
		time.Sleep(time.Second) // until all have seen it
	})
}

// flood asks for items of a tenant at a rate, of gateways that pick chooses, until a time has
// passed.
func flood(ctx context.Context, h *hub, l *ledger, token string, itemsPerSecond float64, lasts time.Duration,
	pick func() *member) {
	r := rand.New(rand.NewPCG(uint64(h.random(1<<30)), 13))
	var all sync.WaitGroup
	defer all.Wait()
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		pause := r.ExpFloat64() * largest / 2 / itemsPerSecond
		time.Sleep(time.Duration(pause * float64(time.Second)))
		n, holds := 1+r.IntN(largest), time.Duration(r.IntN(400))*time.Millisecond
		if m := pick(); m != nil {
			all.Go(func() { l.ask(ctx, m, token, n, holds) })
		}
	}
}

func newLedger() *ledger { return &ledger{flying: map[*member]int{}} }

// A tenant that asks for three times its quota gets the quota, whether it asks one gateway or all,
// and however many there are: no more beyond it than one request where there is one gateway, else
// two of each, and no less than nine tenths of it.
func TestAQuotaIsThatOfTheCluster(t *testing.T) {
	for _, gateways := range []int{1, 2, 5} {
		for seed := range uint64(3) {
			for _, one := range []bool{false, true} {
				cluster(t, seed, gateways, func(ctx context.Context, h *hub, all []*member) {
					what := fmt.Sprintf("%d gateways, seed %d, one of them is asked: %v", gateways, seed, one)
					pick := func() *member {
						if one {
							return all[0]
						}
						return all[h.random(len(all))]
					}
					rated, bounded := newLedger(), newLedger()
					var loads sync.WaitGroup
					begun := time.Now()
					loads.Go(func() { flood(ctx, h, rated, "rated", 3*perSecond, 20*time.Second, pick) })
					loads.Go(func() { flood(ctx, h, bounded, "bounded", 1000, 20*time.Second, pick) })
					loads.Wait()
					requests := 2 * gateways
					if gateways == 1 {
						requests = 1
					}
					most := float64(requests * largest)
					t.Logf("%s: %.0f items beyond the quota (at most %.0f), %d in 20 s; %d in flight", what,
						rated.excess(), most, rated.since(begun), bounded.most)
					if x := rated.excess(); x > most {
						t.Errorf("%s: %.0f items more than the quota", what, x)
					}
					if n := rated.since(begun); n < perSecond*20*9/10 {
						t.Errorf("%s: %d items in 20 s", what, n)
					}
					over := inFlight // of one gateway, no request is beyond it
					if gateways > 1 {
						over += requests * largest
					}
					if bounded.most > over || bounded.most < inFlight-largest {
						t.Errorf("%s: %d items in flight", what, bounded.most)
					}
				})
			}
		}
	}
}

// Gateways join, leave and are killed, and the broker is away for a time: what is admitted stays
// within the quota, but for two requests of each gateway that was ever there and, of each that was
// killed, its part of a second that nobody heard of. While the broker is away each keeps to its
// part; nobody is refused for long when it is back. With a number in SIE_TEST_TURN a third of the
// seeds.
func TestGatewaysComeAndGo(t *testing.T) {
	mine := testrig.Part(t, 3)
	for seed := range uint64(6) {
		if !mine(int(seed)) {
			continue
		}
		cluster(t, seed, 2, func(ctx context.Context, h *hub, all []*member) {
			file := filepath.Join(t.TempDir(), "tokens.yaml")
			if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
				t.Fatal(err)
			}
			live := func() *member {
				h.mu.Lock()
				defer h.mu.Unlock()
				var at []*member
				for _, m := range h.members {
					if !m.dead {
						at = append(at, m)
					}
				}
				return at[h.rand.IntN(len(at))]
			}
			rated, bounded := newLedger(), newLedger()
			var loads sync.WaitGroup
			loads.Go(func() { flood(ctx, h, rated, "rated", 3*perSecond, 60*time.Second, live) })
			loads.Go(func() { flood(ctx, h, bounded, "bounded", 1000, 60*time.Second, live) })
			kills, ever := 0, 2
			for range 12 {
				time.Sleep(time.Duration(500+h.random(4000)) * time.Millisecond)
				switch h.random(4) {
				case 0, 1:
					h.join(t, ctx, fmt.Sprint("g", ever), file)
					ever++
				case 2:
					if m := live(); len(h.members) > 2 && m != h.members[0] {
						kill := h.random(2) == 0
						kills += map[bool]int{true: 1}[kill]
						m.leave(kill)
					}
				default:
					h.connect(false)
					time.Sleep(time.Duration(h.random(6000)) * time.Millisecond)
					h.connect(true)
				}
			}
			time.Sleep(time.Second)
			settled := time.Now()
			loads.Wait()
			lasted := time.Since(settled).Seconds()
			most := float64(2*ever*largest + kills*perSecond/2)
			t.Logf("seed %d: %d gateways, %d killed: %.0f items beyond the quota (at most %.0f); %d in flight; "+
				"%d in the last %.1f s", seed, ever, kills, rated.excess(), most, bounded.most,
				rated.since(settled), lasted)
			if x := rated.excess(); x > most {
				t.Errorf("seed %d: %.0f items more than the quota", seed, x)
			}
			if bounded.most > inFlight+2*ever*largest {
				t.Errorf("seed %d: %d items in flight", seed, bounded.most)
			}
			if lasted > 3 && float64(rated.since(settled)) < perSecond*lasted*0.8 {
				t.Errorf("seed %d: %d items in %.1f s at the end", seed, rated.since(settled), lasted)
			}
			free := newLedger()
			flood(ctx, h, free, "free", 1000, time.Second, live)
			if free.refused > 0 {
				t.Errorf("seed %d: %d requests of a tenant without a quota were refused", seed, free.refused)
			}
		})
	}
}

// A burst of small requests within the quota is admitted whole by one gateway of five, though the
// others hear of it only as it goes: requests wait until they have, and none is refused.
func TestABurstAtOneGateway(t *testing.T) {
	cluster(t, 1, 5, func(ctx context.Context, h *hub, all []*member) {
		rated, bounded := newLedger(), newLedger()
		var burst sync.WaitGroup
		for range inFlight {
			burst.Go(func() { bounded.ask(ctx, all[3], "bounded", 1, time.Second) })
		}
		for range perSecond {
			burst.Go(func() { rated.ask(ctx, all[2], "rated", 1, time.Second) })
		}
		burst.Wait()
		if rated.refused > perSecond/10 || bounded.refused > 0 {
			t.Errorf("refused: %d of %d of a second's items, %d of %d in flight", rated.refused, perSecond,
				bounded.refused, inFlight)
		}
	})
}

// Where the broker has never been reached a request waits for a moment, and is admitted.
func TestWithoutABroker(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := &hub{rand: rand.New(rand.NewPCG(1, 11)), in: make(chan *nats.Msg, 100)}
		m := h.join(t, t.Context(), "g", file)
		begun := time.Now()
		if _, err := m.access.Find("rated").Take(t.Context(), 3); err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d > 2*time.Second {
			t.Errorf("it waited for %v", d)
		}
		if _, err := m.access.Find("free").Take(t.Context(), 3); err != nil {
			t.Error(err)
		}
		m.leave(false)
	})
}

// A gateway that joins a moment after the items of a second were used at another admits none of
// them again: its first request waits until it knows. One that leaves in order counts no more at
// once, and one that is killed after its silence.
func TestJoiningAndLeaving(t *testing.T) {
	cluster(t, 1, 2, func(ctx context.Context, h *hub, all []*member) {
		file := filepath.Join(t.TempDir(), "tokens.yaml")
		if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
			t.Fatal(err)
		}
		l := newLedger()
		l.ask(ctx, all[0], "rated", 3*perSecond, time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		before := l.refused
		l.ask(ctx, h.join(t, ctx, "late", file), "rated", 1, time.Millisecond)
		if l.refused != before+1 {
			t.Error("a gateway that joined admitted what another had used")
		}
		for i, kill := range []bool{false, true} {
			held := h.join(t, ctx, fmt.Sprint("held", i), file)
			time.Sleep(time.Second)
			l.ask(ctx, held, "bounded", inFlight, time.Hour)
			time.Sleep(100 * time.Millisecond)
			before := l.refused
			l.ask(ctx, all[1], "bounded", 1, time.Millisecond)
			held.leave(kill)
			time.Sleep(100 * time.Millisecond)
			l.ask(ctx, all[1], "bounded", 1, time.Millisecond)
			if want := before + 1 + map[bool]int{true: 1}[kill]; l.refused != want {
				t.Errorf("killed %v: %d were refused, want %d", kill, l.refused-before, want-before)
			}
			time.Sleep(silence + 2*beatEvery)
			before = l.refused
			l.ask(ctx, all[1], "bounded", inFlight, time.Millisecond)
			if l.refused != before {
				t.Errorf("killed %v: what it had in flight counts on", kill)
			}
			time.Sleep(time.Second)
		}
	})
}

// After the broker was away a tenant has no burst at once: what was used at the other gateways
// meanwhile is not known. A second later it has.
func TestNoBurstAfterTheBrokerWasAway(t *testing.T) {
	cluster(t, 2, 2, func(ctx context.Context, h *hub, all []*member) {
		l := newLedger()
		for _, m := range all { // they know of the tenant
			l.ask(ctx, m, "rated", 1, time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		h.connect(false)
		time.Sleep(10 * time.Second)
		for _, m := range all {
			l.ask(ctx, m, "rated", perSecond/2, time.Millisecond) // its part, which is there again
		}
		time.Sleep(time.Second)
		h.connect(true)
		time.Sleep(100 * time.Millisecond)
		begun, before := time.Now(), l.since(time.Time{})
		for time.Since(begun) < 300*time.Millisecond {
			l.ask(ctx, all[1], "rated", 1, time.Millisecond)
			time.Sleep(time.Millisecond)
		}
		if n := l.since(time.Time{}) - before; n > perSecond/2 {
			t.Errorf("%d items in %v", n, time.Since(begun))
		}
		time.Sleep(5 * time.Second)
		before = l.refused
		l.ask(ctx, all[1], "rated", perSecond, time.Millisecond)
		if l.refused != before {
			t.Error("there is no burst later either")
		}
	})
}

// counting is an Access that notes whether it is told of a number of gateways while that can
// change.
type counting struct {
	Access
	exchange *Exchange
	told     []int
	late     bool
}

func (c *counting) SetPeers(n int) {
	if c.exchange.mu.TryLock() {
		c.exchange.mu.Unlock()
		c.late = true
	}
	c.told = append(c.told, n)
}

// What is told of the number of the others is the number: one that is silent and one that joins at
// the same moment, on two goroutines, never leave a number of before.
func TestTheNumberOfOthersIsToldInItsOrder(t *testing.T) {
	a, err := tenant.Open(tenant.Options{Keys: []string{"key"}})
	if err != nil {
		t.Fatal(err)
	}
	c := &counting{Access: a}
	c.exchange = New(Options{Router: "g", Access: c, Log: slog.New(slog.DiscardHandler)})
	c.exchange.heard("a", &Message{})
	c.exchange.heard("b", &Message{})
	c.exchange.heard("a", &Message{Leaves: true})
	c.exchange.forget("b")
	if want := []int{1, 2, 1, 0}; c.late || !slices.Equal(c.told, want) {
		t.Errorf("told %v, want %v; told while others could join: %v", c.told, want, c.late)
	}
}
