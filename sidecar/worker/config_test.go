package worker

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/control"
	"github.com/sie-engine/sie/sidecar/rank"
)

// simConfig is a sie-config, and what others have of it.
type simConfig struct {
	truth   *control.Export
	changed map[string]time.Time // when a model was changed last
	gateway *control.Export      // what it has
	server  *control.Export      // nil: what its files say, the first of simModels
	refuses map[string]bool      // ids that run under another configuration than their own
}

// serves reports whether the server has a model.
func (c *simConfig) serves(model string) bool {
	if c.server == nil {
		return model == simModels[0]
	}
	return c.server.ModelHash(model) != ""
}

// fileHash is that of a model in the server's files.
const fileHash = "of files"

func newConfigSim(t *testing.T, seed uint64) *sim {
	s := newSim(t, seed)
	s.config = &simConfig{changed: map[string]time.Time{}, refuses: map[string]bool{},
		truth: &control.Export{Epoch: 1, Hashes: map[string]string{}, Documents: map[string]string{}}}
	for _, m := range simModels {
		s.config.truth.Hashes[m], s.config.truth.Documents[m] = fileHash, fileHash
	}
	s.config.gateway = s.config.truth
	s.c.config.follows = true
	return s
}

// change changes a model in sie-config; "" removes it. Half of the changes are in what the config
// hash leaves out. Everybody learns of it later.
func (s *sim) change(model, hash string) {
	c := s.config
	next := &control.Export{Epoch: c.truth.Epoch + 1, Hashes: maps.Clone(c.truth.Hashes),
		Documents: maps.Clone(c.truth.Documents)}
	if hash == "" {
		delete(next.Hashes, model)
		delete(next.Documents, model)
	} else {
		if next.Documents[model] = hash; next.Hashes[model] == "" || s.r.IntN(2) == 0 {
			next.Hashes[model] = hash
		}
	}
	c.truth, c.changed[model] = next, s.now
	s.later(func() { c.gateway = c.truth })
	if s.r.IntN(2) == 0 { // else the delta is lost
		s.askConfig()
	}
}

func (s *sim) askConfig() {
	s.stats["asked"]++
	s.later(func() {
		if s.r.IntN(4) > 0 { // else sie-config is away
			s.c.read(s.config.truth, s.now)
		}
	})
}

func (s *sim) give(e *control.Export) {
	epoch := s.epoch
	s.later(func() {
		switch {
		case epoch != s.epoch || !s.conn:
			s.c.gave(e, nil, errs.Internal(errPayload))
		case s.r.IntN(5) == 0:
			s.c.gave(e, nil, errs.Invalid("models", "the server does not like them"))
		default:
			before := s.config.server
			s.config.server = e
			for _, m := range simModels {
				if before == nil || before.DocumentHash(m) != e.DocumentHash(m) {
					s.unload(m)
				}
			}
			hash := strconv.FormatUint(e.Epoch, 10)
			s.c.gave(e, &ipc.ConfigResponse{Applied: true, BundleConfigHash: hash}, nil)
			s.stats["given"]++
		}
	})
}

func (s *sim) unload(model string) {
	for i, m := range s.loaded {
		if m == model {
			s.loaded = append(s.loaded[:i:i], s.loaded[i+1:]...)
			return
		}
	}
}

// configured notes which slices the server gives back, because they are of another configuration
// than it has. The core sends none of which it knows that.
func (s *sim) configured(r *ipc.RunBatchRequest) {
	if s.config == nil {
		return
	}
	for _, i := range r.Items {
		it := &s.c.slices[i.WorkItemID].item
		if known := s.c.config.given; known != nil && known.DocumentHash(r.ModelID) != it.ModelDocumentHash {
			s.failf("%s is of the document %q, and the server has %q", i.WorkItemID, it.ModelDocumentHash,
				known.DocumentHash(r.ModelID))
		}
		hash := fileHash
		if s.config.server != nil {
			hash = s.config.server.DocumentHash(r.ModelID)
		}
		s.config.refuses[i.WorkItemID] = hash != it.ModelDocumentHash || !s.config.serves(r.ModelID)
	}
}

// judge says when an answer is wrong: of a model that is there, or of one that was not changed.
func (s *sim) judge(it *work.Item, r *work.Result) {
	c := s.config
	if c == nil || r.Success {
		return
	}
	published := time.UnixMicro(int64(it.Timestamp * 1e6))
	changed := c.changed[it.ModelID].After(published.Add(-time.Millisecond)) ||
		c.truth.DocumentHash(it.ModelID) != it.ModelDocumentHash
	switch {
	case r.ErrorCode == string(errs.ModelNotFound):
		s.stats["not found"]++
		if !changed {
			s.failf("%s: model %s is not found, and there", it.WorkItemID, it.ModelID)
		}
	case strings.Contains(r.Error, "configuration of model"):
		if !changed {
			s.failf("%s: model %s was not changed: %s", it.WorkItemID, it.ModelID, r.Error)
		}
		s.stats["stale"]++
	}
}

