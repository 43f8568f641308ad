package worker

import (
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
)

// A sidecar that was stopped does not take gateways and workers for silent: what they sent
// meanwhile waits to be read. Those that stay silent are gone as late as any.
func TestAStoppedSidecarKeepsItsGatewaysAndPeers(t *testing.T) {
	s := newSim(t, 1)
	s.c.connect(1 << 20)
	s.c.heardOf("gw")
	s.c.heartbeatOf(&bus.WorkerHeartbeat{Name: "other", Ready: true, PoolName: lane.Pool,
		MachineProfile: lane.Profile, Bundle: lane.Bundle})
	pass := func(d time.Duration) {
		s.now = s.now.Add(d)
		s.c.now, s.c.scan = s.now, true
		s.c.tick()
	}
	pass(tickEvery)
	pass(40 * time.Second) // SIGSTOP
	if gone := s.c.knownGateway("gw").gone; gone || s.c.peers.Len() != 1 {
		t.Fatalf("after a stop the gateway is gone: %v; %d peers", gone, s.c.peers.Len())
	}
	for range work.WorkerStale/time.Second + 1 {
		pass(time.Second)
	}
	if s.c.peers.Len() != 0 {
		t.Error("a silent worker is kept for ever")
	}
	for range (work.GatewaySilence - work.WorkerStale) / time.Second {
		pass(time.Second)
	}
	if !s.c.knownGateway("gw").gone {
		t.Error("a silent gateway is kept for ever")
	}
}

// marked is a sim that keeps the states of marks.
type marked struct {
	*sim
	states []string
}

func (m *marked) publish(subject string, data []byte) {
	var mark work.Mark
	if _, err := mark.UnmarshalMsg(data); err == nil && mark.Kind == work.KindMark {
		m.states = append(m.states, mark.State)
	}
}

// A server that answers no Ping for serverSilence is reported to the gateways whose slices it has,
// and again every MarkInterval, until it answers. Nothing is said of slices that nobody wants, nor
// after a pause of the sidecar itself.
func TestASilentServerIsReported(t *testing.T) {
	s := &marked{sim: newSim(t, 1)}
	s.c.do = s
	s.connectServer()
	s.connectBroker()
	s.c.heardOf("g")
	work1 := func(id string) {
		x := &slice{item: work.Item{WorkItemID: id, ReplySubject: "_INBOX.g." + id}, state: sent,
			model: s.c.model("org/a"), mark: s.now.Add(firstMark), until: s.now.Add(time.Hour), call: id}
		x.model.running++
		s.c.inServer++
		s.c.slices[id] = x
		s.c.fresh = append(s.c.fresh, x)
	}
	pass := func(d time.Duration, answers bool) (silent, running int) {
		s.states = nil
		for end := s.now.Add(d); s.now.Before(end); {
			s.now = s.now.Add(tickEvery)
			s.c.now, s.c.scan = s.now, true
			s.c.heardOf("g")
			if answers {
				s.c.pong(&ipc.PingResponse{Ready: true})
			}
			s.c.tick()
		}
		for _, state := range s.states {
			silent += b2i(state == work.ServerSilent)
			running += b2i(state == work.Running)
		}
		return silent, running
	}
	work1("a")
	work1("gone")
	s.c.drop(s.c.slices["gone"], "cancelled")
	if silent, _ := pass(10*time.Second, true); silent != 0 {
		t.Errorf("%d reports of a server that answers", silent)
	}
	if silent, _ := pass(serverSilence, false); silent != 0 {
		t.Errorf("%d early reports", silent)
	}
	if silent, _ := pass(tickEvery, false); silent != 1 {
		t.Errorf("%d reports of a silent server, not 1", silent)
	}
	if silent, running := pass(2*work.MarkInterval, false); silent != 2 || running != 0 {
		t.Errorf("then %d reports and %d marks that it runs", silent, running)
	}
	if silent, running := pass(2*work.MarkInterval, true); silent != 0 || running != 2 {
		t.Errorf("when it answers again %d reports, %d marks that it runs", silent, running)
	}
	s.now = s.now.Add(40 * time.Second) // SIGSTOP of the sidecar
	if silent, _ := pass(serverSilence, false); silent != 0 {
		t.Errorf("%d reports after a stop of the sidecar", silent)
	}
	if silent, _ := pass(2*tickEvery, false); silent != 1 {
		t.Errorf("%d reports of the second silence", silent)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
