package dev

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sie-engine/sie/deploy"
	"github.com/sie-engine/sie/gateway/scale"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/files"
)

const (
	maxTriggers  = 1 << 20 // bytes of a file of triggers
	maxMetrics   = 16 << 20
	autoscaleAll = time.Second // between two looks at what is due
)

// objects returns how each lane is scaled.
func (o *Options) objects() ([]*scale.Object, error) {
	if o.Triggers != "" {
		text, err := files.Read(o.Triggers, maxTriggers)
		if err != nil {
			return nil, fmt.Errorf("--triggers: %w", err)
		}
		all, err := scale.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("--triggers %s: %w", o.Triggers, err)
		}
		for _, x := range all {
			if !slices.Contains(o.Lanes, x.Lane) {
				return nil, fmt.Errorf("--triggers %s: %s is of lane %s, which --lanes does not have",
					o.Triggers, x.Name, x.Lane)
			}
		}
		return all, nil
	}
	var all []string
	for _, l := range o.Lanes {
		all = append(all, strings.NewReplacer("LANE_POOL", l.Pool, "LANE_PROFILE", l.Profile,
			"LANE_BUNDLE", l.Bundle, "MAX", strconv.Itoa(max(o.Workers, 1))).Replace(deploy.Triggers))
	}
	return scale.Parse([]byte(strings.Join(all, "\n---\n")))
}

// autoscaler scales the lanes of a cluster.
type autoscaler struct {
	c       *Cluster
	samples scale.Samples
	lanes   []*scaledLane
	silent  []bool         // by gateway: the metrics that were asked for last did not come
	under   sync.WaitGroup // what changes
}

// scaledLane is one lane. busy has an element while its workers do not change.
type scaledLane struct {
	object *scale.Object
	scaler *scale.Scaler
	due    time.Time
	failed bool // the last look, which was told
	busy   chan struct{}
}

// autoscale starts and stops workers as their lanes' triggers say, until ctx ends and what it has
// begun is done.
func (c *Cluster) autoscale(ctx context.Context, objects []*scale.Object) {
	a := &autoscaler{c: c}
	for _, o := range objects {
		l := &scaledLane{object: o, scaler: scale.New(o), busy: make(chan struct{}, 1)}
		l.busy <- struct{}{}
		a.lanes = append(a.lanes, l)
	}
	tick := time.NewTicker(autoscaleAll)
	defer tick.Stop()
	defer a.under.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			a.look(ctx, now)
		}
	}
}

// look decides for the lanes that are due.
func (a *autoscaler) look(ctx context.Context, now time.Time) {
	scraped := false
	for _, l := range a.lanes {
		if now.Before(l.due) {
			continue
		}
		if !scraped {
			scraped = true
			a.scrape(ctx, now, a.c.State().Gateways)
		}
		l.due = now.Add(l.object.Polling - autoscaleAll/2)
		values := a.samples.Values(l.object, now)
		a.tell(l, values)
		have := len(a.c.inLane(l.object.Lane))
		want := min(l.scaler.Decide(values, have, now), MaxWorkers)
		if want == have {
			continue
		}
		select {
		case <-l.busy:
		default:
			continue // it changes
		}
		a.c.o.Log.Info("scaling", "lane", l.object.Lane.String(), "from", have, "to", want)
		a.under.Go(func() {
			defer func() { l.busy <- struct{}{} }()
			if err := a.c.scaleLane(ctx, l.object.Lane, want); err != nil && ctx.Err() == nil {
				a.c.o.Log.Warn("a lane could not be scaled", "lane", l.object.Lane.String(), "error", err)
			}
		})
	}
}

// tell logs the first of a row of failures.
func (a *autoscaler) tell(l *scaledLane, values []scale.Value) {
	var all []error
	for i, v := range values {
		if v.Err != nil {
			all = append(all, fmt.Errorf("%s: %w", l.object.Triggers[i].Query, v.Err))
		}
	}
	if len(all) > 0 && !l.failed {
		a.c.o.Log.Warn("triggers give no value", "lane", l.object.Lane.String(), "error", errors.Join(all...))
	}
	l.failed = len(all) > 0
}

// scrape reads the metrics of all gateways, which are the same ones each time. One that does not
// answer has none; the first of its failures in a row is told.
func (a *autoscaler) scrape(ctx context.Context, now time.Time, all []GatewayState) {
	a.silent = append(a.silent, make([]bool, max(len(all)-len(a.silent), 0))...)
	for i, g := range all {
		text, err := fetch(ctx, g.MetricsURL)
		if err == nil {
			err = a.samples.Add(g.URL, text, now)
		}
		if err != nil && ctx.Err() == nil && !a.silent[i] {
			a.c.o.Log.Warn("the metrics of a gateway cannot be read", "gateway", i, "error", err)
		}
		a.silent[i] = err != nil
	}
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := prober.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d", url, answer.StatusCode)
	}
	text, err := files.ReadAll(answer.Body, maxMetrics)
	if err != nil {
		err = fmt.Errorf("%s: %w", url, err)
	}
	return text, err
}

// inLane returns the workers of a lane, by index.
func (c *Cluster) inLane(l bus.Lane) []*worker {
	return slices.DeleteFunc(c.snapshot(), func(w *worker) bool { return w.lane != l })
}

// scaleLane makes the number of a lane's workers n. Of those that go, the last came last, and each
// drains first. New ones are ready when it returns.
func (c *Cluster) scaleLane(ctx context.Context, l bus.Lane, n int) (err error) {
	defer c.keeper.flush()
	have := c.inLane(l)
	var leaving sync.WaitGroup
	for _, w := range have[min(n, len(have)):] {
		leaving.Go(func() { c.remove(w) })
	}
	leaving.Wait()
	var added []*worker
	var short error // why there are fewer than n
	for range n - len(have) {
		w, err := c.addFree(l)
		if err != nil {
			short = err
			break // what could be added stays; the next look tries again
		}
		added = append(added, w)
	}
	for _, w := range added {
		if err = c.ready(ctx, Server, w.server); err == nil {
			if err = c.addSidecar(w); err == nil {
				err = c.ready(ctx, Sidecar, w.sidecar)
			}
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		for _, w := range added {
			c.remove(w)
		}
	}
	return errors.Join(err, short)
}

var errNoIndex = fmt.Errorf("there are %d workers, as many as may be", MaxWorkers)

// addFree starts a server of a lane at the first free index.
func (c *Cluster) addFree(l bus.Lane) (*worker, error) {
	c.adding.Lock()
	defer c.adding.Unlock()
	for i := range MaxWorkers {
		if !slices.ContainsFunc(c.snapshot(), func(w *worker) bool { return w.index == i }) {
			return c.addServer(i, l)
		}
	}
	return nil, errNoIndex
}
