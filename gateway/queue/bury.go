package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sie-engine/sie/gateway/dlq"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
)

// bury makes slice i a dead letter and then fails its request. The slice's request lock is held by
// the caller and not needed afterwards.
func (q *Queue) bury(r *request, i int) {
	s := &r.slices[i]
	id, deaths, seq := r.workItemID(i), len(s.died), s.seq
	if s.epoch != r.line.pool.state().epoch { // another message of a younger stream has it
		seq = 0
	}
	item := r.item
	item.WorkItemID, item.Index, item.FirstIndex = id, uint32(i), uint32(s.first)
	item.Attempt, item.DiedOn, item.Alone = s.attempt, s.diedOn(), s.alone
	if s.offload {
		r.detach(&item, i)
		r.keys = slices.DeleteFunc(r.keys, func(k string) bool { return k == id }) // the letter refers to it
	} else {
		item.Items = r.items[s.first:s.end]
	}
	letter := dlq.Letter{
		ID: id, Time: time.Now(), Subject: r.line.subject, Model: r.line.model, Attempts: deaths,
		Workers: item.DiedOn, Caller: item.CallerID,
		Reason: fmt.Sprintf("it ended %d servers, %d of them while nothing else was in them",
			deaths, s.aloneDied),
	}
	q.all.Go(func() {
		ctx, cancel := context.WithTimeout(q.ctx, buryTimeout)
		defer cancel()
		var err error
		if letter.Work, err = item.MarshalMsg(nil); err == nil {
			err = q.broker.Bury(ctx, letter)
		}
		q.metrics.deadLetters.Inc()
		home := r.line.home // a client's pool is no label
		from := []string{bus.StreamName(home.Pool), bus.ConsumerName(home.WorkSubject(r.line.model))}
		q.metrics.dlqEvents.WithLabelValues(from...).Inc()
		if err != nil {
			q.metrics.unburied.Inc()
			q.metrics.dlqFailures.WithLabelValues(from...).Inc()
		}
		q.opt.Log.Error("a dead letter", "id", id, "model", r.line.model, "servers", deaths,
			"workers", letter.Workers, "request", letter.Caller, "store_error", err)
		if seq > 0 {
			if err := q.broker.Remove(ctx, r.line.pool.name, seq); err != nil {
				q.opt.Log.Debug("the work of a dead letter is still in its stream", "id", id, "error", err)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.endSliceLocked(i, errs.DeadLetter(id, deaths), time.Now())
	})
}
