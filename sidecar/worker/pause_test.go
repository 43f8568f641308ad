package worker

import (
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus"
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
