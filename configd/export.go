package configd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// maxHistory bounds of how many changes a content knows which they were.
const maxHistory = 1024

// history says which models have changed since earlier contents. It never changes.
type history struct {
	name string   // of the content that it begins with, random
	seq  uint64   // changes since
	ids  []string // of the last of them, the newest last
}

// with returns the history with one more change.
func (h history) with(id string) history {
	ids := h.ids
	if len(ids) == maxHistory {
		ids = ids[1:]
	}
	return history{h.name, h.seq + 1, append(slices.Clip(ids), id)}
}

// cursor names the content for a later question.
func (h history) cursor() string { return h.name + "." + strconv.FormatUint(h.seq, 10) }

// since returns the ids of the models that have changed since a cursor, sorted. ok is false if that
// is not known.
func (h history) since(cursor string) (ids []string, ok bool) {
	name, number, _ := strings.Cut(cursor, ".")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil || name != h.name || seq > h.seq || h.seq-seq > uint64(len(h.ids)) {
		return nil, false
	}
	ids = slices.Clone(h.ids[uint64(len(h.ids))-(h.seq-seq):])
	slices.Sort(ids)
	return slices.Compact(ids), true
}

// The kinds of an export.
const (
	exportedAll     = "all"
	exportedChanges = "changes"
)

// exportAt returns everything that a gateway needs, made at a time in RFC 3339. asked says that the
// caller knows cursors: it is given one, and the digest of all models, and with a cursor of earlier
// that is known only the models that have changed since, and the ids of those that are gone.
// Without it the answer is the reference's.
func (c *Content) exportAt(time string, asked bool, cursor string) (text []byte, kind string, err error) {
	head, err := c.exportHashes()
	if err != nil {
		return nil, exportedAll, err
	}
	text = []byte(`{"snapshot_version":1,"epoch":` + strconv.FormatUint(c.added.Epoch, 10) +
		`,"generated_at":` + strconv.Quote(time) + ",")
	models, known := []*entry(nil), false
	if asked {
		var gone []string
		if models, gone, known = c.since(cursor); known {
			removed, err := json.Marshal(gone)
			if err != nil {
				return nil, exportedAll, err
			}
			text = append(append(text, `"since":`+strconv.Quote(cursor)+`,"removed":`...), removed...)
			text = append(text, ',')
		}
		text = append(text, `"cursor":"`+c.history.cursor()+`","digest":"`...)
		text = append(append(text, c.digest()...), `",`...)
	}
	text = append(append(text, head...), `,"models":`...)
	if known {
		return append(appendModels(text, models), '}'), exportedChanges, nil
	}
	all, err := c.rendered.export.get(func() ([]byte, error) { return appendModels(nil, c.entries), nil })
	return append(slices.Concat(text, all), '}'), exportedAll, err
}

// since returns the entries that have changed since a cursor, and the ids that are gone.
func (c *Content) since(cursor string) (changed []*entry, gone []string, known bool) {
	ids, known := c.history.since(cursor)
	gone = []string{}
	for _, id := range ids {
		if e := search(c.entries, id); e != nil && e.model != nil {
			changed = append(changed, e)
		} else {
			gone = append(gone, id)
		}
	}
	return changed, gone, known
}

// appendModels appends entries as a list.
func appendModels(text []byte, entries []*entry) []byte {
	size := 2
	for _, e := range entries {
		size += len(e.export) + 1
	}
	text = append(slices.Grow(text, size+1), '[')
	first := true
	for _, e := range entries {
		if e.model == nil {
			continue
		}
		if !first {
			text = append(text, ',')
		}
		first = false
		text = append(text, e.export...)
	}
	return append(text, ']')
}

// exportHashes returns what an export says of the bundles, without braces.
func (c *Content) exportHashes() ([]byte, error) {
	return c.rendered.head.get(func() ([]byte, error) {
		out := struct {
			Hashes     map[string]string            `json:"bundle_config_hashes"`
			PoolHashes map[string]map[string]string `json:"bundle_pool_config_hashes"`
			Adapters   map[string][]string          `json:"bundle_adapters"`
		}{map[string]string{}, map[string]map[string]string{}, map[string][]string{}}
		for i, b := range c.base.bundles {
			out.Hashes[b.Name], out.PoolHashes[b.Name] = c.sums[i].get()
			out.Adapters[b.Name] = b.Adapters
		}
		text, err := encode(out)
		if err != nil {
			return nil, err
		}
		return text[1 : len(text)-1], nil
	})
}

// digest returns the SHA-256, in lowercase hex, of the SHA-256 of each model in an export, in the
// order of the ids: who keeps models and takes changes sees by it that he has all.
func (c *Content) digest() []byte {
	text, _ := c.rendered.digest.get(func() ([]byte, error) { // it does not fail
		h := sha256.New()
		for _, e := range c.entries {
			if e.model != nil {
				_, _ = h.Write(e.sum[:])
			}
		}
		return []byte(hex.EncodeToString(h.Sum(nil))), nil
	})
	return text
}
