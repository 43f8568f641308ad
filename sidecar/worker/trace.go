package worker

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/sie-engine/sie/internal/obs"
)

// beginSpan begins the span of a slice in hand, from its arrival until it is forgotten: receipted,
// dropped or given back. It is below the span of its gateway's queue.
func (c *core) beginSpan(s *slice) {
	it := &s.item
	s.span = obs.BeginSpan(c.tracer, it.TraceParent, it.TraceState, "slice", s.taken,
		attribute.String("sie.worker", c.self), attribute.String("sie.model", it.ModelID),
		attribute.String("sie.work_item_id", it.WorkItemID), attribute.Int("sie.attempt", int(it.Attempt)))
}

// beginCall begins the span of a slice's time in the server, and returns the parent of the server's
// own spans.
func (c *core) beginCall(s *slice) (parent, state string) {
	parent, state = s.span.Carry(s.item.TraceParent, s.item.TraceState)
	s.callSpan = obs.BeginSpan(c.tracer, parent, state, "ipc", c.now)
	return s.callSpan.Carry(parent, state)
}

// endCall ends the span of a slice's time in the server.
func (c *core) endCall(s *slice) {
	s.callSpan.End(c.now, "")
	s.callSpan = nil
}

// endSpan ends the span of a slice, and writes its line in the access log. The span of a slice that
// has no result, because another worker is to run it or nobody waits, says so.
func (c *core) endSpan(s *slice) {
	code := ""
	if s.entry == nil {
		code = "no result"
	}
	s.span.End(c.now, code)
	s.span = nil
	if c.access {
		c.do.log("info", "slice", s, nil)
	}
}
