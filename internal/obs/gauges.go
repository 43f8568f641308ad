package obs

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges are read anew at each scrape. What is reported more than once under the same labels is added up, so that a scrape
// never fails for a series that is there twice.
type gauges struct {
	descs []*prometheus.Desc
	read  func(set func(gauge int, value float64, labels ...string))
}

// register registers gauges of the given names and helps, alternating, with the same labels. read is called at each scrape and
// sets them by index.
func (m *Metrics) register(labels []string, read func(set func(gauge int, value float64, labels ...string)), names ...string) {
	g := &gauges{read: read}
	for i := 0; i < len(names); i += 2 {
		g.descs = append(g.descs, prometheus.NewDesc(names[i], names[i+1], labels, nil))
	}
	m.Registry.MustRegister(g)
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	type series struct {
		gauge  int
		labels string
	}
	sums := make(map[series]float64)
	g.read(func(gauge int, value float64, labels ...string) {
		sums[series{gauge, strings.ToValidUTF8(strings.Join(labels, "\x00"), "\ufffd")}] += value
	})
	for s, value := range sums {
		ch <- prometheus.MustNewConstMetric(g.descs[s.gauge], prometheus.GaugeValue, value, strings.Split(s.labels, "\x00")...)
	}
}

// Models registers the gauges of loaded models. read reports every loaded model on every device, and with 0 bytes those that
// were loaded and are not.
func (m *Metrics) Models(read func(report func(model, device string, bytes int64))) {
	m.register([]string{"model", "device"}, func(set func(int, float64, ...string)) {
		up := make(map[[2]string]bool)
		read(func(model, device string, bytes int64) {
			if bytes > 0 && !up[[2]string{model, device}] {
				up[[2]string{model, device}] = true
				set(0, 1, model, device)
			}
			set(0, 0, model, device)
			set(1, float64(bytes), model, device)
		})
	}, "sie_model_loaded", "1 while the model is loaded.", "sie_model_memory_bytes", "Packed weights of a loaded model.")
}

// DeviceMemory registers gauges of the memory of devices that have their own.
func (m *Metrics) DeviceMemory(read func(report func(device string, used, total int64))) {
	m.register([]string{"device"}, func(set func(int, float64, ...string)) {
		read(func(device string, used, total int64) {
			set(0, float64(used), device)
			set(1, float64(total), device)
		})
	}, "sie_device_memory_used_bytes", "Memory of a GPU in use, by any process.", "sie_device_memory_total_bytes", "Memory of a GPU.")
}

// Activations registers the memory that batches take of each device beside packed weights.
func (m *Metrics) Activations(read func(report func(device string, bytes int64))) {
	m.register([]string{"device"}, func(set func(int, float64, ...string)) {
		read(func(device string, bytes int64) { set(0, float64(bytes), device) })
	}, "sie_device_activation_bytes", "Memory of batches, beside packed weights.")
}

// QueueDepth registers a gauge of the items queued for a model.
func (m *Metrics) QueueDepth(read func(report func(model string, items int))) {
	m.register([]string{"model"}, func(set func(int, float64, ...string)) {
		read(func(model string, items int) { set(0, float64(items), model) })
	}, "sie_queue_depth", "Items queued.")
}
