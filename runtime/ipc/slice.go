package ipc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/tinylib/msgp/msgp"
	"go.opentelemetry.io/otel/attribute"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/internal/work"
)

// raw returns the work item of a slice, which is in the field of its operation.
func raw(it *wire.RunItem) msgp.Raw {
	for _, x := range [...]msgp.Raw{
		it.Encode, it.Score, it.Extract, it.Classify, it.Tokenize, it.Detokenize,
	} {
		if present(x) {
			return x
		}
	}
	return nil
}

// present reports whether a raw value is there and is not a null.
func present(x msgp.Raw) bool { return len(x) > 0 && x[0] != 0xc0 }

// runSlice runs one slice as a request of its own and returns its outcome. The bytes of its work
// item are reserved; they are freed with the outcome.
func (s *Server) runSlice(it *wire.RunItem, model string, x *slice) outcome {
	began, bytes := time.Now(), raw(it)
	if bytes == nil {
		return failed(it, nil,
			errs.Invalidf("items", "the slice of operation %s has no work item", quoted(it.Op)), nil)
	}
	held := int64(len(bytes))
	free := func() { s.gate.Free(held) }
	wi, err := work.ReadItem(bytes)
	if err != nil {
		return failed(it, nil, errs.Invalid("items", err.Error()), free)
	}
	it.Encode, it.Score, it.Extract, it.Classify, it.Tokenize, it.Detokenize = nil, nil, nil, nil, nil, nil
	// the reference says these beside the work item
	wi.Operation, wi.ModelID = it.Op, cmp.Or(wi.ModelID, model)
	w, err := s.gate.Enter(admit.Request{Bytes: held, Field: fieldOf(wi), Began: began})
	if err != nil {
		return failed(it, wi, err, free)
	}
	x.attach(w)
	if it.TimeoutMS > 0 {
		limit := time.Duration(min(it.TimeoutMS, maxTimeoutMS) * float64(time.Millisecond))
		defer time.AfterFunc(limit, func() { x.cancel(errs.Late(limit)) }).Stop()
	}
	span := s.span(it, wi, began)
	a, err := s.answer(it, wi, w)
	s.log(it, wi, span, began, a, err)
	w.Keep() // until the outcome is written
	w.End()
	release := func() {
		w.Release()
		free()
	}
	if err != nil {
		return failed(it, wi, err, release)
	}
	o := a.outcome(it, wi)
	o.release = release
	return o
}

// maxTimeoutMS bounds the time of a slice; the gate's own limit is below it.
const maxTimeoutMS = 24 * 3600 * 1000

// span begins a span that continues the request's trace, or returns nil.
func (s *Server) span(it *wire.RunItem, wi *work.Item, began time.Time) *obs.Span {
	return obs.BeginSpan(s.opt.Tracer, cmp.Or(it.TraceParent, wi.TraceParent),
		cmp.Or(it.TraceState, wi.TraceState), "ipc."+it.Op, began,
		attribute.String("model", wi.ModelID), attribute.String("request_id", wi.CallerID),
		attribute.String("work_item_id", it.WorkItemID), attribute.Int("attempt", int(wi.Attempt)))
}

// parts records the phases of a slice that was answered, one after another: they are known by their
// durations alone.
func parts(span *obs.Span, began time.Time, t *api.Timings) {
	at := began.Add(t.Preprocess)
	for _, part := range []struct {
		name string
		took time.Duration
	}{{"tokenize", t.Tokenize}, {"batch wait", t.BatchWait}, {"batch", t.Inference}} {
		span.Child(part.name, at, at.Add(part.took))
		at = at.Add(part.took)
	}
}

// log ends the span of a slice and writes a line about it. A failure of the server is an error of
// the log, with its cause.
func (s *Server) log(
	it *wire.RunItem, wi *work.Item, span *obs.Span, began time.Time, a *answer, err error,
) {
	code := ""
	if err != nil {
		code = string(errs.As(err).Code)
		if errors.Is(err, admit.ErrClientGone) {
			code = "cancelled"
		}
	}
	if a != nil {
		t := a.out.Timings
		parts(span, began, &t)
		span.End(time.Now(), code, attribute.Int("batch_size", a.out.Items),
			attribute.Int("tokens", a.out.Tokens),
			attribute.Float64("timing.queue_ms", api.Milliseconds(t.BatchWait)),
			attribute.Float64("timing.tokenization_ms", api.Milliseconds(t.Tokenize)),
			attribute.Float64("timing.inference_ms", api.Milliseconds(t.Inference)))
	} else {
		span.End(time.Now(), code)
	}
	level, message := slog.LevelDebug, "slice"
	if code == string(errs.InternalError) || code == string(errs.InferenceError) {
		level, message = slog.LevelError, "slice failed"
	} else if s.opt.AccessLog {
		level = slog.LevelInfo
	}
	if !s.opt.Log.Enabled(context.Background(), level) {
		return
	}
	line := []any{
		"id", wi.CallerID, "work_item", it.WorkItemID, "attempt", wi.Attempt, "op", it.Op,
		"model", wi.ModelID, "ms", api.Milliseconds(time.Since(began)), "error", code,
	}
	if e := errs.As(err); e != nil && e.Cause != nil {
		line = append(line, "cause", e.Cause.Error())
	}
	s.opt.Log.Log(context.Background(), level, message, line...)
}

// fieldOf returns what the client calls the items of a slice.
func fieldOf(wi *work.Item) string {
	switch {
	case wi.Foreign != nil && wi.Foreign.Field != "":
		return wi.Foreign.Field
	case wi.Operation == work.Tokenize:
		return "inputs"
	case wi.Operation == work.Detokenize:
		return "ids"
	}
	return "items"
}

// ofRequest returns an error of a slice with the indices of its request: every field[i] becomes
// field[first+i].
func ofRequest(e *errs.Error, first int, field string) *errs.Error {
	if first == 0 {
		return e
	}
	out := *e
	out.Message, out.Param = shifted(e.Message, field, first), shifted(e.Param, field, first)
	if e.Item != nil {
		n := *e.Item + first
		out.Item = &n
	}
	return &out
}

// shifted returns s with first added to every index in brackets that follows field.
func shifted(s, field string, first int) string {
	var b strings.Builder
	for {
		at := strings.Index(s, field+"[")
		if at < 0 {
			b.WriteString(s)
			return b.String()
		}
		at += len(field) + 1
		b.WriteString(s[:at])
		s = s[at:]
		end := strings.IndexByte(s, ']')
		if end < 0 {
			continue
		}
		if n, err := strconv.Atoi(s[:end]); err == nil && n >= 0 {
			b.WriteString(strconv.Itoa(n + first))
			s = s[end:]
		}
	}
}
