package row

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/tools/chaos/rig"
)

// eightModels are what the placement row asks for in turn.
var eightModels = []string{
	"BAAI/bge-base-en-v1.5", "BAAI/bge-large-en-v1.5", "BAAI/bge-small-en-v1.5", "WhereIsAI/UAE-Large-V1",
	"intfloat/e5-base-v2", "intfloat/e5-large-v2", "thenlper/gte-base", "thenlper/gte-large",
}

func isolationRows() []Row {
	return []Row{
		{Name: "isolation/placement", Topology: Four, Alone: asking(eightModels, placement)},
		{Name: "isolation/queued", Topology: Four, Alone: asking(eightModels, queued)},
		{Name: "isolation/overload", Topology: Four, Alone: asking(eightModels[2:3], overload)},
	}
}

// asking runs a row that asks for models of the cluster's one lane: their consumers stay, and
// nothing else may.
func asking(models []string, run func(context.Context, *Env) (Line, error)) func(context.Context, *Env) (
	Line, error) {
	return func(ctx context.Context, e *Env) (Line, error) {
		s, err := e.Cluster.State()
		if err != nil {
			return Line{}, err
		}
		of := s.Workers[0]
		lane := bus.Lane{Pool: of.Pool, Profile: of.Profile, Bundle: of.Bundle}
		before, err := e.filters(ctx)
		if err != nil {
			return Line{}, err
		}
		for _, m := range models {
			before[lane.WorkSubject(m)] = true
		}
		l, err := run(ctx, e)
		e.held.Consumers = len(before) // what the cluster at rest is compared with
		after, failed := e.filters(ctx)
		for f := range after {
			if !before[f] {
				l.Broken = append(l.Broken, "a consumer of "+f+", for which nobody asked")
			}
		}
		return l, errors.Join(err, failed)
	}
}

// filters returns the subjects of the work streams' consumers.
func (e *Env) filters(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	err := e.jetStream(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		names, err := workStreams(ctx, js)
		if err != nil {
			return err
		}
		for _, name := range names {
			s, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			list := s.ListConsumers(ctx)
			for i := range list.Info() {
				out[i.Config.FilterSubject] = true
			}
			if list.Err() != nil {
				return list.Err()
			}
		}
		return nil
	})
	return out, err
}

// asker sends encode requests of JSON, as many at once as its callers ask for.
type asker struct {
	client  http.Client
	gateway string
}

func newAsker(gateway string, connections int) *asker {
	return &asker{gateway: gateway, client: http.Client{
		Timeout:   5 * time.Minute,
		Transport: &http.Transport{MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections},
	}}
}

