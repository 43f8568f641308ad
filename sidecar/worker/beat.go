package worker

import (
	"sort"
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// beat is what the last heartbeat said.
type beat struct {
	at        time.Time
	signature string
	sequence  uint64
	soon      bool
	saturated bool
}

// The marks of saturation in shares of a credit window that is used, or of the bounds in hand.
const (
	saturateAt   = 0.9
	unsaturateAt = 0.7
)

// beats publishes a heartbeat when its time has come, or what it says has changed.
func (c *core) beats() {
	if !c.connected {
		return
	}
	signature := c.signature()
	if c.now.Sub(c.beat.at) < work.WorkerHeartbeat && !c.beat.soon && signature == c.beat.signature {
		return
	}
	c.beat.at, c.beat.soon, c.beat.signature = c.now, false, signature
	c.do.heartbeat(c.heartbeat(false))
}

// signature changes when a heartbeat must be sent at once.
func (c *core) signature() string {
	var b strings.Builder
	if c.ready() {
		b.WriteByte('1')
	}
	for _, of := range [][]string{c.inState(loaded), c.inState(loading), c.inState(failed)} {
		b.WriteByte('|')
		for _, id := range of {
			b.WriteString(id)
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// inState returns the ids of the models in a state, sorted.
func (c *core) inState(s modelState) (ids []string) {
	for id, m := range c.models {
		if m.state == s && len(ids) < bus.MaxHeartbeatModels {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	return ids
}

// heartbeat returns what this worker tells the lane.
func (c *core) heartbeat(terminated bool) *bus.WorkerHeartbeat {
	p := &c.server.last
	c.beat.sequence++
	h := &bus.WorkerHeartbeat{
		Name: c.self, Ready: c.ready() && !terminated, Terminated: terminated, GPUCount: p.GPUCount,
		TotalGPUSlots: p.GPUCount, MachineProfile: c.lane.Profile, PoolName: c.lane.Pool,
		Bundle: c.lane.Bundle, BundleConfigHash: p.BundleConfigHash,
		LoadedModels: c.inState(loaded), LoadingModels: c.inState(loading), FailedModels: c.inState(failed),
		QueueDepth: len(c.slices), MemoryUsed: p.MemoryUsed, MemoryTotal: p.MemoryTotal,
		Sequence: c.beat.sequence, Pending: map[string]bus.Pending{}, Epoch: c.epoch,
	}
	if h.Ready {
		h.ReadyGPUSlots = p.GPUCount
	}
	calls := map[string]bool{}
	for _, s := range c.slices {
		if s.state == sent {
			calls[s.call] = true
		}
	}
	h.InflightBatches = len(calls)
	used, window := int64(0), int64(0)
	for id, m := range c.models {
		cost := m.inflight + m.tokens
		h.PendingCost += cost
		if m.state != loaded {
			continue
		}
		used, window = used+cost, window+m.window
		h.FreeCredit += max(m.window-cost, 0)
		if len(h.Pending) < bus.MaxHeartbeatModels {
			h.Pending[id] = bus.Pending{
				Items: len(m.waiting) + m.running, Tokens: cost, Window: m.windowSlices(),
			}
		}
	}
	share := max(float64(len(c.slices))/maxInHand, float64(c.kept.Bytes())/maxKeptBytes,
		float64(used)/float64(max(window, 1)))
	switch {
	case share >= saturateAt:
		c.beat.saturated = true
	case share < unsaturateAt:
		c.beat.saturated = false
	}
	h.Saturated = c.beat.saturated
	return h
}

// windowSlices returns how many slices of the size seen the credit holds.
func (m *model) windowSlices() int {
	if m.size == 0 {
		return sliceBatchFirst
	}
	return max(int(float64(m.window)/m.size), 1)
}
