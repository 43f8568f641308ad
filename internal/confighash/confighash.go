// Package confighash computes the hashes by which gateways, the control plane and workers compare
// their configurations. Every component must get the same hash, byte for byte, so this is the only
// package that computes them.
//
// Entry points: BundleConfig (models and profiles of one bundle), ModelConfig (one model of a
// bundle), Bundles (the set of bundles), BundleConfigs (the whole configuration), Document and
// Documents (all that a model's document says, which the others leave out most of) and Canonical
// (the JSON that is hashed). Part with OfParts, and PoolPart, let a caller keep what is hashed of a
// model, so that after a change only the SHA-256 is computed again. All are pure functions without
// goroutines or I/O, safe for concurrent use.
package confighash

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strings"
)

// Model is one model with its profiles, inheritance already applied.
type Model struct {
	ID       string
	Revision string // "" hashes as null
	Profiles []Profile
}

// Profile holds the hashed fields of a profile. An empty or zero field hashes as null. Loadtime and
// Runtime hold nil, bool, Go's number types, string, []any and map[string]any.
type Profile struct {
	Name             string
	AdapterPath      string // "module:Class"
	MaxBatchTokens   int
	ComputePrecision string
	Loadtime         map[string]any
	Runtime          map[string]any
}

// Bundle holds the hashed fields of a bundle. An empty Engine hashes as DefaultEngine.
type Bundle struct {
	Name     string
	Priority int
	Adapters []string
	Engine   string
}

// DefaultEngine is the engine of a bundle that names none.
const DefaultEngine = "pytorch"

// BundleConfig returns the lowercase hex SHA-256 of the models that a bundle with these adapter
// modules serves. For each model it hashes the id, the revision and the profiles whose adapter
// module (the text before the colon) is in adapters. It leaves out models without such a profile;
// if no model is left, the hash is "". The order of models, profiles and adapters does not matter.
func BundleConfig(models []Model, adapters []string) string {
	sorted := slices.Clone(models)
	slices.SortStableFunc(sorted, func(a, b Model) int { return strings.Compare(a.ID, b.ID) })
	return OfParts(func(yield func([]byte) bool) {
		for _, m := range sorted {
			if !yield(Part(m, adapters)) {
				return
			}
		}
	})
}

// Part returns what BundleConfig hashes of one model, nil for a model without a profile of the
// bundle. A model that stays the same keeps its part, whatever is beside it.
func Part(m Model, adapters []string) []byte {
	profiles := carried(m.Profiles, adapters)
	if len(profiles) == 0 {
		return nil
	}
	return Canonical(
		map[string]any{"sie_id": m.ID, "revision": orNull(m.Revision), "profiles": profiles}, UTF8)
}

// OfParts returns the BundleConfig of models by their Parts, in the order of the models' ids. It
// leaves out nil.
func OfParts(parts iter.Seq[[]byte]) string {
	h := sha256.New()
	some := false
	for p := range parts {
		if p == nil {
			continue
		}
		_, _ = h.Write(separator(some, '[')) // a hash refuses nothing
		_, _ = h.Write(p)
		some = true
	}
	if !some {
		return ""
	}
	_, _ = h.Write([]byte{']'})
	return hex.EncodeToString(h.Sum(nil))
}

// separator returns what stands before an element: a comma after another, or what opens the list.
func separator(after bool, open byte) []byte {
	if after {
		return []byte{','}
	}
	return []byte{open}
}

// ModelConfig returns BundleConfig of one model. Workers and gateways compare it for each request,
// under the key model_config_hash.
func ModelConfig(m Model, adapters []string) string { return BundleConfig([]Model{m}, adapters) }

