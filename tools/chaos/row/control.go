package row

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/tools/chaos/load"
	"github.com/sie-engine/sie/tools/chaos/rig"
)

// configName begins the name with which sie-config connects to the broker.
const configName = "sie-config"

// controlRows hurt what says which models and which workers there are, under the load of the data
// path.
func controlRows() []Row {
	// Who serves does not need sie-config: nobody may notice.
	unseen := Demand{Only200: true, FullRate: fullRate}
	rows := processRows(R1, rig.Target{Role: rig.Config}, unseen)
	for i := range rows {
		rows[i].Fault = whileAdding(rows[i].Fault)
		rows[i].Short = rows[i].Name == "config/kill9"
		rows[i].Demand = unseen
	}
	return append(rows,
		Row{Name: "pools/lost", Topology: R1, Demand: Demand{FullRate: fullRate}, Fault: losePools},
		Row{Name: "scale/zero", Topology: R1, Short: true, Demand: Demand{FullRate: fullRate},
			Fault: scaleZero},
		Row{Name: "partition/config", Topology: Behind, Demand: unseen,
			Fault: whileAdding(weather(configName, rig.Weather{Cut: true}, partitionTime))},
		Row{Name: "scale/auto", Topology: Auto, Alone: scaleAuto})
}

// scaleZero takes all workers away and gives more than before, twice, by command.
func scaleZero(ctx context.Context, e *Env) error {
	pause := 3 * time.Second
	if e.Short {
		pause = time.Second
	}
	for _, n := range []int{0, 4, 0, e.Cluster.Workers} {
		e.hit("scale to %d workers", n)
		if err := e.Cluster.Scale(ctx, n); err != nil {
			return err
		}
		e.note("there are %d workers", n)
		if n != e.Cluster.Workers {
			if err := wait(ctx, pause); err != nil {
				return err
			}
		}
	}
	return nil
}

// chaosPool is the pool of the row pools/lost.
const chaosPool = "chaos"

// losePools deletes the bucket of clients' pools while a pool has a worker and requests. The
// gateways put it back, and the pool keeps its worker.
func losePools(ctx context.Context, e *Env) error {
	state, err := e.Cluster.State()
	if err != nil {
		return err
	}
	a := &adder{env: e}
	a.client.Timeout = 20 * time.Second
	defer a.client.CloseIdleConnections()
	for _, g := range state.Gateways {
		a.gateways = append(a.gateways, g.URL)
	}
	had, err := e.hasStream(ctx, bus.PoolsStream)
	if err != nil {
		return err
	}
	status, answer, err := a.ask(ctx, "POST", a.gateways[0]+"/v1/pools", "", map[string]any{"name": chaosPool,
		"gpus": map[string]int{state.Workers[0].Profile: 1}})
	if err != nil || status != 201 {
		return fmt.Errorf("make a pool: %d %.300s (%w)", status, answer, err)
	}
	worker, err := a.poolWorker(ctx, "")
	if err != nil {
		return err
	}
	e.note("the pool has %s", worker)
	ended, asked := make(chan struct{}), make(chan error, 1)
	go func() { asked <- a.inPool(ctx, ended) }()
	for range 2 {
		e.hit("the bucket of pools is deleted")
		err = e.jetStream(ctx, func(ctx context.Context, js jetstream.JetStream) error {
			return js.DeleteStream(ctx, bus.PoolsStream)
		})
		if err == nil {
			err = wait(ctx, 3*time.Second)
		}
		if err != nil {
			break
		}
		if _, err = a.poolWorker(ctx, worker); err != nil {
			break
		}
		e.note("the pool is there with its worker")
	}
	close(ended)
	if err = errors.Join(err, <-asked); err != nil {
		return err
	}
	status, answer, err = a.ask(ctx, "DELETE", a.gateways[1]+"/v1/pools/"+chaosPool, "", nil)
	if err != nil || status != 200 {
		return fmt.Errorf("delete the pool: %d %.300s (%w)", status, answer, err)
	}
	e.note("the pool is deleted")
	if !had {
		e.held.Streams++ // the bucket, which stays
	}
	return e.dropStream(ctx, bus.StreamName(chaosPool))
}

// dropStream removes the work stream of a pool that is gone, once it is empty: the gateways would
// after a minute and a half.
func (e *Env) dropStream(ctx context.Context, name string) error {
	return e.jetStream(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		for {
			s, err := js.Stream(ctx, name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("stream %s: %w", name, err)
			}
			if s.CachedInfo().State.Msgs == 0 {
				return js.DeleteStream(ctx, name)
			}
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return fmt.Errorf("stream %s still has work: %w", name, err)
			}
		}
	})
}

// hasStream reports whether the broker has a stream.
func (e *Env) hasStream(ctx context.Context, name string) (there bool, err error) {
	err = e.jetStream(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		there = err == nil
		return err
	})
	return there, err
}

