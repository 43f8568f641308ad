package queue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// receive takes a message of the inbox. It never waits. What belongs to no pending request is
// dropped without being decoded. Of a sidecar that has work of such a request in hand, nobody has
// told it that the request ended: the cancellation was lost while the broker was away from one of
// the two.
func (q *Queue) receive(m *nats.Msg) {
	now := time.Now()
	q.heard.Store(int64(now.Sub(q.began)))
	id, i, attempt, ok := splitInbox(strings.TrimPrefix(m.Subject, q.inbox))
	if !ok {
		return
	}
	r := q.find(id)
	switch {
	case r == nil:
		q.metrics.skips.Inc()
		switch {
		case i >= 0:
		case m.Reply == "" && kindOf(m.Data) == work.KindMark:
			if bus.CheckToken("request id", id) == nil {
				q.cancel(id, 0)
			}
		default:
			q.answer(m, receipts[work.Unknown])
		}
	case i >= 0:
		q.acknowledged(r, i, attempt, m, now)
	default:
		reply, err := q.take(r, m, now)
		if err != nil {
			q.metrics.strange.Inc()
			q.opt.Log.Warn("a message of the inbox was dropped", "request", r.id, "error", err)
		}
		q.answer(m, reply)
	}
}

// answer answers a message that was sent as a request. nil: it gets no answer, and is sent again.
// Only a sidecar's own inbox is answered: a worker could otherwise have this gateway publish where
// it may not, such as cancel another's request.
func (q *Queue) answer(m *nats.Msg, data []byte) {
	if m.Reply == "" || data == nil {
		return
	}
	if !strings.HasPrefix(m.Reply, bus.SidecarInboxes+".") {
		q.metrics.strange.Inc()
		return
	}
	answer := &nats.Msg{Subject: m.Reply, Data: data}
	if !final(data) { // the rest of a result waits for it
		if err := q.broker.Publish(answer); err != nil {
			q.unsent(err)
		}
		return
	}
	q.broker.PublishSoon(answer)
}

// unsent notes that a receipt was not sent.
func (q *Queue) unsent(err error) {
	q.opt.Log.Debug("a receipt was not sent; the worker asks again", "error", err)
}

// take takes a sidecar's message and returns the answer to it. An error is that of a message that
// no component of ours sends.
func (q *Queue) take(r *request, m *nats.Msg, now time.Time) (reply []byte, err error) {
	switch kind := kindOf(m.Data); kind {
	case "":
		res, err := parseResult(m.Data)
		if err != nil {
			return nil, fmt.Errorf("a result: %w", err)
		}
		return q.result(r, res, int64(len(m.Data)), m, now)
	case work.KindMark:
		var mark work.Mark
		if _, err := mark.UnmarshalMsg(m.Data); err != nil {
			return nil, fmt.Errorf("a mark: %w", err)
		}
		return q.marked(r, &mark, now)
	case work.KindChunk:
		var c work.Chunk
		if _, err := c.UnmarshalMsg(m.Data); err != nil {
			return nil, fmt.Errorf("a chunk: %w", err)
		}
		return q.chunk(r, &c, m.Reply != "", now)
	default:
		return nil, fmt.Errorf("a message of the unknown kind %q", clip(kind))
	}
}

