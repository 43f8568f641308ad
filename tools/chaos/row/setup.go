package row

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sie-engine/sie/tools/chaos/load"
	"github.com/sie-engine/sie/tools/chaos/rig"
)

// Config says with what rows are run.
type Config struct {
	Binary string // sie-gateway, beside the other programs
	Dir    string // for state, logs and temporary files
	Venv   string // of the SDKs; "": raw clients only
	Known  load.Known
	Models load.Models
	Short  bool
	Log    io.Writer // what the cluster says
}

// Setup is a cluster of one topology, with what its rows need.
type Setup struct {
	Config
	Topology string
	Cluster  *rig.Cluster
	Nodes    *rig.Nodes // nil for R1
	SDKs     []*load.SDK
	// Spoiled says that the last row left the cluster in disorder: no other row may use it.
	Spoiled bool

	held rig.Held // at rest, before the first row
	rows int
}

// streamBytes bounds a work stream, so that it is soon full.
const streamBytes = "33554432"

// Up starts the cluster of a topology and warms it up.
func Up(ctx context.Context, c Config, topology string) (s *Setup, err error) {
	s = &Setup{Config: c, Topology: topology}
	s.Dir = filepath.Join(c.Dir, topology)
	opened := s // where an error is returned, s is nil
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.Down())
		}
	}()
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	o := rig.Options{
		Binary: c.Binary, Dir: filepath.Join(s.Dir, "cluster"), Workers: 2, Gateways: 2, Log: c.Log,
		Nodes: 1, Storage: "memory",
	}
	o.Models = slices.Clone(c.Models.Encode)
	if c.Models.Score != "" {
		o.Models = append(o.Models, c.Models.Score)
	}
	if c.Models.Extract != "" {
		m, err := writeExtractor(s.Dir)
		if err != nil {
			return nil, err
		}
		o.Models = append(o.Models, m)
	}
	nodes, disk := 0, rig.Disk{}
	switch topology {
	case Behind:
		nodes = 1
	case R3:
		nodes = 3
	case R3File:
		nodes, disk.Tmpfs, o.Storage = 3, "96m", "file"
	case R3Disk:
		nodes, disk.Sync, o.Storage = 3, true, "file"
	case Ahead, After:
		o.Env = []string{"SIE_TEST_CLOCK_OFFSET=" + clockOffset[topology]}
	case Auto:
		o.Workers = 4
		if o.Autoscale, err = writeTriggers(s.Dir); err != nil {
			return nil, err
		}
	case Four:
		o.Workers, o.Gateways = 4, 1
		// A device batch is one slice of 32 short texts, so what the workers can do is known.
		o.Env = []string{"SIE_MAX_BATCH_TOKENS=384"}
		o.Models = append(o.Models, eightModels...)
	}
	o.Env = append(o.Env, "SIE_STREAM_MAX_BYTES="+streamBytes)
	if nodes > 0 {
		if s.Nodes, err = rig.StartNodes(ctx, s.Dir, nodes, disk); err != nil {
			return nil, err
		}
		o.NATSURL, o.Nodes = s.Nodes.URL(), nodes
	}
	if s.Cluster, err = rig.StartCluster(ctx, o); err != nil {
		return nil, err
	}
	if c.Venv != "" && topology != Four {
		for _, v := range load.Versions {
			sdk, err := load.StartSDK(c.Venv, v, sdkCalls, c.Log)
			if err != nil {
				return nil, err
			}
			s.SDKs = append(s.SDKs, sdk)
		}
	}
	if err := s.warm(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Down ends everything and returns what did not end as it should.
func (s *Setup) Down() error {
	var all []error
	for _, sdk := range s.SDKs {
		all = append(all, sdk.Close())
	}
	if s.Cluster != nil {
		all = append(all, s.Cluster.Stop())
	}
	if s.Nodes != nil {
		all = append(all, s.Nodes.Stop())
	}
	return errors.Join(all...)
}

// Broker returns a URL of NATS, past any proxy.
func (s *Setup) Broker() string {
	if s.Nodes != nil {
		return s.Nodes.Direct()
	}
	return s.Cluster.Broker()
}

// The load of a row: half of it raw, half of it SDKs.
const (
	rawClients = 16
	rawRate    = 24.0
	sdkCalls   = 4 // at once, of each SDK
	sdkRate    = 24.0
)

// plan returns the steady load of a row.
func (s *Setup) plan(name string, follow bool) (load.Plan, error) {
	state, err := s.Cluster.State()
	if err != nil {
		return load.Plan{}, err
	}
	s.rows++
	p := load.Plan{
		Name: fmt.Sprintf("%s-%d-%s", s.Topology, s.rows, strings.ReplaceAll(name, "/", "-")),
		Seed: uint64(s.rows), Models: s.Models, Known: s.Known, FollowReady: follow,
		Raw: rawClients, RawRate: rawRate, SDKs: s.SDKs, Calls: sdkCalls, SDKRate: sdkRate,
	}
	for _, g := range state.Gateways {
		p.Gateways = append(p.Gateways, g.URL)
	}
	return p, nil
}

// warmTime bounds the time until a new cluster answers everything.
const warmTime = 60 * time.Second

// warm sends load until no request has been refused for two seconds, and takes what the cluster
// holds at rest.
func (s *Setup) warm(ctx context.Context) error {
	p, err := s.plan("warm", false)
	if err != nil {
		return err
	}
	l, err := load.Start(p)
	if err != nil {
		return err
	}
	begin, bad := time.Now(), time.Now()
	seen := 0
	var last load.Record
	for time.Since(bad) < 2*time.Second && time.Since(begin) < warmTime {
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			break
		}
		more := l.Records(seen)
		seen += len(more)
		for _, r := range more {
			if r.Verdict != load.OK {
				bad, last = time.Now(), r
			}
		}
	}
	if _, err := l.Stop(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if time.Since(begin) >= warmTime {
		return fmt.Errorf("after %v the new cluster still refuses: %s %s: %s", warmTime, last.ID,
			last.Verdict,
			last.Why)
	}
	return s.rest(ctx)
}

// restTime is how long a cluster's streams and consumers must stay the same to be at rest.
const restTime = 1500 * time.Millisecond

// rest waits until the cluster is at rest, and takes what it holds then.
func (s *Setup) rest(ctx context.Context) error {
	for begin, same := time.Now(), time.Now(); ; {
		h, err := s.Cluster.Take(ctx, s.Broker())
		if err != nil || h.Messages > 0 || h.Streams != s.held.Streams || h.Consumers != s.held.Consumers {
			same = time.Now()
		}
		s.held = h
		if time.Since(same) > restTime {
			return nil
		}
		if time.Since(begin) > settleTime {
			return fmt.Errorf("the new cluster does not come to rest: %d streams, %d consumers, %d messages (%w)",
				h.Streams, h.Consumers, h.Messages, err)
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// settleTime bounds the time until a cluster at rest holds no more than before.
const settleTime = 30 * time.Second

// settle waits until the cluster holds no more than before, and returns what it holds.
func (s *Setup) settle(ctx context.Context, before rig.Held) (rig.Held, error) {
	for begin := time.Now(); ; {
		h, err := s.Cluster.Take(ctx, s.Broker())
		if err == nil {
			grown := h.Grown(&before)
			if len(grown) == 0 {
				return h, nil
			}
			err = errors.New("not returned to its start: " + strings.Join(grown, "; "))
		}
		if time.Since(begin) > settleTime {
			return h, err
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return h, err
		}
	}
}

// get asks a page and returns its status and the beginning of its body.
func get(url string) (int, []byte, error) {
	c := http.Client{Timeout: 5 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, b, err
}
