package obs

import "github.com/prometheus/client_golang/prometheus"

// Activations registers the memory that batches take of each device beside packed weights; read is called with each scrape.
func (m *Metrics) Activations(read func(report func(device string, bytes int64))) {
	m.Registry.MustRegister(&activationsCollector{read: read,
		desc: prometheus.NewDesc("sie_device_activation_bytes", "Memory of batches, beside packed weights.", []string{"device"}, nil)})
}

type activationsCollector struct {
	desc *prometheus.Desc
	read func(func(string, int64))
}

func (c *activationsCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *activationsCollector) Collect(ch chan<- prometheus.Metric) {
	c.read(func(device string, bytes int64) {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(bytes), device)
	})
}
