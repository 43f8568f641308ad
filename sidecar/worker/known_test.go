package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/rank"
)

// beatSim is a sim that keeps the last heartbeat.
type beatSim struct {
	*sim
	last  *bus.WorkerHeartbeat
	beats int
}

func (s *beatSim) heartbeat(h *bus.WorkerHeartbeat) { s.last, s.beats = h, s.beats+1 }

// newBeatSim returns a core that is connected to a broker without consumers, and to a server that
// has models loaded. What the core asked for has been answered.
func newBeatSim(t *testing.T, models ...string) *beatSim {
	s := &beatSim{sim: newSim(t, 1)}
	s.c.do = s
	s.loaded = models
	s.connectBroker()
	s.connectServer()
	for range 20 { // other workers are known by then
		s.advance(minBeat)
	}
	return s
}

// advance lets everything that is on its way happen, and then time pass.
func (s *beatSim) advance(d time.Duration) {
	for len(s.todo) > 0 {
		todo := s.todo
		s.todo = nil
		for _, f := range todo {
			f()
		}
	}
	p := s.ping()
	s.c.pong(&p)
	s.now = s.now.Add(d)
	s.c.now, s.c.scan = s.now, true
	s.c.tick()
}

func names(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("org/m-%03d", i))
	}
	return ids
}

// A model that is loaded and that nobody asks for has no consumer and no pull, and costs no event
// anything. It is told in heartbeats, and pulled for as soon as somebody wants it.
func TestModelsThatNobodyWants(t *testing.T) {
	ids := names(300)
	s := newBeatSim(t, ids...)
	if len(s.c.queues) != 0 || len(s.pulls) != 0 {
		t.Errorf("%d queues and %d pulls of models that nobody wants", len(s.c.queues), len(s.pulls))
	}
	if !slices.Equal(s.last.LoadedModels, ids) {
		t.Errorf("the heartbeat tells %d loaded models", len(s.last.LoadedModels))
	}
	if len(s.last.Pending) != 0 {
		t.Errorf("the heartbeat tells of the work of %d models without any", len(s.last.Pending))
	}
	s.c.scan = false
	if n := testing.AllocsPerRun(100, s.c.tick); n > 0 {
		t.Errorf("a look after an event makes %v objects", n)
	}
	s.c.demand(lane.DemandSubject(ids[7]))
	s.c.tick()
	q := s.c.queues[bus.Token(ids[7])]
	if q == nil || q.role != rank.Pull || q.pulls == nil || q.pulls.Waiting() == 0 {
		t.Errorf("the queue of a model that is wanted: %+v", q)
	}
	if len(s.c.queues) != 1 {
		t.Errorf("%d queues", len(s.c.queues))
	}
}

// Models of which the server has more than a heartbeat may list are not followed without end.
func TestModelsOfAServerAreBounded(t *testing.T) {
	s := newBeatSim(t, names(bus.MaxHeartbeatModels+1)...)
	if n := len(s.c.models); n != bus.MaxHeartbeatModels {
		t.Errorf("%d models are known", n)
	}
}

