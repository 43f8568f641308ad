package configpoll

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// Deltas are counted by whether they bring a model, or else why they are not heard.
func TestDeltasAreCounted(t *testing.T) {
	var d Deltas
	registry := prometheus.NewRegistry()
	d.Register(registry, "deltas_total")
	for _, text := range []string{
		`{"router_id":"sie-config","model_config":"sie_id: a"}`,
		`{"router_id":"sie-config","model_config":{"a":1}}`,
		`{"router_id":"sie-config","model_config":""}`, `{"router_id":"sie-config","model_config":null}`,
		`{"router_id":"sie-config-1"}`, `{"router_id":"evil","model_config":"x"}`, `{`, `[]`,
	} {
		d.Hear(&nats.Msg{Data: []byte(text)}, []string{"sie-config"}, slog.New(slog.DiscardHandler))
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%v %v", families, err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
	}
	for labels, want := range map[string]float64{"model_added applied": 2, "epoch_bump applied": 3,
		"model_added rejected_untrusted": 1, "model_added parse_error": 2} {
		if got[labels] != want {
			t.Errorf("%s: %v, want %v", labels, got[labels], want)
		}
	}
	if len(got) != 4 {
		t.Errorf("%v", got)
	}
}
