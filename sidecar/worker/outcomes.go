package worker

import (
	"fmt"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/results"
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
	data, err := results.Stamp(o.Result, &work.Result{
		WorkItemID: s.item.WorkItemID, RequestID: s.item.RequestID, Index: s.item.Index,
		Attempt: s.item.Attempt, WorkerID: c.self, QueueMS: s.queueMS, PayloadFetchMS: s.fetchMS,
	})
	switch {
	case err != nil:
		c.do.log("error", "an outcome of the server cannot be read", s, err)
		data = s.refusal(c.self, errs.Internal(err))
	case len(data) > work.MaxTransferBytes,
		!c.kept.OneMessage(len(data)) && !s.item.AcceptsChunks:
		data = s.refusal(c.self, errs.TooLong("items", fmt.Sprintf(
			"the result has %d bytes, more than the %d that this cluster carries; ask for fewer items at once",
			len(data), c.transferLimit(s))))
	case c.kept.Bytes()+int64(len(data)) > hardKeptBytes && c.kept.Len() > 0:
		s.state = fetching // it is in no queue
		c.giveBack(s, nakFull, "results_full")
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

func (c *core) transferLimit(s *slice) int {
	if s.item.AcceptsChunks {
		return work.MaxTransferBytes
	}
	return c.maxPayload
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
		if s := c.slices[e.ID]; s != nil && c.expired(s) {
			c.drop(s, "deadline")
			continue
		}
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
	c.done.Add(e.ID, s.item.Attempt, e.Died)
	if e.Died {
		c.settle(s, c.do.term)
	} else {
		c.settle(s, c.do.ack)
	}
	c.forget(s)
}
