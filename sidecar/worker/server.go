package worker

import (
	"fmt"
	"slices"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/results"
)

// up handles a new connection to the server.
func (c *core) up(p *ipc.PingResponse, same bool) {
	c.server.up, c.server.limbo = true, false
	if !same {
		c.forgotten()
		c.unpinned()
	}
	c.pins.telling = false // a call ended with its connection
	if same {              // what it was running has ended with the connection
		for _, s := range c.sentSlices() {
			c.left(s)
			if s.dropped {
				c.forget(s)
				continue
			}
			s.state = queued
			if s.item.Alone {
				s.model.solo++
				c.alone = append(c.alone, s)
			} else {
				s.model.push(s)
			}
		}
	}
	for _, m := range c.models {
		m.asking = false
		c.become(m, cold)
	}
	clear(c.server.missing)
	c.pong(p)
	c.do.capabilities()
}

func (c *core) sentSlices() (all []*slice) {
	for _, s := range c.slices {
		if s.state == sent {
			all = append(all, s)
		}
	}
	return all
}

// pong handles an answer to a Ping.
func (c *core) pong(p *ipc.PingResponse) {
	old := c.server.last
	c.server.last, c.server.heard, c.dirty = *p, c.now, true
	if p.BundleConfigHash != old.BundleConfigHash || p.BundleDocumentsHash != old.BundleDocumentsHash ||
		p.Ready != old.Ready {
		c.beat.soon = true
	}
	if p.BundleConfigHash != old.BundleConfigHash && old.Epoch == p.Epoch { // other models may load now
		for _, m := range c.models {
			if m.state == failed {
				c.become(m, cold)
			}
		}
		c.do.capabilities()
	}
	for id, m := range c.models {
		if m.state != loaded || slices.Contains(p.LoadedModels, id) {
			delete(c.server.missing, id)
			continue
		}
		if c.server.missing[id]++; c.server.missing[id] >= 2 { // one Ping may be older than the load
			delete(c.server.missing, id)
			c.become(m, cold)
		}
	}
}

// lost handles the end of the connection. Whether the server died is told later.
func (c *core) lost() {
	c.server.up, c.server.limbo, c.dirty = false, true, true
	c.giveBackQueued()
}

// maxDeathLines bounds the lines of the log about one death.
const maxDeathLines = 20

// died handles the death of the server: the slices that were in it are reported, and never given
// back before their gateways know.
func (c *core) died() {
	c.server.up, c.server.limbo, c.dirty = false, false, true
	c.server.last = ipc.PingResponse{}
	for _, m := range c.models {
		m.asking = false
		c.become(m, cold)
	}
	c.giveBackQueued()
	with := c.sentSlices()
	if len(with) > maxDeathLines {
		c.do.log("warn", fmt.Sprintf("the server died with %d slices; the first %d follow",
			len(with), maxDeathLines), nil, nil)
	}
	for i, s := range with {
		c.left(s)
		c.do.count("server_died", "")
		if s.dropped {
			c.forget(s)
			continue
		}
		if s.item.ReplySubject == "" {
			c.done.Add(s.item.WorkItemID, s.item.Attempt, true)
			c.settle(s, c.do.term)
			c.forget(s)
			continue
		}
		if i < maxDeathLines {
			c.do.log("warn", "the server died with a slice", s, nil)
		}
		c.keepEntry(s, &results.Entry{Data: c.markOf(s, work.ServerDied), Died: true})
	}
}

// connect handles a connection to the broker. What was open on the one before is gone.
func (c *core) connect(maxPayload int) {
	c.connected, c.sure, c.dirty = true, false, true
	if c.discovered.IsZero() {
		c.discovered = c.now.Add(discoverFor)
	}
	if maxPayload > 0 {
		c.maxPayload = maxPayload
		c.kept.SetLimit(maxPayload)
		c.refuseTooLarge()
	}
	for _, g := range c.gateways {
		if !g.gone {
			g.seen = c.now
		}
	}
	c.peers.Reconnected(c.now)
	for _, q := range c.queues {
		if q.pulls != nil {
			q.pulls.Reset()
		}
		q.absent, q.backoff, q.retryAt = false, 0, time.Time{}
	}
	c.listed = c.now
	c.do.list()
	c.beat.soon = true
}

// disconnect handles the loss of the broker.
func (c *core) disconnect() {
	c.connected, c.sure, c.dirty = false, false, true
	c.former = nil // what becomes of those streams is not looked at
}

// drain begins the end: nothing more is pulled, what was not sent goes back, and drained is called
// when the rest is done.
func (c *core) drain() {
	c.draining, c.dirty, c.beat.soon = true, true, true
	c.giveBackQueued()
}

// abandon gives back what a drain did not finish in its time, and forgets it. drained is called
// when no message of a queue can come any more: the broker hands what was given back to a pull that
// it still knows.
func (c *core) abandon() {
	var ids []string
	for _, s := range c.slices {
		if s.state == sent {
			if !s.dropped {
				ids = append(ids, s.item.WorkItemID)
			}
			c.left(s)
			s.state = fetching // it is in no queue
		}
		c.giveBack(s, nakServer, "server")
	}
	if len(ids) > 0 {
		c.do.cancel(ids)
	}
}

// heartbeatOf handles another worker's heartbeat.
func (c *core) heartbeatOf(h *bus.WorkerHeartbeat) {
	known := c.peers.Len()
	if c.peers.Heartbeat(c.now, h) {
		c.dirty = true
		if c.peers.Len() > known { // it does not know this worker either
			c.beat.soon = true
		}
	}
}
