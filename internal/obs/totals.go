package obs

import (
	"sync/atomic"
	"time"
)

// Totals are sums since the start, cheap enough to read many times a second.
type Totals struct {
	Requests    int64   `json:"requests"`     // finished well
	Failed      int64   `json:"failed"`       // finished otherwise, refusals included
	Items       int64   `json:"items"`        // of the requests that finished well
	Tokens      int64   `json:"tokens"`       // of those
	Batches     int64   `json:"batches"`      // on the devices
	BatchItems  int64   `json:"batch_items"`  // sequences of those
	BatchTokens int64   `json:"batch_tokens"` // tokens of those
	BusySeconds float64 `json:"busy_seconds"` // of the devices together; batches in flight at once count each
}

type totals struct {
	requests, failed, items, tokens, batches, batchItems, batchTokens, busy atomic.Int64
}

// Totals returns the sums. They are read one after the other, so a request may be in one and not yet in the next.
func (m *Metrics) Totals() Totals {
	t := &m.totals
	return Totals{Requests: t.requests.Load(), Failed: t.failed.Load(), Items: t.items.Load(), Tokens: t.tokens.Load(),
		Batches: t.batches.Load(), BatchItems: t.batchItems.Load(), BatchTokens: t.batchTokens.Load(),
		BusySeconds: time.Duration(t.busy.Load()).Seconds()}
}
