package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/sidecar/control"
	"github.com/sie-engine/sie/sidecar/health"
)

// described is a registry that keeps what its series are called.
type described struct {
	*prometheus.Registry
	texts []string
}

func (d *described) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		ch := make(chan *prometheus.Desc, 64)
		c.Describe(ch)
		close(ch)
		for desc := range ch {
			d.texts = append(d.texts, desc.String())
		}
	}
	d.Registry.MustRegister(all...)
}

// Each series of the reference's sidecar is exported, or has a reason why not. No label is the name
// of a model: the reference bounds that with a list of names, and here there is none to keep.
func TestTheReferencesSeries(t *testing.T) {
	d := &described{Registry: prometheus.NewRegistry()}
	health.NewMetrics(d)
	f, err := control.New(control.Options{URL: "http://config", Bundle: "default"})
	if err != nil {
		t.Fatal(err)
	}
	f.Register(d)
	has := func(name string) bool {
		for _, text := range d.texts {
			if strings.Contains(text, `fqName: "`+name+`"`) {
				return true
			}
		}
		return false
	}
	const (
		gateway  = "a pool's workers are chosen by its gateways; a sidecar turns nothing away for it"
		counted  = "it is the count of sie_worker_ipc_request_seconds"
		messages = "it is sie_worker_messages_received_total"
		server   = "the server times what it runs: its own series and the timings of each answer"
		onePipe  = "one connection carries all calls; there is no pool of them"
		oneOwner = "the server chooses batches; a sidecar has no scheduler and no backends"
		fetches  = "it is the count of sie_worker_payload_fetch_seconds"
		loads    = "sie_worker_ipc_request_seconds has it under its method"
		bytes    = "it is a counter here, sie_worker_payload_bytes_total"
		sizes    = "frames are bounded; sizes are those of the messages, which NATS counts"
	)
	for name, why := range map[string]string{
		"sie_worker_messages_received_total":                "",
		"sie_worker_messages_acked_total":                   "",
		"sie_worker_messages_naked_total":                   "",
		"sie_worker_pool_admission_naks_total":              gateway,
		"sie_worker_ipc_requests_total":                     counted,
		"sie_worker_ipc_failures_total":                     "",
		"sie_worker_inflight_batches":                       "",
		"sie_pull_loop_items_fetched":                       messages,
		"sie_pull_loop_batch_process_seconds":               loads,
		"sie_pull_loop_nak_unloaded_total":                  "sie_worker_slices_given_back_total has it under its reason",
		"sie_pull_loop_model_loads_total":                   "",
		"sie_worker_backend_process_seconds":                server,
		"sie_worker_backend_batch_items":                    oneOwner,
		"sie_worker_backend_process_errors_total":           "sie_worker_backend_item_outcomes_total has it under its disposition",
		"sie_worker_backend_ensure_ready_seconds":           loads,
		"sie_worker_backend_item_outcomes_total":            "",
		"sie_worker_backend_phase_seconds":                  server,
		"sie_worker_ipc_request_seconds":                    "",
		"sie_worker_ipc_request_bytes":                      sizes,
		"sie_worker_ipc_response_bytes":                     sizes,
		"sie_worker_ipc_connect_total":                      "",
		"sie_worker_ipc_reconnect_total":                    "it is sie_worker_ipc_connect_total less one",
		"sie_worker_ipc_pool_size":                          onePipe,
		"sie_worker_ipc_pool_inflight":                      onePipe,
		"sie_worker_ipc_pool_acquire_wait_seconds":          onePipe,
		"sie_worker_ipc_mux_inflight":                       "it is sie_worker_inflight_batches",
		"sie_worker_ipc_mux_acquire_wait_seconds":           onePipe,
		"sie_worker_payload_fetch_total":                    fetches,
		"sie_worker_payload_fetch_errors_total":             "",
		"sie_worker_payload_fetch_seconds":                  "",
		"sie_worker_payload_bytes":                          bytes,
		"sie_worker_jetstream_ack_failures_total":           "",
		"sie_worker_jetstream_nak_failures_total":           "sie_worker_jetstream_ack_failures_total counts every message that could not be sent",
		"sie_worker_nats_fetch_errors_total":                "",
		"sie_worker_nats_stream_errors_total":               "sie_worker_nats_fetch_errors_total has it under its reason",
		"sie_worker_nats_redelivery_total":                  "",
		"sie_worker_nats_deliver_count":                     "sie_worker_nats_redelivery_total counts what is delivered again",
		"sie_worker_config_deltas_total":                    "",
		"sie_worker_config_epoch":                           "",
		"sie_worker_shutdown_drain_seconds":                 "",
		"sie_worker_shutdown_drain_deadline_exceeded_total": "sie_worker_shutdown_drain_seconds has it under result=deadline",
		"sie_worker_router_fallthrough_total":               oneOwner,
	} {
		if got := has(name); got != (why == "") {
			t.Errorf("%s is exported: %v; the list says %q", name, got, why)
		}
	}
	for _, text := range d.texts {
		if _, labels, _ := strings.Cut(text, "variableLabels: "); strings.Contains(labels, "model") {
			t.Errorf("a label is a model: %s", text)
		}
	}
	if len(d.texts) < 25 {
		t.Errorf("%d series: this proves nothing", len(d.texts))
	}
}
