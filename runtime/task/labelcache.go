package task

import (
	"container/list"
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/sie-engine/sie/runtime/batch"
)

// labelCache keeps what a label tower gives: the row of each label, by its text, and the rows of
// whole lists of labels in the order of their request, as batches take them. It belongs to one
// loaded model, which counts its bytes, and goes with it. What was used least recently goes when
// all together are above the limit, or above what the model has room for, which each request asks
// at its end. A row depends on the label alone, so that it does not matter who computed it, with
// which other labels, and when.
type labelCache struct {
	limit int64       // bytes
	owner labelsOwner // nil: nobody counts them

	mu    sync.Mutex // guards all below; nothing is locked or computed under it
	used  int64
	known map[string]*list.Element // of *labelEntry: by 'l' and a label, or by 's' and a list
	order list.List                // of *labelEntry, the most recently used first
	// labels that a request is computing; others wait for it
	making map[string]*labelMaking
}

// labelEntry is a label's row, or the rows of a list.
type labelEntry struct {
	key   string
	row   []float32
	lists *batch.Query
	bytes int64
}

// labelMaking is a label that is being computed. done is closed behind the last write.
type labelMaking struct {
	done chan struct{}
	row  []float32
	err  error
}

// labelEntryBytes is what an entry takes besides its key and its rows.
const labelEntryBytes = 256

// labelsOwner counts the bytes of a cache; model.Model does.
type labelsOwner interface {
	CountKept(n int64)
	RoomForKept() int64
}

// newLabelCache returns an empty cache. owner may be nil.
func newLabelCache(limit int64, owner labelsOwner) *labelCache {
	return &labelCache{limit: limit, owner: owner, known: make(map[string]*list.Element),
		making: make(map[string]*labelMaking)}
}

// Drop gives up all rows (model.Droppable). Requests that have some go on with them.
func (c *labelCache) Drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeLocked(0)
}

// fit gives up what the owner has no room for. Others take room, too, so it asks when the cache's
// own bytes are counted: of two that add at once, the second sees both. It does so without c.mu.
func (c *labelCache) fit() {
	if c.owner == nil {
		return
	}
	if room := c.owner.RoomForKept(); room < 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changeLocked(c.used + room)
	}
}

// encodeLabels computes the rows of labels, in their order.
type encodeLabels func(labels []string) ([][]float32, error)

// errNotEncoded is the error of labels whose computation ended in a panic.
var errNotEncoded = errors.New("task: labels were not computed to the end")

// query returns the rows of labels, which differ, in their order. Each label that is not known is
// computed by one of the callers that ask for it at a time: this one computes those that nobody
// computes, in one call, and waits for the others. A label that another caller failed to compute
// is computed here.
func (c *labelCache) query(ctx context.Context, labels []string, encode encodeLabels) (*batch.Query, error) {
	defer c.fit()
	name := listKey(labels)
	c.mu.Lock()
	if e := c.lookLocked(name); e != nil {
		c.mu.Unlock()
		return e.lists, nil
	}
	c.mu.Unlock()
	rows := map[string][]float32{}
	for len(rows) < len(labels) {
		if err := c.collect(ctx, labels, rows, encode); err != nil {
			return nil, err
		}
	}
	q := &batch.Query{N: len(labels)}
	for _, label := range labels {
		q.Rows = append(q.Rows, rows[label]...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.lookLocked(name); e != nil { // one for all, so that a batch contains it once
		return e.lists, nil
	}
	c.changeLocked(c.limit, &labelEntry{key: name, lists: q, bytes: 4 * int64(cap(q.Rows))})
	return q, nil
}

// collect adds to rows what is known, what it computes, and what others compute meanwhile. A label
// whose computation by another caller failed stays missing.
func (c *labelCache) collect(
	ctx context.Context, labels []string, rows map[string][]float32, encode encodeLabels,
) error {
	var own []string
	var mine, others []*labelMaking
	var awaited []string
	c.mu.Lock()
	for _, label := range labels {
		if rows[label] != nil {
			continue
		}
		if e := c.lookLocked(labelKey(label)); e != nil {
			rows[label] = e.row
		} else if m := c.making[label]; m != nil {
			others, awaited = append(others, m), append(awaited, label)
		} else {
			m = &labelMaking{done: make(chan struct{})}
			c.making[label] = m
			mine, own = append(mine, m), append(own, label)
		}
	}
	c.mu.Unlock()
	if len(own) > 0 {
		made, err := c.compute(own, mine, encode)
		if err != nil {
			return err
		}
		for i, label := range own {
			rows[label] = made[i]
		}
	}
	for i, m := range others {
		select {
		case <-m.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if m.err == nil {
			rows[awaited[i]] = m.row
		}
	}
	return nil
}

// compute makes the rows of labels that this caller has announced, and tells those who wait. It
// does so also when make panics.
func (c *labelCache) compute(
	labels []string, announced []*labelMaking, encode encodeLabels,
) (rows [][]float32, err error) {
	err = errNotEncoded // unless encode returns
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		var made []*labelEntry
		for i, m := range announced {
			delete(c.making, labels[i])
			if m.err = err; err == nil {
				m.row = rows[i]
				made = append(made,
					&labelEntry{key: labelKey(labels[i]), row: m.row, bytes: 4 * int64(len(m.row))})
			}
			close(m.done)
		}
		c.changeLocked(c.limit, made...)
	}()
	rows, err = encode(labels)
	return rows, err
}

// lookLocked returns the entry of a key, which is now the most recently used one, or nil.
func (c *labelCache) lookLocked(key string) *labelEntry {
	at := c.known[key]
	if at == nil {
		return nil
	}
	c.order.MoveToFront(at)
	return at.Value.(*labelEntry)
}

// changeLocked adds entries whose keys are not known, drops what was used least recently until at
// most `most` bytes are left, and tells the owner.
func (c *labelCache) changeLocked(most int64, entries ...*labelEntry) {
	before := c.used
	for _, e := range entries {
		e.bytes += int64(len(e.key)) + labelEntryBytes
		c.known[e.key] = c.order.PushFront(e)
		c.used += e.bytes
	}
	for c.used > most && c.order.Len() > 0 {
		last := c.order.Remove(c.order.Back()).(*labelEntry)
		delete(c.known, last.key)
		c.used -= last.bytes
	}
	if c.owner != nil {
		c.owner.CountKept(c.used - before)
	}
}

func labelKey(label string) string { return "l" + label }

// listKey returns the key of a list. The lengths keep the keys of different lists apart.
func listKey(labels []string) string {
	key := []byte{'s'}
	for _, label := range labels {
		key = strconv.AppendInt(key, int64(len(label)), 10)
		key = append(append(key, ':'), label...)
	}
	return string(key)
}
