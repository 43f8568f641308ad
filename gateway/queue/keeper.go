package queue

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// keeper is the state of the keeper's goroutine.
type keeper struct {
	beatAt    time.Time // of the last heartbeat that was published while connected
	sequence  uint64
	forgotten time.Time // when idle lines were last looked for
	lookAt    time.Time // after a gap of the own heartbeat: everything is published again then
	pending   []*request
	lines     []*line
	looks     int // at requests, in all
}

// ref names a slice.
type ref struct {
	r *request
	i int
}

// found is what a look at all pending slices found of one line.
type found struct {
	line         *line
	again, fresh []ref // to be published: those that were published before come first
	untaken      bool  // something is in the stream for longer than announceFrom
	check        bool  // and for longer than untakenAfter
	hurry        bool  // a worker of the lane was lost a moment ago
}

// keep looks at everything that is pending at each tick and after what may concern all of it, and
// in between, as often as every minPass, at the requests of which slices wait to be published.
func (q *Queue) keep() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	last := time.Time{}
	for {
		all := false
		select {
		case <-q.ctx.Done():
			return
		case <-tick.C:
			all = true
		case <-q.kick:
			if rest := minPass - time.Since(last); rest > 0 {
				select {
				case <-q.ctx.Done():
					return
				case <-time.After(rest):
				}
			}
		}
		last = time.Now()
		q.pass(last, q.look.Swap(false) || all)
	}
}

// pass looks once, at everything or at what waits to be published.
func (q *Queue) pass(now time.Time, everything bool) {
	k := &q.keeper
	connected := q.connected.Load()
	if !everything && !connected {
		return
	}
	gap := everything && connected && q.gap(now)
	k.pending = k.pending[:0]
	if everything {
		q.mu.Lock()
		for _, r := range q.requests {
			k.pending = append(k.pending, r)
		}
		q.mu.Unlock()
	} else {
		q.waiters()
	}
	k.looks += len(k.pending)
	lines := map[*line]*found{}
	for _, r := range k.pending {
		q.lookAt(r, lines, connected, gap, now)
	}
	clear(k.pending)
	if connected {
		if everything {
			q.beat(lines, now)
		}
		pools := map[*pool]bool{}
		for l, f := range lines {
			pools[l.pool] = true
			q.tend(f, now)
		}
		for p := range pools {
			q.poll(p, now)
		}
	}
	if now.Sub(k.forgotten) > lineIdle/10 {
		k.forgotten = now
		q.forget(now)
	}
}

// waiters puts the requests of which slices wait to be published into the keeper's list.
func (q *Queue) waiters() {
	k := &q.keeper
	q.mu.Lock()
	k.lines = k.lines[:0]
	for _, l := range q.lines {
		k.lines = append(k.lines, l)
	}
	q.mu.Unlock()
	for _, l := range k.lines {
		l.mu.Lock()
		for r := range l.waiters {
			k.pending = append(k.pending, r)
		}
		l.mu.Unlock()
	}
	clear(k.lines)
}

// gap reports whether everything is to be published again, because the own heartbeat had a gap: the
// process was stopped, or had no connection for long.
func (q *Queue) gap(now time.Time) bool {
	k := &q.keeper
	since := k.beatAt
	if q.since().After(since) && !since.IsZero() {
		// what was published to a dead connection before its end was noticed told nobody anything
		if n := q.heard.Load(); n != 0 && q.began.Add(time.Duration(n)).Before(since) {
			since = q.began.Add(time.Duration(n))
		}
	}
	if !since.IsZero() && k.lookAt.IsZero() && now.Sub(since) > heartbeatGap {
		k.lookAt = now.Add(settle)
		k.beatAt = now // beat follows in the same pass
		k.sequence++
		q.publishBeat(nil, nil)
		return false
	}
	if !k.lookAt.IsZero() && !now.Before(k.lookAt) {
		k.lookAt = time.Time{}
		return true
	}
	return false
}

// lookAt finds what is to be done for one request.
func (q *Queue) lookAt(r *request, lines map[*line]*found, connected, all bool, now time.Time) {
	pool, since := r.line.pool.state(), q.since()
	r.line.mu.Lock()
	checked := r.line.checked
	r.line.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	f := lines[r.line]
	if f == nil {
		f = &found{line: r.line, hurry: q.lostWorker(r.line.lane)}
		lines[r.line] = f
	}
	for i := range r.slices[:r.next] {
		s := &r.slices[i]
		if !s.state.begun() || s.burying || s.fetching {
			continue
		}
		if connected {
			q.judgeLocked(r, s, f, pool, checked, since, all, now)
		}
		switch {
		case s.state == queued && now.Before(s.due):
		case s.state == queued && (s.attempt > 0 || s.tries > 0):
			f.again = append(f.again, ref{r, i})
		case s.state == queued:
			f.fresh = append(f.fresh, ref{r, i})
		}
	}
}

