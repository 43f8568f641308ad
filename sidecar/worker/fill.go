package worker

import (
	"errors"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/sidecar/pull"
	"github.com/sie-engine/sie/sidecar/rank"
)

// fill opens the pulls that the roles and the credit ask for.
func (c *core) fill() {
	if !c.connected || !c.sure {
		return
	}
	if !c.scan {
		for m := range c.hot {
			if q := c.queues[m.token]; q != nil && !q.absent && q.role == rank.Pull && c.ready() {
				c.fillQueue(q)
			}
		}
		return
	}
	for _, q := range c.queues {
		if q.absent {
			if !q.retryAt.IsZero() && !q.retryAt.After(c.now) {
				q.retryAt = time.Time{}
				c.do.reconcile(q, q.role == rank.Pull)
			}
			continue
		}
		if !c.ready() || q.role == rank.Nothing {
			c.close(q)
			continue
		}
		if q.role == rank.Load {
			continue // until it is loaded
		}
		if q.pulls != nil && q.pulls.Silent(c.now) {
			c.do.count("pull_errors", "silent")
			c.absent(q)
			continue
		}
		c.fillQueue(q)
	}
}

func (c *core) fillQueue(q *queue) {
	n := 0
	m := c.models[c.idOf(q)]
	switch {
	case m == nil:
		return
	case c.full():
	case q.role == rank.Pull:
		n = m.slices()
	case q.role == rank.Answer:
		n = sliceBatchFirst
	}
	if n == 0 && q.role != rank.Watch {
		return
	}
	if q.pulls == nil {
		if err := c.do.openQueue(q); err != nil {
			c.do.log("warn", "cannot subscribe to pull", nil, err)
			c.absent(q)
			return
		}
	}
	if q.role == rank.Watch {
		if !q.pulls.Watching() && !c.full() {
			c.do.watch(q, q.threshold)
		}
		return
	}
	// A pull for every slice of credit that becomes free would be a request for every slice.
	n = min(n, maxInHand-len(c.slices))
	if open := q.pulls.Waiting(); n-open >= max(1, n/2) {
		perSlice := max(m.size*m.ratio, 1)
		c.do.pull(q, n-open, max(c.maxPayload, int(2*perSlice*float64(n))))
	}
}

// heard handles what a message of a queue was, beside work.
func (c *core) heard(q *queue, kind pull.Kind) {
	switch kind {
	case pull.Backlog:
		if q.role == rank.Watch {
			q.demanded = c.now
			if m := c.model(c.idOf(q)); m != nil && c.ready() {
				c.want(m)
			}
			c.dirty = true
		}
	case pull.Absent:
		c.do.count("pull_errors", "absent")
		c.absent(q)
	}
}

// backlog is told how many slices of a subject wait in a gateway, which sends them as the workers
// take them: with so many this worker joins, as if they were in the stream.
func (c *core) backlog(subject string, n int) {
	lane, token, err := bus.ParseWork(subject)
	if err != nil || lane != c.lane {
		return
	}
	if q := c.queues[token]; q != nil && q.role == rank.Watch && n >= q.threshold {
		c.heard(q, pull.Backlog)
	}
}

// absent closes the pulls of a queue and makes sure of its stream and consumer, soon.
func (c *core) absent(q *queue) {
	c.close(q)
	if q.absent {
		return
	}
	q.backoff = max(q.backoff, reconcileMin)
	q.absent, q.retryAt = true, c.now.Add(q.backoff)
	q.backoff = min(2*q.backoff, reconcileMax)
}

// errNoConsumer says that a queue has no consumer, and that none was asked for.
var errNoConsumer = errors.New("there is no such consumer")

// reconciled handles the end of reconcile: the stream with its time of creation, and the consumer,
// are there, or err says why not.
func (c *core) reconciled(q *queue, created time.Time, err error) {
	if c.queues[q.token] != q || !q.absent {
		return
	}
	if errors.Is(err, errNoConsumer) { // who has work for it makes one, and says so
		c.close(q)
		delete(c.queues, q.token)
		return
	}
	if err != nil {
		c.do.count("pull_errors", "reconcile")
		c.do.log("warn", "cannot make sure of "+q.subject, nil, err)
		q.retryAt = c.now.Add(q.backoff)
		q.backoff = min(2*q.backoff, reconcileMax)
		return
	}
	c.stream(created)
	q.absent, q.backoff = false, 0
}

// stream takes the time of creation of the pool's stream. Another one has other messages under the
// same sequences: what came from the old one is not acknowledged. Pulls that are open may have
// reached a consumer of the old one as it was deleted, and then nothing ever answers them.
func (c *core) stream(created time.Time) {
	if created.Equal(c.created) {
		return
	}
	if !c.created.IsZero() {
		c.do.log("warn", "the pool's stream is another one", nil, nil)
		c.gen++
		for _, q := range c.queues {
			if q.pulls != nil && q.pulls.Open() > 0 {
				c.do.count("pull_errors", "stream")
				c.absent(q)
			}
		}
	}
	c.created = created
}

// found is a consumer of the lane.
type found struct {
	subject string
	waiting bool // work waits, or is in hands
}

// listedAll handles the list of the lane's consumers.
func (c *core) listedAll(created time.Time, all []found, err error) {
	if !c.connected || c.sure {
		return
	}
	if err != nil {
		c.do.log("warn", "cannot list the consumers of the pool", nil, err)
		return // tick asks again
	}
	if !created.IsZero() {
		c.stream(created)
	} else if !c.created.IsZero() { // there is no stream
		c.gen++
		c.created = time.Time{}
	}
	c.sure = true
	for _, f := range all {
		if f.waiting {
			c.demand(f.subject)
		} else if q := c.followSubject(f.subject); q == nil {
			continue
		}
	}
	for _, l := range c.late {
		c.settleOne(l.d, l.act)
	}
	c.late = nil
	c.dirty = true
}
