package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/bus"
)

// Spec is what a client asks of a pool. It never changes.
type Spec struct {
	Name string `json:"name"`
	// Bundle is that of the pool's workers, "" for any.
	Bundle string `json:"bundle,omitempty"`
	// GPUs holds how many workers of each machine profile the pool must have, Caps how many it may
	// have: where a profile has both, at least as many.
	GPUs map[string]int `json:"gpus,omitempty"`
	Caps map[string]int `json:"gpu_caps,omitempty"`
	// QueuePool is the pool whose workers serve this one.
	QueuePool string   `json:"queue_pool"`
	TTL       int64    `json:"ttl_seconds,omitempty"` // 0: DefaultTTL
	Minimum   int      `json:"minimum_worker_count,omitempty"`
	Pinned    []string `json:"pinned_models,omitempty"`
}

// DefaultTTL is how long a pool lives without a renewal, if its client does not say.
const DefaultTTL = 1200 * time.Second

// Profiles returns the machine profiles of a pool, sorted.
func (s *Spec) Profiles() []string {
	var out []string
	for _, m := range []map[string]int{s.GPUs, s.Caps} {
		for p := range m {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Needs returns how many workers of a profile the pool must have.
func (s *Spec) Needs(profile string) int {
	n := max(s.GPUs[profile], s.Minimum)
	if most, bounded := s.Caps[profile]; bounded {
		n = min(n, most)
	}
	return n
}

// Pool is one pool.
type Pool struct {
	Spec     Spec      `json:"spec"`
	Created  time.Time `json:"created,omitzero"`
	Renewed  time.Time `json:"renewed,omitzero"`
	Assigned []Worker  `json:"assigned,omitempty"` // ordered by id
}

// Worker is a worker that serves a pool.
type Worker struct {
	ID      string `json:"id"`
	Profile string `json:"profile"`
	Bundle  string `json:"bundle"`
}

// Ends returns when the pool expires if nobody renews it.
func (p *Pool) Ends() time.Time {
	ttl := DefaultTTL
	if p.Spec.TTL > 0 {
		ttl = time.Duration(p.Spec.TTL) * time.Second
	}
	return p.Renewed.Add(ttl)
}

// Count returns how many workers of a profile serve the pool.
func (p *Pool) Count(profile string) (n int) {
	for _, w := range p.Assigned {
		if w.Profile == profile {
			n++
		}
	}
	return n
}

// Active reports whether the pool has what it needs, and a worker.
func (p *Pool) Active() bool {
	for _, profile := range p.Spec.Profiles() {
		if p.Count(profile) < p.Spec.Needs(profile) {
			return false
		}
	}
	return len(p.Assigned) > 0
}

// Table is all pools. The zero Table has none.
type Table struct {
	Pools []*Pool `json:"pools"` // the oldest first
	// Writes holds the ids of the last writes, the newest last: whoever wrote and got no answer
	// finds here whether the write was stored.
	Writes []string `json:"writes,omitempty"`
}

// Find returns the pool of a name, in any case, or nil.
func (t *Table) Find(name string) *Pool {
	for _, p := range t.Pools {
		if strings.EqualFold(p.Spec.Name, name) {
			return p
		}
	}
	return nil
}

// Remove removes the pools that gone reports.
func (t *Table) Remove(gone func(p *Pool) bool) (removed []string) {
	t.Pools = slices.DeleteFunc(t.Pools, func(p *Pool) bool {
		if !gone(p) {
			return false
		}
		removed = append(removed, p.Spec.Name)
		return true
	})
	return removed
}

// Of returns the pool that a worker serves, or nil.
func (t *Table) Of(worker string) *Pool {
	for _, p := range t.Pools {
		for i := range p.Assigned {
			if p.Assigned[i].ID == worker {
				return p
			}
		}
	}
	return nil
}

// Clone returns a table that may be changed, but for the maps and lists of its specs.
func (t *Table) Clone() *Table {
	c := &Table{Pools: make([]*Pool, len(t.Pools)), Writes: slices.Clone(t.Writes)}
	for i, p := range t.Pools {
		q := *p
		q.Assigned = slices.Clone(p.Assigned)
		c.Pools[i] = &q
	}
	return c
}

// The bounds of the document.
const (
	maxBytes  = 1 << 20
	maxPools  = 4096
	maxWrites = 64
)

// Fits reports whether a client may make the table what it is: half of the document is for who
// serves the pools, and a message is a little larger than what it holds.
func (t *Table) Fits() bool {
	data, err := json.Marshal(t)
	return err == nil && len(data) <= maxBytes/2
}

// encode returns the document of a write.
func (t *Table) encode(write string) ([]byte, error) {
	c := *t
	c.Writes = append(slices.Clone(t.Writes), write)
	c.Writes = c.Writes[max(0, len(c.Writes)-maxWrites):]
	data, err := json.Marshal(&c)
	if err == nil && len(data) > maxBytes {
		err = fmt.Errorf("the document of all pools would have %d bytes; the limit is %d", len(data), maxBytes)
	}
	return data, err
}

// decode reads a document that was stored at a time.
func decode(data []byte, at time.Time) (*Table, error) {
	t := &Table{}
	if len(data) == 0 {
		return t, nil // the key was removed
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("the document of all pools has %d bytes; the limit is %d", len(data), maxBytes)
	}
	if err := json.Unmarshal(data, t); err != nil {
		return nil, fmt.Errorf("the document of all pools cannot be read: %w", err)
	}
	if len(t.Pools) > maxPools {
		return nil, fmt.Errorf("there are %d pools; the limit is %d", len(t.Pools), maxPools)
	}
	for _, p := range t.Pools {
		if p == nil {
			return nil, errors.New("the document of all pools has an entry that is none")
		}
		if err := bus.CheckToken("pool", p.Spec.Name); err != nil {
			return nil, err
		}
		if p.Created.IsZero() {
			p.Created = at
		}
		if p.Renewed.IsZero() {
			p.Renewed = at
		}
	}
	return t, nil
}
