package worker

import (
	"errors"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
)

// dispatch sends what the credit allows. A slice that must run alone goes first: the server empties
// for it, and nothing else is sent until its outcome is there.
func (c *core) dispatch() {
	for m := range c.hot {
		if m.state == failed && (len(m.waiting) > 0 || m.solo > 0) {
			c.answerFailed(m)
		}
	}
	if !c.responsive() || c.resultBytes() >= maxKeptBytes || c.solo != nil {
		return
	}
	if len(c.alone) > 0 {
		c.dispatchAlone()
		if c.solo != nil || c.aloneReady() {
			return
		}
	}
	for m := range c.hot {
		for m.state == loaded && len(m.waiting) > 0 && m.inflight < m.window {
			if !c.send(m, c.batch(m)) {
				break
			}
		}
	}
}

// aloneReady reports whether a slice that must run alone could run, were the server empty.
func (c *core) aloneReady() bool {
	for _, s := range c.alone {
		if s.model.state == loaded {
			return true
		}
	}
	return false
}

func (c *core) dispatchAlone() {
	for i := 0; i < len(c.alone); i++ {
		s := c.alone[i]
		if c.expired(s) {
			c.drop(s, "deadline")
			i--
			continue
		}
		if s.model.state != loaded {
			continue
		}
		if c.inServer > 0 {
			return
		}
		c.alone = append(c.alone[:i], c.alone[i+1:]...)
		if c.send(s.model, []*slice{s}) {
			c.solo = s
		} else if s.state == queued && c.slices[s.item.WorkItemID] == s {
			c.alone = append(c.alone, s)
		}
		return
	}
}

// batch takes the slices of the next RunBatch of a model from its queue: those of the group of the
// first, in order, while there is credit.
func (c *core) batch(m *model) (out []*slice) {
	tokens, bytes := m.inflight, 0
	keep := m.waiting[:0:0]
	for i, s := range m.waiting {
		if c.expired(s) {
			m.tokens -= s.tokens
			s.state = fetching // it is in no queue
			c.drop(s, "deadline")
			continue
		}
		if len(out) > 0 &&
			(tokens >= m.window || len(out) >= maxBatchSlices || bytes+len(s.data) > maxBatchBytes) {
			keep = append(keep, m.waiting[i:]...)
			break
		}
		if len(out) > 0 && s.group != out[0].group {
			keep = append(keep, s)
			continue
		}
		out = append(out, s)
		tokens, bytes = tokens+s.tokens, bytes+len(s.data)
		m.tokens -= s.tokens
	}
	m.waiting = keep
	return out
}

// send sends slices that are in no queue to the server. If it could not, it puts them back, or
// answers them, and reports false.
func (c *core) send(m *model, batch []*slice) bool {
	if len(batch) == 0 {
		return false
	}
	r := &ipc.RunBatchRequest{ModelID: m.id, LoraKey: batch[0].group.lora}
	for _, s := range batch {
		r.Items = append(r.Items, c.runItem(s))
		r.TotalCost += s.tokens
	}
	call, err := c.do.run(r)
	if err != nil {
		for _, s := range batch {
			c.endCall(s)
		}
	}
	if tooLarge := new(ipc.ErrFrame); errors.As(err, &tooLarge) {
		for _, s := range batch { // maxBatchBytes leaves only a single slice that is so large
			c.keep(s, s.refusal(c.self, errs.TooLong("items", tooLarge.Error())))
		}
		return false
	}
	if err != nil {
		c.do.count("ipc_errors", "")
		if !batch[0].item.Alone {
			for _, s := range batch {
				m.tokens += s.tokens
			}
			m.waiting = append(batch, m.waiting...)
		}
		return false
	}
	for _, s := range batch {
		s.state, s.call = sent, call
		s.queueMS = c.queueMS(s)
		m.inflight += s.tokens
		m.running++
		c.inServer++
		if s.item.Alone {
			m.solo--
		}
	}
	c.do.count("batches", batch[0].item.Operation)
	return true
}

// queueMS returns how long a slice waited, in milliseconds; 0 when the clocks of the hosts disagree
// by more.
func (c *core) queueMS(s *slice) float64 {
	ms := float64(c.now.UnixMicro())/1e3 - s.item.Timestamp*1e3
	if !(ms > 0 && ms < float64(longest.Milliseconds())) {
		return 0
	}
	return ms
}

func (c *core) runItem(s *slice) ipc.RunItem {
	it := &s.item
	parent, state := c.beginCall(s)
	out := ipc.RunItem{
		Op: it.Operation, WorkItemID: it.WorkItemID, RequestID: it.RequestID, ItemIndex: it.Index,
		PayloadFetchMS: s.fetchMS, TraceParent: parent, TraceState: state,
	}
	out.TimeoutMS = max(float64(s.until.Sub(c.now))/float64(time.Millisecond), 1)
	switch it.Operation {
	case work.Encode:
		out.Encode = s.data
	case work.Score:
		out.Score = s.data
	case work.Extract:
		out.Extract = s.data
	case work.Classify:
		out.Classify = s.data
	case work.Tokenize:
		out.Tokenize = s.data
	case work.Detokenize:
		out.Detokenize = s.data
	}
	return out
}

// answerFailed ends what waits for a model that did not load: another worker that may load it gets
// it, or its callers get the error.
func (c *core) answerFailed(m *model) {
	all := append([]*slice(nil), m.waiting...)
	for _, s := range c.alone {
		if s.model == m {
			all = append(all, s)
		}
	}
	for _, s := range all {
		if c.peers.Able(m.id) {
			c.giveBack(s, nakServer, "model_failed")
			continue
		}
		c.keep(s, s.refusal(c.self, m.err))
	}
}