// judgeLocked decides whether a slice was lost. since is when the connection was made: no age
// counts from before it.
func (q *Queue) judgeLocked(
	r *request, s *slice, f *found, pool poolState, checked consumerCheck, since time.Time, all bool,
	now time.Time,
) {
	again := func(cause string) {
		q.metrics.republishes.WithLabelValues(cause).Inc()
		q.supersede(r.line, s)
		r.requeueLocked(s, true, 0, now)
	}
	age := func(from time.Time) time.Duration {
		if from.Before(since) {
			from = since
		}
		return now.Sub(from)
	}
	switch {
	case s.state == queued:
	case all:
		again("gap")
	case s.state == sent:
		if s.sentAt.Before(since) || age(s.sentAt) > ackTimeout(s.tries) {
			q.metrics.republishes.WithLabelValues("no_ack").Inc()
			r.requeueLocked(s, false, backoff(s.tries), now)
		}
	case s.state == stored:
		waited := age(s.storedAt)
		switch {
		case s.epoch != pool.epoch, s.storedAt.Before(pool.lastAt) && pool.last < s.seq:
			again("stream")
		case s.storedAt.Add(untakenAfter).Before(checked.at) && (checked.empty || checked.floor >= s.seq):
			again("consumer")
		case s.unmarkedLocked(checked, since, f.hurry, now):
			again("unmarked")
		default:
			f.untaken = f.untaken || waited > announceFrom
			f.check = f.check || waited > untakenAfter || f.hurry && waited > hurryEvery
		}
	case s.state == taken && age(s.markedAt) > work.MarkTimeout:
		again("silent")
	case s.state == taken && q.restarted(s):
		again("worker_restarted")
	case s.state == taken && age(s.markedAt) > work.WorkerStale && q.gone(s.worker):
		again("worker_gone")
	}
}

// unmarkedLocked reports whether a slice in the stream was delivered to a worker that is gone or
// stopped: it marks what it has within a moment. A slice that is older than the connection has
// until the second mark of its worker, because nobody heard the first.
func (s *slice) unmarkedLocked(c consumerCheck, since time.Time, hurry bool, now time.Time) bool {
	if c.gave < s.seq || !s.storedAt.Before(c.at) {
		return false
	}
	if s.gaveAt.IsZero() {
		s.gaveAt = c.at
	}
	switch {
	case s.storedAt.Before(since):
		return now.Sub(since) > work.WorkerStale && now.Sub(s.gaveAt) > unmarkedAfter
	case hurry:
		return now.Sub(s.gaveAt) > hurryAfter
	}
	return now.Sub(s.gaveAt) > unmarkedAfter
}

// presence is what is known of a worker.
type presence struct {
	live  bool
	epoch string    // of its process, "" when that is not known
	at    time.Time // when its last heartbeat came
}

// gone reports whether a worker is known to have been silent for long.
func (q *Queue) gone(worker string) bool {
	known := q.workers.Load()
	return known != nil && !(*known)(worker).live
}

// lostWorker reports whether a worker of a lane was lost a moment ago: slices that it has and has
// not marked, or that its open pulls still get, are to be noticed sooner.
func (q *Queue) lostWorker(l bus.Lane) bool {
	lost := q.losses.Load()
	return lost != nil && (*lost)(l)
}

// restarted reports whether the process that marked a slice has ended: a heartbeat that came after
// the mark is of another process of the same worker. An older heartbeat says nothing: the mark may
// be the first that is heard of a new process.
func (q *Queue) restarted(s *slice) bool {
	known := q.workers.Load()
	if known == nil || s.process == "" {
		return false
	}
	w := (*known)(s.worker)
	return w.live && w.epoch != "" && w.epoch != s.process && w.at.After(s.markedAt)
}

// tend does what one line needs: its consumer, then what is to be published.
func (q *Queue) tend(f *found, now time.Time) {
	l := f.line
	l.mu.Lock()
	prepared := l.prepared
	prepare := !l.preparing && (!prepared && !now.Before(l.retryAt) || f.check && !now.Before(l.checkAt))
	check := prepare && f.check && prepared
	if prepare {
		l.preparing = true
		l.checkAt = now.Add(pollEvery)
		if f.hurry {
			l.checkAt = now.Add(hurryEvery)
		}
	}
	l.mu.Unlock()
	if prepare {
		q.all.Go(func() { q.prepare(l, check) })
	}
	if !prepared {
		return
	}
	for _, list := range [][]ref{f.again, f.fresh} {
		for _, x := range list {
			if !l.room() {
				return // an answer to one of them wakes the keeper
			}
			q.send(x.r, x.i, queued)
		}
	}
}