// acknowledged takes the broker's answer to a publish.
func (q *Queue) acknowledged(r *request, i int, attempt uint32, m *nats.Msg, now time.Time) {
	a, err := parseAck(m)
	if err != nil {
		q.opt.Log.Warn("an answer to a publish was dropped", "request", r.id, "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i >= len(r.slices) || r.over || r.slices[i].attempt != attempt || r.slices[i].state == done {
		return
	}
	s := &r.slices[i]
	switch {
	case a.noStream:
		r.line.unprepare()
		if s.state == sent {
			q.metrics.republishes.WithLabelValues("no_stream").Inc()
			r.requeueLocked(s, false, backoff(s.tries), now)
		}
		q.wakeKeeper()
	case fullCodes[a.code]:
		if s.state == sent {
			q.refusedLocked(r, i, now)
		}
	case a.code != 0:
		q.metrics.failures.Inc()
		q.opt.Log.Warn("the broker refused work", "subject", r.line.subject, "code", a.code, "error", a.text)
		r.line.unprepare() // perhaps its definition is an old one
		if s.state == sent {
			r.requeueLocked(s, false, backoff(s.tries), now)
		}
	default:
		s.seq = a.seq
		if s.state == sent {
			if s.storedAt.IsZero() { // what is published again was placed before
				r.placed = now
			}
			s.storedAt, s.gaveAt = now, time.Time{}
			r.setLocked(s, stored, now)
		}
		if !r.line.open.Load() {
			q.wakeKeeper()
		}
	}
}

// refusedLocked takes the refusal of a full stream. It ends a request that has nothing in the
// stream yet; all other work waits for room, before any new work.
func (q *Queue) refusedLocked(r *request, i int, now time.Time) {
	s := &r.slices[i]
	full := r.line.full(now)
	if s.attempt == 0 && s.tries == 1 && r.placed.IsZero() {
		r.failLocked(i, full, false, now)
		return
	}
	q.metrics.republishes.WithLabelValues("full").Inc()
	r.requeueLocked(s, false, fullBackoff, now)
}

// backoff returns the pause after a number of tries.
func backoff(tries int) time.Duration {
	return min(firstBackoff<<min(max(tries-1, 0), 10), lastBackoff)
}

// ackTimeout returns how long the broker's answer to a try may take.
func ackTimeout(tries int) time.Duration { return min(firstAck<<min(max(tries-1, 0), 10), lastAck) }

// marked takes a sidecar's mark.
func (q *Queue) marked(r *request, mark *work.Mark, now time.Time) ([]byte, error) {
	if err := bus.CheckToken("worker id", mark.WorkerID); err != nil {
		return nil, err
	}
	if mark.WorkerEpoch != "" {
		if err := bus.CheckToken("worker_epoch", mark.WorkerEpoch); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.indexOf(mark.WorkItemID, indexIn(mark.WorkItemID))
	if err != nil {
		return nil, err
	}
	s := &r.slices[i]
	if r.over || s.state == done {
		return receipts[work.Unknown], nil
	}
	switch mark.State {
	case work.Taken, work.Running:
		if s.state.begun() && mark.Attempt <= s.attempt && !s.burying {
			r.takenLocked(s, mark.WorkerID, mark.WorkerEpoch, now)
		}
	case work.ServerDied:
		q.diedLocked(r, i, mark, now)
	case work.ServerSilent:
		q.silentLocked(r, s, mark, now)
	default:
		return nil, fmt.Errorf("a mark of the unknown state %q", clip(mark.State))
	}
	return receipts[work.Stored], nil
}

// diedLocked counts a server that ended while it ran a slice, once for all its marks, whatever the
// attempt was. What is published after a death goes to another server, alone. The second death
// while alone is a dead letter. The third death is the last in any case: where copies of a slice
// ran beside others in several servers that ended, nothing says that it was the slice, and its
// caller is told to try again. An older attempt than the pending one is not published again:
// nobody waits for it.
func (q *Queue) diedLocked(r *request, i int, mark *work.Mark, now time.Time) {
	s := &r.slices[i]
	d := death{mark.WorkerID, mark.WorkerEpoch, mark.Attempt}
	if mark.Attempt > s.attempt || !s.state.begun() || s.burying || slices.Contains(s.died, d) {
		return
	}
	s.died = append(s.died, d)
	if s.alone && mark.Alone {
		s.aloneDied++
	}
	s.alone = true
	switch {
	case s.aloneDied >= aloneDeaths:
		s.burying = true
		r.takenLocked(s, mark.WorkerID, mark.WorkerEpoch, now)
		q.bury(r, i)
		return
	case len(s.died) >= maxDeaths:
		q.metrics.ended.Inc()
		q.supersede(r.line, s)
		r.endSliceLocked(i, errs.ServersEnded(len(s.died)), now)
		return
	}
	if mark.Attempt < s.attempt {
		return
	}
	q.metrics.republishes.WithLabelValues("server_died").Inc()
	r.requeueLocked(s, true, 0, now)
	q.wakeKeeper()
}

// silentLocked has a slice published again whose server answers nothing any more. That says nothing
// about the slice, so its next attempt needs no server for itself. Should the server go on, the
// first result counts.
func (q *Queue) silentLocked(r *request, s *slice, mark *work.Mark, now time.Time) {
	if mark.Attempt != s.attempt || !s.state.begun() || s.state == queued || s.burying || s.fetching {
		return
	}
	q.metrics.republishes.WithLabelValues("server_silent").Inc()
	q.supersede(r.line, s)
	r.requeueLocked(s, true, 0, now)
	q.wakeKeeper()
}

// result puts a result in its place. bytes more are held for it. m brought it.
func (q *Queue) result(
	r *request, res *work.Result, bytes int64, m *nats.Msg, now time.Time,
) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.indexOf(res.WorkItemID, res.Index)
	if err != nil {
		return nil, err
	}
	s := &r.slices[i]
	switch {
	case s.state == done || r.over:
		return receipts[r.doneLocked(i)], nil
	case s.state == idle:
		return nil, fmt.Errorf("a result of slice %d, which was not sent", i)
	case s.fetching:
		return nil, nil // the worker asks again
	case res.ResultRef != "" && res.Success:
		return nil, q.fetchLocked(r, i, res, m, now)
	}
	q.putLocked(r, i, res, bytes, now)
	return receipts[work.Stored], nil
}

// doneLocked returns the receipt for a result of a slice that is done.
func (r *request) doneLocked(i int) string {
	if r.over || r.slices[i].result == nil {
		return work.Unknown
	}
	return work.Duplicate
}

// putLocked ends slice i with a result, or with the error that it holds.
func (q *Queue) putLocked(r *request, i int, res *work.Result, bytes int64, now time.Time) {
	s := &r.slices[i]
	if err := resultError(res, s.end-s.first); err != nil {
		r.failLocked(i, err, true, now)
		return
	}
	if err := r.work.Hold(bytes, s.end-s.first); err != nil {
		r.failLocked(i, err, true, now)
		return
	}
	if res.Attempt < s.attempt {
		q.supersede(r.line, s) // its next attempt need not run
	}
	r.ranLocked(s, ms(res.ProcessingMS), now)
	r.line.answered(s, ms(res.InferenceMS), now)
	r.storeLocked(i, res, now)
}

// resultError returns the error that a result of so many items holds, or why it is none.
func resultError(res *work.Result, items int) error {
	if res.Success {
		if len(res.Results) != items {
			return errs.Internal(fmt.Errorf("queue: worker %s sent %d results for %d items",
				clip(res.WorkerID), len(res.Results), items))
		}
		return nil
	}
	if len(res.Err) > 0 {
		e, err := errs.FromMsgpack(res.Err)
		if err == nil {
			return e
		}
		return errs.Internal(fmt.Errorf("queue: the error of worker %s: %w", clip(res.WorkerID), err))
	}
	return errs.Inference("inference", errors.New(clip(res.ErrorCode)+": "+clip(res.Error)))
}