// ask returns the status of an answer, its Retry-After and how long it took.
func (a *asker) ask(ctx context.Context, model string, texts []string) (int, int, time.Duration, error) {
	list := make([]any, len(texts))
	for i, t := range texts {
		list[i] = map[string]any{"id": strconv.Itoa(i), "text": t}
	}
	body, err := json.Marshal(map[string]any{"items": list})
	if err != nil {
		return 0, 0, 0, err
	}
	r, err := http.NewRequestWithContext(ctx, "POST", a.gateway+"/v1/encode/"+model, bytes.NewReader(body))
	if err != nil {
		return 0, 0, 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	begin := time.Now()
	resp, err := a.client.Do(r)
	if err != nil {
		return 0, 0, 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // none: 0
	return resp.StatusCode, after, time.Since(begin), err
}

// until200 repeats a request while it is refused.
func (a *asker) until200(ctx context.Context, model string, texts []string) error {
	for {
		status, after, _, err := a.ask(ctx, model, texts)
		if err != nil || status == 200 {
			return err
		}
		if after < 1 {
			return fmt.Errorf("%s: status %d without Retry-After", model, status)
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// loaded returns the models, without profiles, that each worker has loaded, as /health of the
// gateway tells.
func (e *Env) loaded() (map[string][]string, error) {
	s, err := e.Cluster.State()
	if err != nil {
		return nil, err
	}
	status, b, err := get(s.Gateways[0].URL + "/health")
	if err != nil || status != 200 {
		return nil, fmt.Errorf("/health: %d, %w", status, err)
	}
	var h struct {
		Workers []struct {
			Name         string   `json:"name"`
			LoadedModels []string `json:"loaded_models"`
		} `json:"workers"`
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, w := range h.Workers {
		out[w.Name] = bases(w.LoadedModels)
	}
	return out, nil
}

// bases returns the ids without their profiles. A profile with the same weights is listed a Ping
// later than the model that was loaded, and is no load.
func bases(ids []string) (out []string) {
	for _, id := range ids {
		if base, _, _ := strings.Cut(id, ":"); !slices.Contains(out, base) {
			out = append(out, base)
		}
	}
	return out
}

// loads counts, over all workers, the loads of the eight models: each model that a worker has.
func loads(by map[string][]string) (n int) {
	for _, models := range by {
		for _, m := range models {
			if slices.Contains(eightModels, m) {
				n++
			}
		}
	}
	return n
}

const placementRequests = 1000

// placement asks for eight models in turn, a thousand times: each is loaded once. Then a worker
// dies, and only its models are loaded again.
func placement(ctx context.Context, e *Env) (Line, error) {
	s, err := e.Cluster.State()
	if err != nil {
		return Line{}, err
	}
	a := newAsker(s.Gateways[0].URL, 8)
	defer a.client.CloseIdleConnections()
	l := Line{Requests: placementRequests}
	e.hit("%d requests for eight models in turn", placementRequests)
	if err := e.inTurn(ctx, a, placementRequests); err != nil {
		return l, err
	}
	before, err := e.loaded()
	if err != nil {
		return l, err
	}
	l.Answered = placementRequests
	e.note("loaded: %v", before)
	if n := loads(before); n != len(eightModels) {
		l.Broken = append(l.Broken, fmt.Sprintf("%d loads of 8 models: %v", n, before))
	}
	victim := rig.Target{Role: rig.Server}
	pid, err := e.Cluster.Signal(victim, syscall.SIGKILL)
	if err != nil {
		return l, err
	}
	e.note("%v is killed", victim)
	if err := e.Cluster.Back(ctx, victim, pid); err != nil {
		return l, err
	}
	if err := e.inTurn(ctx, a, placementRequests/4); err != nil {
		return l, err
	}
	after, err := e.loaded()
	if err != nil {
		return l, err
	}
	e.note("loaded: %v", after)
	for _, w := range s.Workers {
		if w.ID == s.Workers[0].ID {
			continue
		}
		for _, m := range after[w.ID] {
			own := slices.Contains(before[w.ID], m)
			if !own && !slices.Contains(before[s.Workers[0].ID], m) {
				l.Broken = append(l.Broken,
					fmt.Sprintf("worker %s loaded %s, which the dead worker did not have", w.ID, m))
			}
		}
		for _, m := range before[w.ID] {
			if !slices.Contains(after[w.ID], m) {
				l.Broken = append(l.Broken, fmt.Sprintf("worker %s has %s no more; another worker died",
					w.ID, m))
			}
		}
	}
	return l, nil
}

func (e *Env) inTurn(ctx context.Context, a *asker, n int) error {
	for i := range n {
		if err := a.until200(ctx, eightModels[i%len(eightModels)], []string{fmt.Sprintf("turn %d",
			i)}); err != nil {
			return err
		}
	}
	return nil
}

const (
	queuedTexts   = 20_000
	queuedRequest = 200 // texts of one request
	queuedBatch   = 50 * time.Millisecond
	probes        = 100
	// windowBatches is a credit window in device batches, and the batch that runs.
	windowBatches = 2 + 1
	// probeSlack is what two shared cores add to a p99.
	probeSlack = 100 * time.Millisecond
)

// queued measures the p99 of model B alone, and while 20,000 texts for model A are queued. A's
// batches sleep, so what B waits for is known.
func queued(ctx context.Context, e *Env) (Line, error) {
	s, err := e.Cluster.State()
	if err != nil {
		return Line{}, err
	}
	a := newAsker(s.Gateways[0].URL, queuedTexts/queuedRequest+4)
	defer a.client.CloseIdleConnections()
	l := Line{}
	modelA, modelB, err := e.neighbours(ctx, a)
	if err != nil {
		return l, err
	}
	alone, err := e.probe(ctx, a, modelB)
	if err != nil {
		return l, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var flood sync.WaitGroup
	failed := make(chan error, queuedTexts/queuedRequest)
	e.hit("%d texts for %s", queuedTexts, modelA)
	for r := range queuedTexts / queuedRequest {
		flood.Go(func() {
			texts := make([]string, queuedRequest)
			for i := range texts {
				texts[i] = fmt.Sprintf("!sleep=%v text %d of %d", queuedBatch, i, r)
			}
			status, _, _, err := a.ask(ctx, modelA, texts)
			if ctx.Err() == nil && (err != nil || status != 200) {
				failed <- fmt.Errorf("a queued request: status %d, %w", status, err)
			}
		})
	}
	if err := wait(ctx, time.Second); err != nil {
		return l, err
	}
	beside, err := e.probe(ctx, a, modelB)
	e.note("p99 of %s: %v alone, %v beside", modelB, alone, beside)
	stop()
	flood.Wait()
	close(failed)
	for f := range failed {
		err = errors.Join(err, f)
	}
	l.Requests, l.LongestS = 2*probes, beside.Seconds()
	if bound := alone + windowBatches*queuedBatch + probeSlack; beside > bound {
		l.Broken = append(l.Broken,
			fmt.Sprintf("p99 of %s is %v beside the queue and %v alone; at most %v", modelB,
				beside, alone, bound))
	}
	return l, err
}

// neighbours loads the eight models and returns two that one worker has.
func (e *Env) neighbours(ctx context.Context, a *asker) (string, string, error) {
	if err := e.inTurn(ctx, a, len(eightModels)); err != nil {
		return "", "", err
	}
	by, err := e.loaded()
	if err != nil {
		return "", "", err
	}
	for worker, models := range by {
		both := slices.DeleteFunc(models, func(m string) bool { return !slices.Contains(eightModels, m) })
		if len(both) > 1 {
			e.note("%s and %s are on %s", both[0], both[1], worker)
			return both[0], both[1], nil
		}
	}
	return "", "", fmt.Errorf("no worker has two of eight models: %v", by)
}

// probe returns the p99 of single requests, one after the other.
func (e *Env) probe(ctx context.Context, a *asker, model string) (time.Duration, error) {
	var took []time.Duration
	for i := range probes {
		status, _, d, err := a.ask(ctx, model, []string{fmt.Sprintf("probe %d", i)})
		if err != nil || status != 200 {
			return 0, fmt.Errorf("a probe of %s: status %d, %w", model, status, err)
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took[len(took)*99/100-1], nil
}

const (
	overloadSleep = 150 * time.Millisecond // of each batch
	overloadTime  = 15 * time.Second
	overloadTimes = 10
	maxOverload   = 300.0 // requests a second
	keptShare     = 0.95
	// acceptedTime bounds the p99 of what is accepted: below the 30 s of the oldest SDKs.
	acceptedTime = 27 * time.Second
)

// overload asks for ten times what the workers can do: the throughput stays, the rest is refused
// with Retry-After, and who is accepted is answered in time.
func overload(ctx context.Context, e *Env) (Line, error) {
	s, err := e.Cluster.State()
	if err != nil {
		return Line{}, err
	}
	model := eightModels[2]
	a := newAsker(s.Gateways[0].URL, 20_000)
	defer a.client.CloseIdleConnections()
	if err := a.until200(ctx, model, []string{"warm"}); err != nil {
		return Line{}, err
	}
	text := func(i int) []string {
		texts := make([]string, 32)
		for k := range texts {
			texts[k] = fmt.Sprintf("!sleep=%v %d of request %d", overloadSleep, k, i)
		}
		return texts
	}
	peak, err := e.peak(ctx, a, model, text)
	if err != nil {
		return Line{}, err
	}
	perSecond := min(overloadTimes*peak, maxOverload)
	e.hit("peak %.1f requests a second; now %.0f", peak, perSecond)
	var mu sync.Mutex
	var took []time.Duration
	refused, noRetry, bad, inTime := 0, 0, 0, 0
	var all sync.WaitGroup
	begin := time.Now()
	sent := 0
	for ; time.Since(begin) < overloadTime && ctx.Err() == nil; sent++ {
		_ = wait(ctx, time.Until(begin.Add(time.Duration(float64(sent)/perSecond*float64(time.Second)))))
		all.Go(func() {
			status, after, d, err := a.ask(ctx, model, text(sent))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && status == 200:
				took = append(took, d)
				if time.Since(begin) <= overloadTime {
					inTime++
				}
			case err == nil && status == 503 && after >= 1:
				refused++
			case err == nil && status == 503:
				noRetry++
			default:
				bad++
			}
		})
	}
	all.Wait()
	l := Line{Requests: sent, Answered: len(took), Lost: bad, Refused: refused}
	slices.Sort(took)
	if len(took) == 0 {
		return l, errors.New("nothing was answered under overload")
	}
	p99 := took[len(took)*99/100]
	l.LongestS = took[len(took)-1].Seconds()
	kept := float64(inTime) / overloadTime.Seconds() / peak
	e.note("kept %.2f of the peak, p99 of the accepted %v, %d refused", kept, p99, refused)
	for _, x := range []struct {
		broken bool
		what   string
	}{
		{kept < keptShare, fmt.Sprintf("throughput is %.2f of the peak of %.1f a second", kept, peak)},
		{noRetry > 0, fmt.Sprintf("%d refusals without Retry-After", noRetry)},
		{bad > 0, fmt.Sprintf("%d requests ended in another way", bad)},
		{refused == 0, "nothing was refused"},
		{p99 > acceptedTime, fmt.Sprintf("p99 of the accepted is %v, more than %v", p99, acceptedTime)},
	} {
		if x.broken {
			l.Broken = append(l.Broken, x.what)
		}
	}
	return l, nil
}

// peak returns what clients that wait for their answers get, in requests a second.
func (e *Env) peak(
	ctx context.Context, a *asker, model string, text func(int) []string,
) (float64, error) {
	const clients, seconds = 32, 6
	ctx, stop := context.WithTimeout(ctx, seconds*time.Second)
	defer stop()
	var mu sync.Mutex
	n := 0
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := c; ctx.Err() == nil; i += clients {
				status, _, _, err := a.ask(ctx, model, text(-1-i))
				mu.Lock()
				if err == nil && status == 200 {
					n++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if n == 0 {
		return 0, errors.New("nothing was answered while the peak was measured")
	}
	return float64(n) / seconds, nil
}