// poolWorker waits until every gateway shows the pool with one worker, which is want unless that is
// "", and returns it.
func (a *adder) poolWorker(ctx context.Context, want string) (string, error) {
	begin := time.Now()
	for _, g := range a.gateways {
		for {
			status, answer, err := a.ask(ctx, "GET", g+"/v1/pools/"+chaosPool, "", nil)
			if err != nil {
				return "", err
			}
			var p struct {
				Status struct {
					State    string
					Assigned []struct{ Name string } `json:"assigned_workers"`
				}
			}
			if status == 200 && json.Unmarshal(answer, &p) == nil && p.Status.State == "active" {
				got := p.Status.Assigned[0].Name
				if want == "" {
					want = got
				}
				if got != want {
					a.env.breaks("the pool has %s at %s, and had %s", got, g, want)
				}
				break
			}
			if time.Since(begin) > warmTime {
				return "", fmt.Errorf("%s shows the pool after %v: %d %.300s", g, warmTime, status, answer)
			}
			if err := wait(ctx, 50*time.Millisecond); err != nil {
				return "", err
			}
		}
	}
	return want, nil
}

// inPool sends requests to the pool until ended is closed. Each is answered, right or with a
// refusal that may be tried again.
func (a *adder) inPool(ctx context.Context, ended <-chan struct{}) error {
	model := a.env.Models.Encode[0]
	right, refused := 0, 0
	for n := 0; ; n++ {
		text := fmt.Sprintf("pooled %d", n)
		status, answer, err := a.ask(ctx, "POST", a.gateways[n%len(a.gateways)]+"/v1/encode/"+model, "",
			map[string]any{"items": []any{map[string]any{"text": text}}}, "X-SIE-Pool", chaosPool)
		if err != nil {
			return err
		}
		switch status {
		case 200:
			right++
			if !a.isVector(answer, model, text) {
				a.env.breaks("in the pool: a wrong vector: %.200s", answer)
			}
		case 202, 503:
			refused++
		default:
			a.env.breaks("in the pool: request %d: %d %.300s", n, status, answer)
		}
		select {
		case <-ended:
			a.env.note("in the pool: %d right, %d refused", right, refused)
			if right < 10 {
				a.env.breaks("in the pool: %d right, %d refused", right, refused)
			}
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// triggers scale the lane of topology Auto: one worker for who waits, and one for each 8 requests a
// second of more than 15.
const triggers = `apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: default
  labels:
    sie.superlinked.com/pool: default
    sie.superlinked.com/machine-profile: cpu
    sie.superlinked.com/bundle: default
spec:
  pollingInterval: 1
  cooldownPeriod: 3
  minReplicaCount: 0
  maxReplicaCount: 4
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleDown:
          stabilizationWindowSeconds: 3
  triggers:
    - type: prometheus
      metadata:
        query: max(sie_gateway_pending_demand{pool="default",machine_profile="cpu",bundle="default"})
        threshold: "1"
        activationThreshold: "0"
    - type: prometheus
      metadata:
        query: sum(rate(sie_gateway_requests_total{machine_profile="cpu",status="200"}[10s])) or vector(0)
        threshold: "8"
        activationThreshold: "15"
`

// writeTriggers writes them into a file of dir.
func writeTriggers(dir string) (string, error) {
	path := filepath.Join(dir, "triggers.yaml")
	return path, os.WriteFile(path, []byte(triggers), 0o600)
}

// scaleTime bounds the time until the number of workers is another one.
const scaleTime = 90 * time.Second

// scaleAuto sends load to a cluster without workers until it has four, and less load until it has
// none: those that come then start one again.
func scaleAuto(ctx context.Context, e *Env) (l Line, err error) {
	if err := e.workersAre(ctx, 0); err != nil {
		return l, err
	}
	p, err := e.plan("scale-auto", false)
	if err != nil {
		return l, err
	}
	few := p
	few.Name, few.Seed, few.RawRate, few.SDKRate, few.SDKs = p.Name+"-few", p.Seed+1000, 3, 0, nil
	work, err := load.Start(p)
	if err != nil {
		return l, err
	}
	e.hit("load on no workers")
	err = e.workersAre(ctx, 4)
	e.Window.Back = time.Now()
	if err == nil {
		err = wait(ctx, fullRate+tailTime)
	}
	records, stopErr := work.Stop()
	if err = errors.Join(err, stopErr); err != nil {
		return l, err
	}
	less, err := load.Start(few)
	if err != nil {
		return l, err
	}
	e.note("a sixteenth of the load")
	err = e.workersAre(ctx, 0)
	if err == nil {
		err = wait(ctx, 2*tailTime) // somebody finds no worker
	}
	more, stopErr := less.Stop()
	l = Judge("scale/auto", Demand{FullRate: fullRate}, e.Window, leastSteady*rawRate,
		slices.Concat(records, more))
	if l.Refused == 0 {
		e.breaks("nobody was refused: there were workers all the time")
	}
	return l, errors.Join(err, stopErr)
}

// workersAre waits until the cluster has so many workers, all of them ready.
func (e *Env) workersAre(ctx context.Context, n int) error {
	begin := time.Now()
	for {
		s, err := e.Cluster.State()
		if err == nil && len(s.Workers) == n {
			ready := true
			for i := range s.Workers {
				ready = ready && s.Probe(rig.Target{Role: rig.Sidecar, Index: i}) == nil
			}
			if ready {
				e.note("there are %d workers", n)
				return nil
			}
		}
		if time.Since(begin) > scaleTime {
			return fmt.Errorf("after %v there are %d workers, not %d", scaleTime, len(s.Workers), n)
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