// A change is told at once, and many changes together: no sooner than minBeat after the heartbeat
// before.
func TestHeartbeatsOfManyChanges(t *testing.T) {
	s := newBeatSim(t)
	s.c.beat.soon = true
	s.c.tick()
	s.beats = 0
	for _, id := range names(100) {
		s.c.demand(lane.DemandSubject(id))
	}
	s.c.tick()
	if s.beats != 0 {
		t.Errorf("%d heartbeats at the time of the one before", s.beats)
	}
	s.now = s.now.Add(minBeat)
	s.c.now = s.now
	s.c.tick()
	if s.beats != 1 || len(s.last.LoadingModels) != 100 {
		t.Fatalf("%d heartbeats; %d models load", s.beats, len(s.last.LoadingModels))
	}
	s.now = s.now.Add(minBeat)
	s.c.now = s.now
	s.c.ensured(names(1)[0], &ipc.ReadyResponse{State: ipc.StateReady, BatchTokens: 50}, nil)
	s.c.tick()
	if s.beats != 2 || len(s.last.LoadedModels) != 1 {
		t.Errorf("%d heartbeats; loaded are %v", s.beats, s.last.LoadedModels)
	}
	for range 3 { // nothing changes
		s.now = s.now.Add(minBeat)
		s.c.now = s.now
		s.c.tick()
	}
	if s.beats != 2 {
		t.Errorf("%d heartbeats without a change", s.beats-2)
	}
	s.c.draining = true // whatever it is that makes it not ready
	s.c.tick()
	if s.beats != 3 || s.last.Ready {
		t.Errorf("%d heartbeats; ready: %v", s.beats, s.last.Ready)
	}
	s.c.draining = false
	s.now = s.now.Add(work.WorkerHeartbeat)
	s.c.now = s.now
	s.c.tick()
	if s.beats != 4 {
		t.Errorf("%d heartbeats after the time between two", s.beats)
	}
}

// A model that was in use is watched for as long as gateways remember it, however long ago it was
// announced: they do not announce it again.
func TestAModelThatWasInUseIsWatched(t *testing.T) {
	for _, here := range []bool{true, false} {
		s := newBeatSim(t)
		if here {
			s.loaded = []string{"org/a"}
		}
		s.c.demand(lane.DemandSubject("org/a"))
		other := bus.WorkerHeartbeat{Name: "other", Ready: true, PoolName: lane.Pool,
			MachineProfile: lane.Profile, Bundle: lane.Bundle, LoadedModels: []string{"org/a"}}
		for range 10 {
			if !here {
				s.c.heartbeatOf(&other)
			}
			s.advance(time.Second)
		}
		for range int(forgetAge/(2*time.Second)) + 10 { // in use
			if !here {
				s.c.heartbeatOf(&other)
			}
			s.advance(2 * time.Second)
		}
		s.loaded = nil // it made room for another, or its worker left
		for range int(forgetAge/(2*time.Second)) - 1 {
			s.advance(2 * time.Second)
			if q := s.c.queues["org__a"]; q == nil {
				t.Fatalf("loaded here: %v: the model is forgotten", here)
			} else if q.role == rank.Watch && !q.pulls.Watching() {
				t.Fatalf("loaded here: %v: nobody watches", here)
			}
		}
		if q := s.c.queues["org__a"]; q.role != rank.Watch {
			t.Errorf("loaded here: %v: at the end the role is %v", here, q.role)
		}
		for range 10 {
			s.advance(2 * time.Second)
		}
		if len(s.c.queues) != 0 || len(s.c.models) != 0 {
			t.Errorf("loaded here: %v: %d queues and %d models are left",
				here, len(s.c.queues), len(s.c.models))
		}
	}
}

// A model that failed is tried again once its time is over, also when its queue is that of another
// id with the same token; one that nobody wants any more is forgotten.
func TestFailedModelsBesideTheirQueue(t *testing.T) {
	s := newBeatSim(t, "org/x")
	s.c.demand(lane.DemandSubject("org/x"))
	s.c.queues[bus.Token("org/x")].primary = "org/x"
	for _, id := range []string{"org__x", "org/unpinned"} {
		s.c.fail(s.c.model(id), errs.LoadFailed(id, errs.LoadFailure{Class: "NETWORK"}, "away", nil))
	}
	s.advance(minBeat)
	if len(s.last.FailedModels) != 2 {
		t.Fatalf("%q failed", s.last.FailedModels)
	}
	s.advance(failedFor)
	s.advance(decideEvery)
	s.advance(minBeat)
	if m := s.c.models["org__x"]; m == nil || m.state != cold {
		t.Errorf("%+v, want it cold", m)
	}
	if s.c.models["org/unpinned"] != nil || len(s.last.FailedModels) > 0 {
		t.Errorf("%q are told as failed", s.last.FailedModels)
	}
}
