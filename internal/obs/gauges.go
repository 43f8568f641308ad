package obs

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a registry with the Go and process collectors.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// gauges is a collector whose values are read at each scrape.
type gauges struct {
	descs []*prometheus.Desc
	plain bool // without labels
	read  func(set func(gauge int, value float64, labels ...string))
}

// Gauges returns a collector of gauges with the same labels. names alternates their names and help
// texts. read is called at each scrape and sets a gauge by its index. Values that are set more than
// once under the same labels are added up, so that no scrape fails because of a repeated series.
func Gauges(
	labels []string, read func(set func(gauge int, value float64, labels ...string)), names ...string,
) prometheus.Collector {
	g := &gauges{read: read, plain: len(labels) == 0}
	for i := 0; i < len(names); i += 2 {
		g.descs = append(g.descs, prometheus.NewDesc(names[i], names[i+1], labels, nil))
	}
	return g
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
		labels := strings.Split(s.labels, "\x00")
		if g.plain {
			labels = nil
		}
		ch <- prometheus.MustNewConstMetric(g.descs[s.gauge], prometheus.GaugeValue, value, labels...)
	}
}
