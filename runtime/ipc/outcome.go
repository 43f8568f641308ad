package ipc

import (
	"errors"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
)

// outcome is the outcome of a slice before it is serialised.
type outcome struct {
	wire    wire.Outcome // without Result
	result  work.Result
	field   string // the client's name for the items
	items   int
	release func() // nil, or gives back the bytes that the slice holds; called once
}

// The delays of a slice that this server gives back.
const (
	againDelay   = 100 * time.Millisecond // another worker can run it at once
	longestDelay = 2 * time.Second
)

// failed returns the outcome of a slice that ended with an error. wi is nil if it was not read.
func failed(it *wire.RunItem, wi *work.Item, err error, release func()) outcome {
	o := outcome{release: release, field: "items"}
	o.wire = wire.Outcome{
		WorkItemID: it.WorkItemID, RequestID: it.RequestID, ItemIndex: it.ItemIndex,
		Disposition: wire.PublishErrorAndAck,
	}
	o.result = work.Result{WorkItemID: it.WorkItemID, RequestID: it.RequestID, Index: it.ItemIndex}
	if errors.Is(err, admit.ErrClientGone) {
		err = errs.Invalid("", "the request was cancelled")
	}
	e := errs.As(err)
	if wi != nil {
		o.field, o.items = fieldOf(wi), len(wi.Items)
		e = ofRequest(e, int(wi.FirstIndex), o.field)
	}
	if delay, ok := elsewhere(e); ok {
		return o.again(delay)
	}
	o.setError(e)
	return o
}

func (o *outcome) setError(e *errs.Error) {
	r := &o.result
	r.Error, r.ErrorCode, r.Err = e.Message, string(e.Code), e.AppendMsgpack(nil)
	r.RetryAfterS = e.RetryAfter.Seconds()
}

// bare returns the outcome without its result.
func (o *outcome) bare() outcome {
	out := *o
	out.wire.NakDelayMS, out.wire.InputTokens = nil, 0
	out.result = work.Result{
		WorkItemID: o.result.WorkItemID, RequestID: o.result.RequestID, Index: o.result.Index,
	}
	return out
}

// again returns the outcome that gives the slice back.
func (o *outcome) again(delay time.Duration) outcome {
	out, ms := o.bare(), api.Milliseconds(delay)
	out.wire.Disposition, out.wire.NakDelayMS = wire.NakRetry, &ms
	return out
}

// tooLarge returns the outcome of a slice whose result cannot cross.
func (o *outcome) tooLarge(bytes, most int) outcome {
	out := o.bare()
	out.wire.Disposition = wire.PublishErrorAndAck
	out.setError(errs.TransferTooLarge(o.field, int64(bytes), int64(most), o.items*most/bytes,
		most == wire.MaxTransfer))
	return out
}

// elsewhere reports whether an error is this server's alone, so that another worker may answer the
// slice, and after which time.
func elsewhere(e *errs.Error) (time.Duration, bool) {
	switch e.Code {
	case errs.Draining, errs.ModelNotLoaded:
		return againDelay, true
	case errs.ModelNotFound, errs.ModelLoading, errs.LoRALoading, errs.QueueFull:
		return min(max(e.RetryAfter, againDelay), longestDelay), true
	}
	return 0, false
}

// append appends the outcome as the map of a wire.Outcome, with its result in it.
func (o *outcome) append(dst []byte) []byte {
	w := &o.wire
	n := uint32(5)
	if w.NakDelayMS != nil {
		n++
	}
	if w.InputTokens != 0 {
		n++
	}
	dst = msgp.AppendMapHeader(dst, n)
	dst = msgp.AppendString(msgp.AppendString(dst, "work_item_id"), w.WorkItemID)
	dst = msgp.AppendString(msgp.AppendString(dst, "request_id"), w.RequestID)
	dst = msgp.AppendUint32(msgp.AppendString(dst, "item_index"), w.ItemIndex)
	dst = msgp.AppendString(msgp.AppendString(dst, "disposition"), w.Disposition)
	if w.NakDelayMS != nil {
		dst = msgp.AppendFloat64(msgp.AppendString(dst, "nak_delay_ms"), *w.NakDelayMS)
	}
	dst = msgp.AppendString(dst, "result")
	dst, err := o.result.MarshalMsg(dst)
	if err != nil { // strings, numbers and raw bytes always have a form
		panic("ipc: internal error: " + err.Error())
	}
	if w.InputTokens != 0 {
		dst = msgp.AppendInt64(msgp.AppendString(dst, "input_tokens"), w.InputTokens)
	}
	return dst
}

// appendResponseHead appends a Response up to its body, which is last.
func appendResponseHead(dst []byte, kind, id string) []byte {
	dst = msgp.AppendMapHeader(dst, 5)
	dst = msgp.AppendString(msgp.AppendString(dst, "kind"), kind)
	dst = msgp.AppendInt(msgp.AppendString(dst, "version"), wire.Version)
	dst = msgp.AppendString(msgp.AppendString(dst, "request_id"), id)
	dst = msgp.AppendBool(msgp.AppendString(dst, "ok"), true)
	return msgp.AppendString(dst, "body")
}

// sendOutcome sends one outcome of a call that goes on. A result that is too large for the caller
// becomes an error.
func (c *conn) sendOutcome(r *wire.Request, o *outcome) {
	size := o.result.Msgsize() + responseHead
	data := o.append(appendResponseHead(make([]byte, 0, size), wire.KindOutcome, r.RequestID))
	if most := transferLimit(r); len(data) > most {
		*o = o.tooLarge(len(data), most)
		data = o.append(appendResponseHead(nil, wire.KindOutcome, r.RequestID))
	}
	c.send(message{id: r.RequestID, data: data, done: o.release})
}
