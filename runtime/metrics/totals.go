package metrics

import (
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/api"
)

type totals struct {
	requests, failed, items, tokens, batches, batchItems, batchTokens, busy atomic.Int64
}

// Totals returns the sums over all models. They are read one after the other, so a request may
// already be in one and not yet in the next.
func (m *Metrics) Totals() api.Totals {
	t := &m.totals
	return api.Totals{
		Requests:    t.requests.Load(),
		Failed:      t.failed.Load(),
		Items:       t.items.Load(),
		Tokens:      t.tokens.Load(),
		Batches:     t.batches.Load(),
		BatchItems:  t.batchItems.Load(),
		BatchTokens: t.batchTokens.Load(),
		BusySeconds: time.Duration(t.busy.Load()).Seconds(),
	}
}
