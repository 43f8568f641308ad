package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Plan says what a Load sends.
type Plan struct {
	Name     string // begins the id of every request; unique in this program
	Seed     uint64
	Gateways []string // base URLs; client i uses gateway i modulo their number
	Models   Models
	Known    Known

	Raw     int     // raw clients
	RawRate float64 // requests a second of all raw clients together
	SDKs    []*SDK
	Calls   int     // at once, of each SDK
	SDKRate float64 // calls a second of all SDKs together
	Most    int     // items of a request, at most [200]
	// Patience is how long a raw client waits for an answer [170 s].
	Patience time.Duration

	// FollowReady makes raw clients choose a gateway whose /readyz answers 200, and leave one that
	// does not, as a load balancer does.
	FollowReady bool
}

// readyEvery is the time between two looks at a gateway's /readyz, as of a load balancer that looks
// often. A gateway that leaves must serve for longer: one that does not is sent a few requests.
const readyEvery = time.Second

// Load is what runs. Its methods are safe for concurrent use.
type Load struct {
	plan  Plan
	rec   recorder
	seq   atomic.Uint64
	bases []*url.URL
	ready []atomic.Bool
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// Start starts the clients of a plan. Each sends at a steady pace and has one request open at a
// time: what an outage holds back is not made up for later.
func Start(p Plan) (*Load, error) {
	if p.Most == 0 {
		p.Most = 200
	}
	if p.Patience == 0 {
		p.Patience = patience
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &Load{plan: p, stop: stop, ready: make([]atomic.Bool, len(p.Gateways))}
	for i, g := range p.Gateways {
		u, err := url.Parse(g)
		if err != nil {
			stop()
			return nil, fmt.Errorf("gateway %d: %w", i, err)
		}
		l.bases = append(l.bases, u)
		l.ready[i].Store(true)
		if p.FollowReady {
			l.done.Go(func() { l.poll(ctx, i) })
		}
	}
	for i := range p.Raw {
		c := &raw{fresh: i/len(l.bases)%2 == 1, packed: i/len(l.bases)/2%2 == 0, patience: p.Patience}
		l.done.Go(func() {
			defer c.close()
			l.pace(ctx, uint64(i), p.Raw, p.RawRate, func(r *Request, rec *Record) {
				rec.Client = "raw"
				g := l.choose(i)
				rec.Gateway = g
				c.do(context.Background(), p.Known, l.bases[g], r, rec)
			})
		})
	}
	clients := len(p.SDKs) * p.Calls
	for i := range clients {
		s := p.SDKs[i%len(p.SDKs)]
		g := i / len(p.SDKs) % len(l.bases)
		l.done.Go(func() {
			l.pace(ctx, uint64(1000+i), clients, p.SDKRate, func(r *Request, rec *Record) {
				rec.Client, rec.Gateway = "sdk "+s.Version, g
				if r.Op == Embeddings {
					r.Op = Encode
				}
				s.do(p.Known, p.Gateways[g], r, rec)
			})
		})
	}
	return l, nil
}

// pace calls do for one request after the other, every clients/rate seconds.
func (l *Load) pace(
	ctx context.Context, id uint64, clients int, rate float64, do func(*Request, *Record),
) {
	rng := rand.New(rand.NewPCG(l.plan.Seed, id))
	every := time.Duration(float64(clients) / rate * float64(time.Second))
	next := time.Now().Add(time.Duration(rng.Float64() * float64(every)))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
		r := newRequest(rng, fmt.Sprintf("%s-%d", l.plan.Name, l.seq.Add(1)), l.plan.Models, l.plan.Most)
		rec := Record{ID: r.ID, Items: len(r.Texts)}
		do(r, &rec)
		rec.Op, rec.Model = r.Op, r.Model
		l.rec.add(rec)
		if next = next.Add(every); time.Since(next) > every {
			next = time.Now()
		}
	}
}

// choose returns the gateway of raw client i.
func (l *Load) choose(i int) int {
	n := len(l.bases)
	for k := range n {
		if g := (i + k) % n; l.ready[g].Load() {
			return g
		}
	}
	return i % n
}

// poll follows the readiness of a gateway.
func (l *Load) poll(ctx context.Context, g int) {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		resp, err := client.Get(l.plan.Gateways[g] + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		l.ready[g].Store(err == nil && resp.StatusCode == 200)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Records returns what ended so far, from the n-th on, in the order of their ends.
func (l *Load) Records(n int) []Record { return l.rec.since(n) }

// Stop sends no more, waits for the answers that are due, and returns all records.
func (l *Load) Stop() ([]Record, error) {
	l.stop()
	l.done.Wait()
	if l.rec.over > 0 {
		return nil, fmt.Errorf("%d records above the bound of %d were lost", l.rec.over, maxRecords)
	}
	return l.rec.since(0), nil
}