// room reports whether more may be published before the broker answers.
func (l *line) room() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent < maxUnacked && l.sentBytes < maxUnackedBytes
}

// prepare makes sure of a line's stream and consumer, and then asks what the consumer holds.
func (q *Queue) prepare(l *line, check bool) {
	ctx, cancel := context.WithTimeout(q.ctx, apiTimeout)
	defer cancel()
	asked := time.Now()
	s, err := q.broker.Prepare(ctx, l)
	var c consumerState
	if err == nil && check {
		asked = time.Now()
		c, err = q.broker.Consumer(ctx, l)
	}
	changed := err == nil && l.pool.saw(s, asked)
	l.mu.Lock()
	l.preparing = false
	if err != nil {
		l.failures++
		l.retryAt = time.Now().Add(backoff(l.failures))
	} else {
		l.failures, l.prepared = 0, true
		if check {
			l.checked = consumerCheck{
				asked, c.Pending == 0 && c.AckPending == 0, c.Floor, c.Delivered,
			}
		}
	}
	failures := l.failures
	l.recountLocked()
	l.mu.Unlock()
	if err != nil && q.ctx.Err() == nil {
		q.metrics.failures.Inc()
		if failures == 1 {
			q.opt.Log.Warn("the queue of a model is not ready; trying again",
				"subject", l.subject, "error", err)
		}
	}
	if changed {
		q.lost(l.pool)
	}
	if changed || check {
		q.wakeForAll()
	} else {
		q.wakeKeeper()
	}
}

// lost notes that a pool has a new stream: its consumers have to be made again.
func (q *Queue) lost(p *pool) {
	q.opt.Log.Warn("the work stream of a pool is a new one; pending work is published again", "pool", p.name)
	q.mu.Lock()
	var list []*line
	for _, l := range q.lines {
		if l.pool == p {
			list = append(list, l)
		}
	}
	q.mu.Unlock()
	for _, l := range list {
		l.unprepare()
	}
}

// poll asks for the state of a pool's stream if it is time, or after a reconnect.
func (q *Queue) poll(p *pool, now time.Time) {
	since := q.since()
	p.mu.Lock()
	first := p.lastAt.Before(since) && p.pollAt.Before(since.Add(pollEvery)) // since the reconnect
	due := !p.polling && p.epoch > 0 && (!now.Before(p.pollAt) || first)
	if due {
		p.polling, p.pollAt = true, now.Add(pollEvery)
	}
	p.mu.Unlock()
	if !due {
		return
	}
	q.all.Go(func() {
		ctx, cancel := context.WithTimeout(q.ctx, apiTimeout)
		defer cancel()
		asked := time.Now()
		s, err := q.broker.Stream(ctx, p.name)
		changed := err == nil && p.saw(s, asked)
		p.mu.Lock()
		p.polling = false
		p.mu.Unlock()
		if changed || errors.Is(err, errNoStream) {
			q.lost(p)
		}
		q.wakeForAll()
	})
}

// beat publishes the heartbeat when it is time.
func (q *Queue) beat(lines map[*line]*found, now time.Time) {
	k := &q.keeper
	if !k.beatAt.IsZero() && now.Sub(k.beatAt) < work.GatewayHeartbeat-tickEvery/2 {
		return
	}
	var untaken []string
	backlog := map[string]int{}
	for l, f := range lines {
		l.mu.Lock()
		parts := l.share.Parts()
		l.mu.Unlock()
		if parts > 0 && len(backlog) < bus.MaxHeartbeatModels {
			backlog[l.subject] = parts
		}
		if f.untaken && len(untaken) < bus.MaxHeartbeatModels {
			untaken = append(untaken, l.subject)
		}
	}
	k.sequence++
	if q.publishBeat(untaken, backlog) {
		k.beatAt = now
	}
}

func (q *Queue) publishBeat(untaken []string, backlog map[string]int) bool {
	h := bus.GatewayHeartbeat{
		RouterID: q.opt.Router, URL: q.opt.URL, Sequence: q.keeper.sequence, Untaken: untaken,
		Backlog: backlog, Draining: q.draining.Load(),
	}
	if d := q.demand.Load(); d != nil {
		h.Demand = (*d).Told()
	}
	data, err := json.Marshal(h)
	if err != nil {
		panic("queue: internal error: " + err.Error()) // strings and numbers always have a form
	}
	return q.broker.Publish(&nats.Msg{Subject: bus.GatewayPrefix + q.opt.Router, Data: data}) == nil
}
