package testrig

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// NoMetric is what Metric returns when there is no such series.
const NoMetric = -1

// Metric returns the value of the first series with a name and these values of labels: that of a
// gauge or a counter, or the number of samples of a histogram.
func Metric(t testing.TB, from prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return MetricOf(families, name, labels...)
}

// MetricOf is Metric for one scrape.
func MetricOf(families []*dto.MetricFamily, name string, labels ...string) float64 {
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if hasAll(m, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() +
					float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return NoMetric
}

func hasAll(m *dto.Metric, labels []string) bool {
	for _, want := range labels {
		if !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetValue() == want }) {
			return false
		}
	}
	return true
}
