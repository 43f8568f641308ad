package tenant

import "slices"

// Usage is what a tenant may do, and what it has used since the process started.
type Usage struct {
	Name     string   `json:"name"`
	Priority string   `json:"priority"`
	Pools    []string `json:"pools"`  // that it may use; null: all
	Models   []string `json:"models"` // patterns of those that it may use; null: all

	ItemsPerSecond float64 `json:"items_per_s"`           // 0: no limit
	InFlightLimit  int     `json:"in_flight_items_limit"` // 0: no limit
	InFlight       int     `json:"in_flight_items"`

	Requests     uint64 `json:"requests"` // that were admitted
	Items        uint64 `json:"items"`    // of them
	OverRate     uint64 `json:"over_rate"`
	OverInFlight uint64 `json:"over_in_flight"`
	Forbidden    uint64 `json:"forbidden"`
}

// Usage returns what t may see of the tenants, ordered by name: itself, or everybody with the role
// Metrics, which has the same numbers in its series. Without keys there are no tenants.
func (a *Access) Usage(t *Tenant) []Usage {
	out := []Usage{}
	if a == nil || t == nil {
		return out
	}
	seen := []*Tenant{t}
	if t.Has(Metrics) {
		a.look()
		seen = a.current.Load().tenants
	}
	for _, x := range seen {
		u := x.used
		u.mu.Lock()
		out = append(out, Usage{
			Name: x.Name, Priority: x.priority.String(), Pools: slices.Clone(x.pools),
			Models: slices.Clone(x.models), ItemsPerSecond: x.itemsPerSecond, InFlightLimit: x.inFlight,
			InFlight: u.inFlight, Requests: u.counts.Requests, Items: u.counts.Items,
			OverRate: u.counts.OverRate, OverInFlight: u.counts.OverInFlight, Forbidden: u.counts.Forbidden,
		})
		u.mu.Unlock()
	}
	return out
}
