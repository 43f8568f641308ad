package metrics

import (
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
)

// A scrape never fails, however odd the reports are. Reports for the same labels are added up.
func TestNoReportFailsAScrape(t *testing.T) {
	m := New()
	m.QueueDepth(func(report func(string, int)) {
		report("a", 3)
		report("a", 4)
		report("", 1)
		report("", 2)
		report("odd \xff", 5)
		report("odd \xfe", 6)
	})
	m.Models(func(report func(string, string, int64)) {
		report("a", "cpu", 10)
		report("a", "cpu", 20)
		report("a", "cpu", 0)
		report("gone", "cpu", 0)
	})
	m.DeviceMemory(func(report func(string, int64, int64)) { report("cuda:0", 1, 2); report("cuda:0", 1, 2) })
	m.GraphsRefused(func(report func(string, int64)) { report("cuda:0", 2); report("cuda:0", 1) })
	m.Activations(func(report func(string, int64)) { report("cpu", 1); report("cpu", 1) })
	got, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{7, "sie_queue_depth", []string{"a"}}, {3, "sie_queue_depth", []string{""}},
		{11, "sie_queue_depth", []string{"odd \ufffd"}},
		{1, "sie_model_loaded", []string{"a", "cpu"}}, {30, "sie_model_memory_bytes", []string{"a", "cpu"}},
		{0, "sie_model_loaded", []string{"gone"}}, {0, "sie_model_memory_bytes", []string{"gone"}},
		{2, "sie_device_memory_used_bytes", []string{"cuda:0"}},
		{4, "sie_device_memory_total_bytes", []string{"cuda:0"}},
		{3, "sie_device_graphs_refused", []string{"cuda:0"}},
		{2, "sie_device_activation_bytes", []string{"cpu"}}, {-1, "sie_queue_depth", []string{"nobody"}},
	} {
		if v := testrig.MetricOf(got, c.name, c.labels...); v != c.want {
			t.Errorf("%s of %q is %v, want %v", c.name, c.labels, v, c.want)
		}
	}
}
