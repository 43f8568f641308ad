package queue

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// run publishes a request's slices and waits for their results, its own end, or an error.
// Afterwards nothing refers to the request any more, and its results belong to the caller.
func (q *Queue) run(r *request) error {
	defer func() { q.discard(r.keys...) }()
	if err := q.offload(r); err != nil {
		return err
	}
	q.mu.Lock()
	q.requests[r.id] = r
	q.mu.Unlock()
	r.line.join(r)
	err := q.wait(r)
	q.mu.Lock()
	delete(q.requests, r.id)
	q.mu.Unlock()

	now := time.Now()
	r.mu.Lock()
	running := r.endLocked(now)
	r.mu.Unlock()
	r.line.leave(r, now)
	if running {
		q.cancel(r.id, 0)
	}
	return err
}

// wait is the part of run during which messages for the request are taken.
func (q *Queue) wait(r *request) error {
	late := time.NewTimer(time.Until(r.late))
	defer late.Stop()
	ctx := r.work.Context()
	for {
		for {
			r.mu.Lock()
			now := time.Now()
			i, from := r.beginLocked(q.opt.MaxSlices, now), idle
			if i >= 0 {
				if !q.connected.Load() || !r.line.open.Load() {
					r.slices[i].due = now
					r.setLocked(&r.slices[i], queued, now)
					from = queued
				}
			}
			cancel, finished, err := r.cancel, r.finishedLocked(), r.err
			r.cancel = -1
			r.mu.Unlock()
			if cancel >= 0 {
				q.cancel(r.id, cancel)
			}
			if finished {
				return err
			}
			if i < 0 {
				break
			}
			if from == queued {
				q.wakeKeeper()
			} else {
				q.send(r, i, idle)
			}
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			if e := new(errs.Error); errors.As(context.Cause(ctx), &e) && e.Code == errs.DeadlineExceeded {
				return q.late(r)
			}
			return context.Cause(ctx)
		case <-late.C:
			return q.late(r)
		}
	}
}

// late returns the error of a request whose time is up.
func (q *Queue) late(r *request) error {
	q.metrics.late.Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finishedLocked() {
		return r.err
	}
	return r.lateErrorLocked(q.connected.Load(), time.Now())
}

// cancel tells sidecars to drop a request's slices from one on. A sidecar that is not told is told
// again when it says that it has one.
func (q *Queue) cancel(id string, from int) {
	var body []byte
	if from > 0 {
		var err error
		if body, err = (&work.Cancel{From: uint32(from)}).MarshalMsg(nil); err != nil {
			panic("queue: internal error: " + err.Error()) // a number always has a form
		}
	}
	m := &nats.Msg{Subject: bus.CancelSubject(q.opt.Router, id), Data: body}
	if err := q.broker.Publish(m); err != nil {
		q.opt.Log.Debug("a request was not cancelled at its workers", "request", id, "error", err)
	}
}