func carried(profiles []Profile, adapters []string) []any {
	sorted := slices.Clone(profiles)
	slices.SortStableFunc(sorted, func(a, b Profile) int { return strings.Compare(a.Name, b.Name) })
	var out []any
	for _, p := range sorted {
		module, _, _ := strings.Cut(p.AdapterPath, ":")
		if !slices.Contains(adapters, module) {
			continue
		}
		config := map[string]any{
			"adapter_path":      p.AdapterPath,
			"max_batch_tokens":  any(p.MaxBatchTokens),
			"compute_precision": orNull(p.ComputePrecision),
			"adapter_options":   options(p),
		}
		if p.MaxBatchTokens == 0 {
			config["max_batch_tokens"] = nil
		}
		out = append(out, map[string]any{"name": p.Name, "config": config})
	}
	return out
}

// options returns the non-empty maps of a profile, or nil if both are empty.
func options(p Profile) any {
	out := map[string]any{}
	if len(p.Loadtime) > 0 {
		out["loadtime"] = p.Loadtime
	}
	if len(p.Runtime) > 0 {
		out["runtime"] = p.Runtime
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Bundles returns the lowercase hex SHA-256 of the name, priority, adapters and engine of each
// bundle. The order of bundles and of their adapters does not matter. Without bundles the hash is
// "".
func Bundles(bundles []Bundle) string {
	if len(bundles) == 0 {
		return ""
	}
	sorted := slices.Clone(bundles)
	slices.SortStableFunc(sorted, func(a, b Bundle) int { return strings.Compare(a.Name, b.Name) })
	list := make([]any, len(sorted))
	for i, b := range sorted {
		adapters := slices.Clone(b.Adapters)
		slices.Sort(adapters)
		names := make([]any, len(adapters))
		for j, a := range adapters {
			names[j] = a
		}
		list[i] = map[string]any{
			"name":     b.Name,
			"priority": b.Priority,
			"adapters": names,
			"engine":   cmp.Or(b.Engine, DefaultEngine),
		}
	}
	return sum(Canonical(list, ASCII))
}

// BundleState is what BundleConfigs covers of a bundle.
type BundleState struct {
	Name string
	Hash string // its BundleConfig
	// Pools yields the PoolPart of each model that a profile of the bundle has, in the order of the
	// ids. nil: there is none.
	Pools iter.Seq[[]byte]
}

// PoolPart returns what BundleConfigs hashes of a model: its id and its pool.
func PoolPart(id, pool string) []byte {
	return appendString(append(appendString(nil, id, ASCII), ':'), pool, ASCII)
}

// BundleConfigs returns the lowercase hex SHA-256 of the config hashes of all bundles and of the
// pools of their models. It changes whenever a gateway has to read the models again. Without
// bundles the hash is "".
func BundleConfigs(bundles []BundleState) string {
	if len(bundles) == 0 {
		return ""
	}
	sorted := slices.Clone(bundles)
	slices.SortStableFunc(sorted, func(a, b BundleState) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	for i, b := range sorted {
		head := appendString(separator(i > 0, '{'), b.Name, ASCII)
		head = appendString(append(head, `:{"bundle_config_hash":`...), b.Hash, ASCII)
		_, _ = h.Write(append(head, `,"model_pools":{`...))
		if b.Pools != nil {
			some := false
			for p := range b.Pools {
				if some {
					_, _ = h.Write([]byte{','})
				}
				_, _ = h.Write(p)
				some = true
			}
		}
		_, _ = h.Write([]byte("}}"))
	}
	_, _ = h.Write([]byte{'}'})
	return hex.EncodeToString(h.Sum(nil))
}

// Document returns the lowercase hex SHA-256 of a model's whole document, whose content is given as
// Canonical writes it in UTF8. Comments and the order of keys do not matter.
func Document(content []byte) string { return sum(content) }

// Documents returns the lowercase hex SHA-256 of the ids of models and the hashes of their
// documents, which it is given by id. It is "" if one has no hash, so that it is not known what
// some of them say, and without models.
func Documents(byID map[string]string) string {
	all := make(map[string]any, len(byID))
	for id, hash := range byID {
		if hash == "" {
			return ""
		}
		all[id] = hash
	}
	if len(all) == 0 {
		return ""
	}
	return sum(Canonical(all, UTF8))
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
