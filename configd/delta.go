package configd

import "slices"

// Notifier tells gateways and workers of changes. Nobody relies on it: who missed a delta finds the
// change in the epoch.
type Notifier interface {
	// Producer is the name under which the deltas are sent.
	Producer() string
	// Connected reports whether deltas can be sent now.
	Connected() bool
	// Notify sends deltas and waits until they have left. It returns what went wrong, for the
	// answer of the request.
	Notify(deltas []Delta) (warnings []string)
}

// Delta tells of one change of one model in one bundle. It is sent as JSON to the subject of the
// bundle and to that of all.
type Delta struct {
	Router      string                       `json:"router_id"` // of the producer
	Bundle      string                       `json:"bundle_id"`
	Epoch       uint64                       `json:"epoch"`
	Hash        string                       `json:"bundle_config_hash"`
	Model       string                       `json:"model_id"`
	Profiles    []string                     `json:"profiles_added"`
	Config      string                       `json:"model_config"` // the whole document, "" for none
	Affected    []string                     `json:"affected_bundles"`
	Pool        string                       `json:"pool"`
	PoolHashes  map[string]map[string]string `json:"bundle_pool_config_hashes"`
	Adapters    map[string][]string          `json:"bundle_adapters"`
	ModelHashes map[string]string            `json:"model_config_hashes"` // by bundle; not of the reference
	Deleted     bool                         `json:"deleted,omitempty"`   // not of the reference
}

// deltas returns those of a change that led to a content, one for each bundle.
func deltas(ch *change, c *Content) (all []Delta) {
	d := Delta{Epoch: ch.state.Epoch, Model: ch.id, Profiles: listed(ch.added), Affected: ch.affected,
		Pool: defaultPool, PoolHashes: map[string]map[string]string{}, Adapters: map[string][]string{},
		ModelHashes: map[string]string{}, Deleted: true}
	for i, b := range c.base.bundles {
		_, d.PoolHashes[b.Name] = c.sums[i].get()
		d.Adapters[b.Name] = b.Adapters
	}
	if e := search(c.entries, ch.id); e != nil && e.model != nil {
		d.Config, d.Pool, d.Deleted = string(e.model.Source()), e.pool, false
		d.ModelHashes = e.hashes(c.base.bundles)
	}
	for i, b := range c.base.bundles {
		if slices.Contains(ch.affected, b.Name) {
			d.Bundle = b.Name
			d.Hash, _ = c.sums[i].get()
			all = append(all, d)
		}
	}
	return all
}
