package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// Clients choose the names of their pools, so none is a label, neither of what waits nor of a dead
// letter: the lane of the workers is.
func TestAPoolOfAClientIsNoLabel(t *testing.T) {
	registry := prometheus.NewRegistry()
	q, err := New(Options{Router: "gw", Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	var d Demand = &noted{}
	q.demand.Store(&d)
	q.begin(newWorld(1, 0))
	mine := lane
	mine.Pool = "of-client-mine"
	const id = "0190a6b4-7e2c-7000-8000-000000000002"
	text := []msgp.Raw{msgp.AppendString(nil, "x")}
	r := newRequest(id, q.line(mine, modelID), admit.Unbounded(t.Context()), work.Item{RequestID: id}, text,
		cut(text, 1, 0, 1<<19, nil))
	if got := q.States(); len(got) != 1 || got[0].Lane != mine || got[0].Home != lane {
		t.Errorf("%+v", got)
	}
	r.mu.Lock()
	r.next = 1
	r.slices[0].seq = 7
	r.setLocked(&r.slices[0], taken, time.Now())
	if got := series(t, registry, "sie_gateway_queue_unanswered_items",
		map[string]string{"pool": lane.Pool, "model": modelID}); got != 1 {
		t.Errorf("%v items are unanswered", got)
	}
	r.slices[0].burying, r.slices[0].aloneDied = true, aloneDeaths
	q.bury(r, 0)
	r.mu.Unlock()
	<-r.wake
	r.mu.Lock()
	r.endLocked(time.Now())
	r.mu.Unlock()
	q.Close()
	letter := map[string]string{"stream": bus.StreamName(lane.Pool),
		"consumer": bus.ConsumerName(lane.WorkSubject(modelID))}
	if got := series(t, registry, "sie_gateway_dlq_events_total", letter); got != 1 {
		t.Errorf("%v dead letters of %v", got, letter)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if text := f.String(); strings.Contains(text, mine.Pool) ||
			strings.Contains(text, bus.ConsumerName(mine.WorkSubject(modelID))) {
			t.Errorf("%s names a client's pool: %s", f.GetName(), text)
		}
	}
}
