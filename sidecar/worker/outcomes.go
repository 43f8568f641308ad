package worker

import (
	"fmt"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/results"
	"github.com/sie-engine/sie/weights/payload"
)

// outcome handles the outcome of a slice of a call.
func (c *core) outcome(call string, o *ipc.Outcome) {
	s := c.slices[o.WorkItemID]
	if s == nil || s.state != sent || s.call != call {
		c.do.count("bad_outcomes", "unknown")
		return
	}
	c.left(s)
	c.do.count("outcomes", disposition(o))
	s.model.learn(s.bytes, o.InputTokens)
	if s.dropped {
		c.forget(s)
		return
	}
	if o.Disposition == ipc.NakRetry {
		after := nakOther
		if o.NakDelayMS != nil && *o.NakDelayMS >= 0 {
			after = min(time.Duration(*o.NakDelayMS*1e6), nakBase)
		}
		s.model.refused()
		s.state = fetching // it is in no queue
		c.giveBack(s, after, "server_refused")
		return
	}
	s.model.answered(s.tokens)
	if disposition(o) == "other" {
		err := fmt.Errorf("an outcome's disposition is %.40q", o.Disposition)
		c.keep(s, s.refusal(c.self, errs.Internal(err)))
		return
	}
	if n := len(o.Result); n > c.transfer-stampRoom {
		c.storeResult(s, o.Result)
		return
	}
	data, err := results.Stamp(o.Result, c.stamp(s))
	switch {
	case err != nil:
		c.do.log("error", "an outcome of the server cannot be read", s, err)
		data = s.refusal(c.self, errs.Internal(err))
	case !c.kept.OneMessage(len(data)) && !s.item.AcceptsChunks:
		data = c.tooLarge(s, len(data))
	case c.kept.Bytes()+int64(len(data)) > hardKeptBytes && c.kept.Len() > 0:
		s.state = fetching // it is in no queue
		c.giveBack(s, nakFull, "results_full")
		return
	}
	c.keep(s, data)
}

// tooLarge returns the refusal of a slice whose result of n bytes is more than a message of the
// broker has, to a gateway that takes no chunks.
func (c *core) tooLarge(s *slice, n int) []byte {
	return s.refusal(c.self, errs.TransferTooLarge("items", int64(n), int64(c.maxPayload), 0, false))
}

// refuseTooLarge gives each result that waits and is too large for this broker's messages, though
// it was not for the last one's, the end that outcome would give it.
func (c *core) refuseTooLarge() {
	for _, s := range c.slices {
		if e := s.entry; e != nil && !s.item.AcceptsChunks && !c.kept.OneMessage(len(e.Data)) {
			c.kept.Remove(e)
			c.keep(s, c.tooLarge(s, len(e.Data)))
		}
	}
}

// stampRoom is what results.Stamp adds to a result.
const stampRoom = 64 << 10

// stamp returns what the sidecar knows of a slice's result.
func (c *core) stamp(s *slice) *work.Result {
	return &work.Result{
		WorkItemID: s.item.WorkItemID, RequestID: s.item.RequestID, Index: s.item.Index,
		Attempt: s.item.Attempt, WorkerID: c.self, QueueMS: s.queueMS, PayloadFetchMS: s.fetchMS,
	}
}

// storeResult stores a result that is too large to be sent, as the server gave it. What is sent
// names it.
func (c *core) storeResult(s *slice, result []byte) {
	n := int64(len(result))
	switch {
	case !c.hasStore || !s.item.AcceptsRef:
		c.keep(s, s.refusal(c.self, errs.TransferTooLarge("items", n, int64(c.transfer), 0, true)))
		return
	case n > payload.MaxBytes:
		c.keep(s, s.refusal(c.self, errs.TransferTooLarge("items", n, payload.MaxBytes, 0, false)))
		return
	case c.storing > 0 && c.storing+n > maxStoringBytes:
		s.state = fetching // it is in no queue
		c.giveBack(s, nakFull, "results_full")
		return
	}
	s.state, s.storing = storing, len(result)
	s.key = payload.ResultKey(s.item.WorkItemID, s.item.Attempt, c.epoch)
	c.storing += n
	c.bytes -= int64(len(s.data))
	c.fetchedNoMore(s)
	s.data = nil
	c.do.store(s, s.key, result)
}

// stored handles the end of the storing of a result. reference names it; err says why it is not
// stored.
func (c *core) stored(s *slice, reference *work.Result, result []byte, err error) {
	c.storing -= int64(s.storing)
	s.storing = 0
	c.scan = true
	if c.slices[s.item.WorkItemID] != s { // nobody wants it any more
		c.do.discard(s.key)
		return
	}
	var data []byte
	if err == nil {
		stamp := c.stamp(s)
		stamp.ResultRef, stamp.ResultSHA256 = reference.ResultRef, reference.ResultSHA256
		stamp.ResultBytes = reference.ResultBytes
		data, err = results.Stamp(result, stamp)
	}
	s.state = fetching // it is in no queue
	if err != nil {
		c.do.count("payload_errors", "")
		c.do.log("warn", "a result could not be stored", s, err)
		e := errs.NotStarted("The payload store did not take the request's results", storeRetry)
		c.keep(s, s.refusal(c.self, e))
		return
	}
	c.keep(s, data)
}

