package tenant

import "github.com/prometheus/client_golang/prometheus"

var (
	requestsDesc = desc("requests_total",
		"Requests of a token, by outcome: admitted, over_rate, over_in_flight, forbidden.", "tenant", "outcome")
	itemsDesc    = desc("items_total", "Items of a token that were admitted.", "tenant")
	inFlightDesc = desc("in_flight_items", "Items of a token that are in flight.", "tenant")
	reloadsDesc  = desc("file_reloads_total", "Times that the tokens file changed.", "result")
	brokenDesc   = desc("file_broken",
		"1 while the tokens file cannot be used and an earlier one is in force.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sie_tenant_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (a *Access) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requestsDesc, itemsDesc, inFlightDesc, reloadsDesc, brokenDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. The tenants are those that are in force, so there are no
// more labels than the file has names.
func (a *Access) Collect(ch chan<- prometheus.Metric) {
	a.look()
	counter := func(d *prometheus.Desc, value uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	for _, t := range a.current.Load().tenants {
		u := t.used
		u.mu.Lock()
		c, inFlight := u.counts, u.inFlight
		u.mu.Unlock()
		counter(requestsDesc, c.Requests, t.Name, "admitted")
		counter(requestsDesc, c.OverRate, t.Name, "over_rate")
		counter(requestsDesc, c.OverInFlight, t.Name, "over_in_flight")
		counter(requestsDesc, c.Forbidden, t.Name, "forbidden")
		counter(itemsDesc, c.Items, t.Name)
		ch <- prometheus.MustNewConstMetric(inFlightDesc, prometheus.GaugeValue, float64(inFlight), t.Name)
	}
	a.mu.Lock()
	loads, broken := a.loads, 0.0
	if a.broken {
		broken = 1
	}
	a.mu.Unlock()
	counter(reloadsDesc, loads[0], "kept")
	counter(reloadsDesc, loads[1], "applied")
	ch <- prometheus.MustNewConstMetric(brokenDesc, prometheus.GaugeValue, broken)
}
