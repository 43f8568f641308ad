package worker

import (
	"sort"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// beat is what the last heartbeat said.
type beat struct {
	at        time.Time
	ready     bool
	sequence  uint64
	soon      bool // something that it says has changed
	saturated bool
}

// minBeat is the least time between two heartbeats: when many models change at once, each of them
// lists all.
const minBeat = tickEvery

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
	ready, since := c.ready(), c.now.Sub(c.beat.at)
	changed := c.beat.soon || ready != c.beat.ready
	if since < minBeat || !changed && since < work.WorkerHeartbeat {
		return
	}
	c.beat.at, c.beat.soon, c.beat.ready = c.now, false, ready
	c.do.heartbeat(c.heartbeat(false))
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
		BundleDocumentsHash: c.documentsHash(), LoadedModels: c.inState(loaded),
		LoadingModels: c.inState(loading), FailedModels: c.inState(failed),
		QueueDepth: len(c.slices), MemoryUsed: p.MemoryUsed, MemoryTotal: p.MemoryTotal,
		Sequence: c.beat.sequence, Pending: map[string]bus.Pending{}, Epoch: c.epoch,
		UnsupportedModels: c.config.unsupported,
		SentAtMS:          c.now.UnixMilli(),
	}
	if h.Ready {
		h.ReadyGPUSlots = p.GPUCount
	}
	if c.lane != c.home {
		h.HomePool = c.home.Pool
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
		if len(h.Pending) < bus.MaxHeartbeatModels && (cost > 0 || c.queues[m.token] != nil) {
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

// ofFiles is the hash of the documents of a server that was not given those of sie-config yet.
const ofFiles = "files"

// documentsHash returns the hash of all that the documents of the server's models say, "" if the
// server or sie-config does not tell.
func (c *core) documentsHash() string {
	if c.config.follows && c.config.given == nil {
		return ofFiles
	}
	return c.server.last.BundleDocumentsHash
}

// windowSlices returns how many slices of the size seen the credit holds.
func (m *model) windowSlices() int {
	if m.size == 0 {
		return sliceBatchFirst
	}
	return max(int(float64(m.window)/m.size), 1)
}
