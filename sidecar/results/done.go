package results

// MaxDone bounds the ids that a Done remembers; the oldest are forgotten.
const MaxDone = 100_000

// Done remembers the slices that were answered, and the attempts that ended a server.
type Done struct {
	ids  map[string]ended
	ring []string // MaxDone ids in the order of Add, from next on the oldest
	next int
	max  int
}

type ended struct {
	slot    int
	died    bool
	attempt uint32 // of died
}

// NewDone returns an empty Done of at most max ids, at most MaxDone.
func NewDone(max int) *Done {
	return &Done{ids: map[string]ended{}, max: min(max, MaxDone)}
}

// Add remembers that a slice was answered, or with died that this attempt of it ended a server.
func (d *Done) Add(id string, attempt uint32, died bool) {
	e, ok := d.ids[id]
	if !ok {
		if len(d.ring) < d.max {
			e.slot = len(d.ring)
			d.ring = append(d.ring, id)
		} else {
			delete(d.ids, d.ring[d.next])
			e.slot = d.next
			d.ring[d.next] = id
			d.next = (d.next + 1) % d.max
		}
	}
	e.died, e.attempt = died, attempt
	d.ids[id] = e
}

// Has reports whether this attempt of a slice must not run here again: the slice was answered, or
// this attempt or a later one ended a server.
func (d *Done) Has(id string, attempt uint32) bool {
	e, ok := d.ids[id]
	return ok && (!e.died || attempt <= e.attempt)
}

// Len returns the number of ids.
func (d *Done) Len() int { return len(d.ids) }
