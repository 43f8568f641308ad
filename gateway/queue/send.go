package queue

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/weights/payload"
)

// buffers holds buffers of messages, which the connection copies.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxKept bounds a buffer that is used again.
const maxKept = 512 << 10

// send publishes slice i, which is in state from. It is for the first time when from is idle.
func (q *Queue) send(r *request, i int, from state) {
	now := time.Now()
	epoch := r.line.pool.state().epoch
	r.mu.Lock()
	s := &r.slices[i]
	if r.over || s.state != from {
		r.mu.Unlock()
		return
	}
	s.tries++
	s.sentAt, s.epoch = now, epoch
	r.setLocked(s, sent, now)
	item := r.item
	item.Attempt, item.Alone, item.DiedOn = s.attempt, s.alone, s.diedOn()
	tries, first, end, offload := s.tries, s.first, s.end, s.offload
	r.mu.Unlock()

	item.WorkItemID, item.Index = r.workItemID(i), uint32(i)
	item.FirstIndex = uint32(first)
	if offload {
		r.detach(&item, i)
	} else {
		item.Items = r.items[first:end]
	}
	item.Timestamp, item.Deadline = epochSeconds(now), epochSeconds(r.late)
	if err := q.publish(r, &item, now); err != nil {
		r.mu.Lock()
		if s.state == sent && s.attempt == item.Attempt && s.tries == tries {
			q.metrics.republishes.WithLabelValues("not_sent").Inc()
			r.requeueLocked(s, false, backoff(tries), now)
		}
		r.mu.Unlock()
	}
}

func epochSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// publish sends a work item. The broker's answer goes to the inbox.
func (q *Queue) publish(r *request, item *work.Item, now time.Time) error {
	buffer := buffers.Get().(*[]byte)
	data, err := item.MarshalMsg((*buffer)[:0])
	if err != nil {
		return err
	}
	left := max(r.late.Sub(now), time.Second)
	m := &nats.Msg{
		Subject: r.line.subject, Data: data,
		Reply: ackSubject(item.ReplySubject, int(item.Index), item.Attempt),
		Header: nats.Header{
			bus.HeaderMsgID: {item.WorkItemID + "#" + strconv.FormatUint(uint64(item.Attempt), 10)},
			bus.HeaderTTL:   {strconv.FormatInt(int64((left+time.Second-1)/time.Second), 10) + "s"},
		},
	}
	err = q.broker.Publish(m)
	if cap(data) <= maxKept {
		*buffer = data
		buffers.Put(buffer)
	}
	return err
}

// offload stores the items of the slices that are too large for a message. The gateway deletes them
// when the request has ended.
func (q *Queue) offload(r *request) error {
	for i := range r.slices {
		s := &r.slices[i]
		if !s.offload {
			continue
		}
		item := r.item
		p := item.Detach(r.items[s.first:s.end])
		if err := r.work.Hold(int64(s.bytes), s.end-s.first); err != nil { // of the copy
			return err
		}
		data, err := p.MarshalMsg(nil)
		if err != nil {
			return errs.Internal(err)
		}
		ctx, cancel := context.WithTimeout(r.work.Context(), storeTime)
		err = q.opt.Store.Put(ctx, r.workItemID(i), data)
		cancel()
		r.work.Give(int64(s.bytes))
		if r.stored == nil {
			r.stored = map[int]storedItems{}
		}
		r.stored[i] = storedItems{payload.Sum(data), uint64(len(data))}
		r.keys = append(r.keys, r.workItemID(i)) // also of one that perhaps was stored
		if err != nil {
			if cause := context.Cause(r.work.Context()); cause != nil {
				return cause
			}
			e := errs.NotStarted("The payload store did not take the request's items", awayRetry)
			e.Cause = err
			return e
		}
		q.metrics.offloads.Inc()
	}
	return nil
}

// storedItems describes the payload of a slice.
type storedItems struct {
	sum   []byte
	bytes uint64
}

// detach makes item, a copy of what all slices have in common, name the payload of slice i in place
// of what is in it.
func (r *request) detach(item *work.Item, i int) {
	item.Detach(nil)
	item.PayloadRef = r.workItemID(i)
	item.PayloadSHA256, item.PayloadBytes = r.stored[i].sum, r.stored[i].bytes
}

// discard has payloads deleted in the background.
func (q *Queue) discard(keys ...string) {
	if q.opt.Store == nil {
		return
	}
	for _, key := range keys {
		select {
		case q.deletes <- key:
		default:
			q.metrics.undeleted.Inc()
		}
	}
}

// delete deletes payloads, one after another, and what others have left in the store. When the
// queue is closed it deletes what waits.
func (q *Queue) delete() {
	if q.opt.Store == nil {
		return
	}
	expire := time.NewTimer(expireFirst)
	defer expire.Stop()
	one := func(ctx context.Context, key string) error {
		ctx, cancel := context.WithTimeout(ctx, storeTime)
		defer cancel()
		return q.opt.Store.Delete(ctx, key)
	}
	left := func(key string, err error) {
		q.metrics.undeleted.Inc()
		q.opt.Log.Warn("a payload was not deleted", "key", key, "error", err)
	}
	cut := "" // the key whose deletion the end of the queue interrupted
	for q.ctx.Err() == nil {
		select {
		case key := <-q.deletes:
			if err := one(q.ctx, key); err != nil && q.ctx.Err() != nil {
				cut = key
			} else if err != nil {
				left(key, err)
			}
		case <-expire.C:
			expire.Reset(expireEvery)
			ctx, cancel := context.WithTimeout(q.ctx, expireTime)
			n, err := q.opt.Store.Expire(ctx, time.Now().Add(-payload.Lifetime))
			cancel()
			if n > 0 || err != nil {
				q.opt.Log.Warn("payloads that nobody deleted were removed", "count", n, "error", err)
			}
		case <-q.ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	for key := cut; ; key = <-q.deletes {
		if key != "" {
			if err := one(ctx, key); err != nil {
				left(key, err)
			}
		}
		if len(q.deletes) == 0 || ctx.Err() != nil {
			return
		}
	}
}

// place is a message of a stream.
type place struct {
	pool string
	seq  uint64
}

// supersede has the message of a slice removed, because another attempt takes its place: a worker
// that gets it when its own worker is gone would run the slice a second time. There is no promise.
// A message of an older stream is left alone: a younger one has another under its sequence.
func (q *Queue) supersede(l *line, s *slice) {
	if s.seq == 0 || s.epoch != l.pool.state().epoch {
		return
	}
	select {
	case q.removes <- place{l.pool.name, s.seq}:
	default:
	}
}

// remove removes messages, one after another.
func (q *Queue) remove() {
	for {
		select {
		case <-q.ctx.Done():
			return
		case p := <-q.removes:
			ctx, cancel := context.WithTimeout(q.ctx, apiTimeout)
			if err := q.broker.Remove(ctx, p.pool, p.seq); err != nil {
				q.opt.Log.Debug("a message is still in its stream",
					"pool", p.pool, "sequence", p.seq, "error", err)
			}
			cancel()
		}
	}
}