func disposition(o *ipc.Outcome) string {
	switch o.Disposition {
	case ipc.PublishAndAck, ipc.PublishErrorAndAck, ipc.NakRetry:
		return o.Disposition
	}
	return "other"
}

// left takes a slice out of the server's credit.
func (c *core) left(s *slice) {
	c.endCall(s)
	c.hot[s.model] = true
	s.model.inflight -= s.tokens
	s.model.running--
	c.inServer--
	if c.solo == s {
		c.solo, c.scan = nil, true
	}
}

// ended handles the end of a call. Every slice has its outcome by then, unless err says why the
// call has none, or the connection was lost.
func (c *core) ended(call string, err error) {
	for _, s := range c.slices {
		if s.state != sent || s.call != call {
			continue
		}
		c.left(s)
		if s.dropped {
			c.forget(s)
			continue
		}
		if err == nil {
			err = fmt.Errorf("the server sent no outcome of a slice")
		}
		c.do.log("error", "a batch failed", s, err)
		s.state = fetching // it is in no queue
		if e := errs.As(err); e.Transient() {
			c.giveBack(s, nakOther, "batch_failed")
		} else {
			c.keep(s, s.refusal(c.self, e))
		}
	}
}

// keep keeps a result, or ends the slice when nobody wants one.
func (c *core) keep(s *slice, data []byte) {
	if s.item.ReplySubject == "" {
		c.done.Add(s.item.WorkItemID, s.item.Attempt, false)
		c.settle(s, c.do.ack)
		c.forget(s)
		return
	}
	c.keepEntry(s, &results.Entry{Data: data})
}

func (c *core) keepEntry(s *slice, e *results.Entry) {
	if s.state == queued && s.model != nil {
		s.model.remove(s)
		c.alone = without(c.alone, s)
	}
	s.state = keeping
	c.bytes -= int64(len(s.data))
	c.fetchedNoMore(s)
	s.data = nil
	e.ID, e.Subject = s.item.WorkItemID, s.item.ReplySubject
	e.Index, e.Request = s.item.Index, s.item.RequestID
	s.entry = e
	c.kept.Add(c.now, e)
}

// maxChunksAtOnce bounds the chunks that are sent between two looks at what else happened.
const maxChunksAtOnce = 8

// retry sends the results whose time has come, and chunks of large ones.
func (c *core) retry() {
	if !c.connected {
		return
	}
	for e := c.kept.Due(c.now); e != nil; e = c.kept.Due(c.now) {
		c.sendEntry(e)
	}
	chunks := maxChunksAtOnce
	for chunks > 0 && len(c.sending) > 0 {
		e := c.sending[0]
		m, more, err := c.kept.Message(e)
		if err == nil && m.Data != nil {
			c.post(e, m)
			chunks--
		}
		if !more {
			c.sending = c.sending[1:]
		}
	}
}

// sendEntry sends an entry, or begins to.
func (c *core) sendEntry(e *results.Entry) {
	for _, x := range c.sending {
		if x == e {
			return
		}
	}
	m, more, err := c.kept.Message(e)
	if err != nil {
		c.do.log("error", "a result cannot be sent", c.slices[e.ID], err)
		return
	}
	c.post(e, m)
	if more {
		c.sending = append(c.sending, e)
	}
}

func (c *core) post(e *results.Entry, m results.Message) {
	if m.Request {
		c.do.request(e.Subject, e.Number(), m.Data)
	} else {
		c.do.publish(e.Subject, m.Data)
	}
}

// receipt handles the reply to a request of number. data is empty when nobody listens.
func (c *core) receipt(number string, data []byte) {
	if len(data) == 0 {
		c.do.count("receipts", "no_responders")
		return
	}
	var r work.Receipt
	if _, err := r.UnmarshalMsg(data); err != nil {
		c.do.count("bad_messages", "receipt")
		return
	}
	e, settled, resend, err := c.kept.Receipt(number, &r)
	if err != nil {
		c.do.count("bad_messages", "receipt")
		c.do.log("warn", "a receipt cannot be used", nil, err)
		return
	}
	if e == nil {
		return
	}
	c.do.count("receipts", r.State)
	if resend {
		c.sendEntry(e)
		return
	}
	s := c.slices[e.ID]
	if !settled || s == nil || s.entry != e {
		return
	}
	if r.State == work.Stored {
		s.key = "" // the gateway deletes it
	}
	c.done.Add(e.ID, s.item.Attempt, e.Died)
	if e.Died {
		c.settle(s, c.do.term)
	} else {
		c.settle(s, c.do.ack)
	}
	c.forget(s)
}
