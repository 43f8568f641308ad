package rank

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Own is what the deciding worker knows of itself and a model.
type Own struct {
	Ready                                bool
	Loaded, Loading, Failed, Unsupported bool
}

// Action is what a worker does about a model.
type Action int

// The actions.
const (
	// Nothing: other workers do it, or nobody can.
	Nothing Action = iota
	// Pull without a threshold: the model is loaded here.
	Pull
	// Load it, and pull when it is ready.
	Load
	// Watch the backlog, and load when it passes the threshold.
	Watch
	// Answer pulls what waits and answers it with the load's error.
	Answer
)

// windowsToJoin is the backlog, in credit windows, above which another worker joins.
const windowsToJoin = 4

// The bounds of a threshold in slices.
const (
	minThreshold = 8
	maxThreshold = 4096
)

// Decide returns what the worker does about a model, and with Watch the backlog in slices at which
// it loads the model.
func (t *Table) Decide(model string, own Own) (a Action, threshold int) {
	if !own.Ready {
		return Nothing, 0
	}
	if own.Loaded {
		return Pull, 0
	}
	type candidate struct {
		name                         string
		hash                         uint64
		able, loaded, loading, faild bool
		window                       int
	}
	all := []candidate{{
		name: t.self, hash: hash(t.self, model), able: !own.Failed && !own.Unsupported, loading: own.Loading,
		faild: own.Failed,
	}}
	for name, p := range t.workers {
		if !p.ready {
			continue
		}
		all = append(all, candidate{
			name: name, hash: hash(name, model), able: !p.failed[model] && !p.unsupported[model],
			loaded: p.loaded[model], loading: p.loading[model], faild: p.failed[model],
			window: p.pending[model].Window,
		})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.hash, a.hash), cmp.Compare(a.name, b.name))
	})
	warm, loading, first, next, window := false, false, "", "", 0
	for _, c := range all {
		switch {
		case c.loaded:
			warm, window = true, max(window, c.window)
		case c.loading && c.able:
			loading = true
		case c.able && next == "":
			next = c.name
		}
		if c.faild && first == "" {
			first = c.name
		}
	}
	switch {
	case own.Loading:
		return Load, 0
	case next == t.self && !warm && !loading:
		return Load, 0
	case next == t.self && warm && !loading:
		return Watch, min(max(windowsToJoin*window, minThreshold), maxThreshold)
	case next == "" && !warm && !loading && first == t.self:
		return Answer, 0
	}
	return Nothing, 0
}

// hash returns a worker's weight for a model.
func hash(worker, model string) uint64 {
	sum := sha256.Sum256([]byte(worker + "\x00" + model))
	return binary.BigEndian.Uint64(sum[:])
}
