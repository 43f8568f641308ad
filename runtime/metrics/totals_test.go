package metrics

import (
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/api"
)

func TestTotals(t *testing.T) {
	m := New()
	m.Request("m", "encode", Success)
	m.Request("m", "encode", QueueFull)
	m.Request("", "encode", Rejected)
	m.Served("m", "encode", 3, 40, api.Timings{})
	m.Batch("m", 2, 30, 500*time.Millisecond)
	m.Batch("m", 1, 10, 250*time.Millisecond)
	if got, want := m.Totals(), (api.Totals{
		Requests:    1,
		Failed:      2,
		Items:       3,
		Tokens:      40,
		Batches:     2,
		BatchItems:  3,
		BatchTokens: 40,
		BusySeconds: 0.75,
	}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