// Models come, change and go while work for them runs, deltas are lost, sie-config and the server
// are away at times: nobody is told that a model is missing that is there, nothing runs under a
// configuration that is known to be another than its own, and in the end the server has what
// sie-config has.
func TestRandomConfigurations(t *testing.T) {
	total := map[string]int{}
	for seed := range uint64(100) {
		s := newConfigSim(t, 3000+seed)
		s.connectServer()
		s.connectBroker()
		for i := range 600 {
			s.c.now = s.now
			switch n := s.r.IntN(60); {
			case n < 2:
				s.change(simModels[s.r.IntN(len(simModels))], "hash "+strconv.Itoa(i))
			case n == 2:
				s.change(simModels[s.r.IntN(len(simModels))], "")
			case n == 3:
				s.askConfig()
			}
			s.step()
		}
		s.settle()
		for range 100 { // a poll, and what it leads to
			s.askConfig()
			s.advanceAll()
		}
		if s.config.server != s.config.truth {
			s.failf("the server has %+v, sie-config %+v", s.config.server, s.config.truth)
		}
		s.kill()
		for range 100 { // it is given again what was read before
			s.advanceAll()
		}
		if s.config.server != s.config.truth {
			s.failf("another server has %+v", s.config.server)
		}
		if len(s.c.config.held) > 0 {
			s.failf("%d slices are held", len(s.c.config.held))
		}
		for k, v := range s.stats {
			total[k] += v
		}
	}
	t.Log(total)
	for _, what := range []string{"given", "stale", "unknown", "config_stale ",
		"given_back config_behind", "outcomes publish_and_ack"} {
		if total[what] == 0 {
			t.Errorf("%s never happened: %v", what, total)
		}
	}
}

// advanceAll lets everything that is on its way happen.
func (s *sim) advanceAll() {
	if !s.conn {
		s.connectServer()
	}
	p := s.ping()
	s.c.pong(&p)
	todo := s.todo
	s.todo = nil
	for _, f := range todo {
		f()
	}
	s.tick(100 * time.Millisecond)
}

// What the server can never run is told in heartbeats, is left to workers that may run it, and is
// tried where there are none.
func TestUnsupportedModelsAreLeftToOthers(t *testing.T) {
	s := newConfigSim(t, 1)
	s.connectServer()
	s.connectBroker()
	c, id := s.c, simModels[0]
	c.now = c.now.Add(discoverFor + time.Second)
	gave := func(unsupported ...string) {
		e := &control.Export{Epoch: 2}
		c.gave(e, &ipc.ConfigResponse{Applied: true, UnsupportedModels: unsupported}, nil)
	}
	gave("org/z", "org/y", id, "org/y")
	want := slices.Sorted(slices.Values([]string{"org/y", "org/z", id}))
	if got := c.heartbeat(false).UnsupportedModels; !slices.Equal(got, want) || !c.beat.soon {
		t.Errorf("told %v, want %v, soon %v", got, want, c.beat.soon)
	}
	q := c.follow(bus.Token(id))
	q.primary, q.demanded = id, c.now
	role := func(unsupported bool) rank.Action {
		c.decide()
		if unsupported != c.leaves(id) {
			t.Errorf("it leaves the model to others: %v", !unsupported)
		}
		return q.role
	}
	if got := role(false); got != rank.Load {
		t.Errorf("alone it does %v", got)
	}
	delete(c.models, id)
	other := &bus.WorkerHeartbeat{Ready: true, PoolName: c.lane.Pool, MachineProfile: c.lane.Profile,
		Bundle: c.lane.Bundle}
	for i := 0; ; i++ { // a worker that comes after this one
		other.Name = strconv.Itoa(i)
		c.peers.Heartbeat(c.now, other)
		if a, _ := c.peers.Decide(id, rank.Own{Ready: true}); a == rank.Load {
			break
		}
		other.Terminated = true
		c.peers.Heartbeat(c.now, other)
		other.Terminated = false
	}
	if got := role(true); got != rank.Nothing {
		t.Errorf("beside a worker that may run it, it does %v", got)
	}
	other.UnsupportedModels = []string{id}
	c.peers.Heartbeat(c.now, other)
	if got := role(false); got != rank.Load {
		t.Errorf("beside a worker that cannot run it either, it does %v", got)
	}
	var many []string
	for i := range bus.MaxHeartbeatModels + 5 {
		many = append(many, strconv.Itoa(i))
	}
	gave(many...)
	if got := len(c.heartbeat(false).UnsupportedModels); got != bus.MaxHeartbeatModels {
		t.Errorf("it tells %d models; more than %d mean that it runs none", got, bus.MaxHeartbeatModels)
	}
	c.forgotten()
	if got := c.heartbeat(false).UnsupportedModels; len(got) > 0 {
		t.Errorf("another server process: %v", got)
	}
}

// A slice that waits for its configuration once more, when it was read already, keeps its size.
func TestASliceKeepsItsSizeWhileItIsHeld(t *testing.T) {
	s := connected(t)
	c, id := s.c, simModels[0]
	gave := func(hash string) {
		e := &control.Export{Epoch: 2, Hashes: map[string]string{id: hash}}
		c.gave(e, &ipc.ConfigResponse{Applied: true}, nil)
		c.release()
	}
	gave("a")
	m := s.delivers(id, true, func(it *work.Item) {
		it.ModelConfigHash = "a"
		it.Items = []msgp.Raw{msgp.AppendString(nil, strings.Repeat("t", 4000))}
	})
	x := c.slices[m.id]
	bytes, tokens, size := x.bytes, x.tokens, x.model.size
	if x.state != queued || bytes < 4000 || x.model.tokens != tokens {
		t.Fatalf("%+v", x)
	}
	if gave("b"); x.state != held || x.model.tokens != 0 {
		t.Fatalf("of another configuration: %+v", x)
	}
	gave("a")
	if x.state != queued || x.bytes != bytes || x.tokens != tokens || x.model.tokens != tokens ||
		x.model.size != size {
		t.Errorf("%d bytes and %d tokens of %d and %d; a slice has %v tokens, was %v", x.bytes, x.tokens,
			bytes, tokens, x.model.size, size)
	}
}
