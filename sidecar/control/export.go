package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Export is what sie-config has for one bundle. It never changes.
type Export struct {
	Epoch  uint64
	Bundle string
	// Hash is the config hash that a server of the bundle has with these models; "" where
	// sie-config did not say.
	Hash string
	// Adapters holds the adapter modules of each bundle, nil where sie-config did not say.
	Adapters map[string][]string
	Models   []Model // of the bundle, in the order of the export
	// Hashes are the models' config hashes by id; nil where sie-config did not say.
	Hashes map[string]string
}

// Model is one model's document.
type Model struct{ ID, YAML string }

// Gated reports whether the export says how models are configured, so that work can be compared
// with it.
func (e *Export) Gated() bool { return e.Hashes != nil }

// ModelHash returns the config hash of an id, which may name a profile of a model ("id:profile");
// "" for one that the bundle does not have.
func (e *Export) ModelHash(id string) string {
	if hash, ok := e.Hashes[id]; ok {
		return hash
	}
	if i := strings.LastIndexByte(id, ':'); i >= 0 {
		return e.Hashes[id[:i]]
	}
	return ""
}

// answer is what sie-config answers with at /v1/configs/export, as far as a sidecar reads it.
type answer struct {
	Version  int                 `json:"snapshot_version"`
	Epoch    uint64              `json:"epoch"`
	Hashes   map[string]string   `json:"bundle_config_hashes"`
	Adapters map[string][]string `json:"bundle_adapters"`
	Models   []struct {
		ID      string            `json:"model_id"`
		Config  json.RawMessage   `json:"model_config"`
		YAML    string            `json:"raw_yaml"`
		Bundles *[]string         `json:"affected_bundles"`
		Hashes  map[string]string `json:"model_config_hashes"`
	} `json:"models"`
}

// of returns what an answer has for a bundle. It refuses one that does not know the bundle: the
// models of before are better than none.
func (a *answer) of(bundle string) (*Export, error) {
	if a.Version != 1 {
		return nil, fmt.Errorf("sie-config exports snapshot_version %d; this sidecar reads 1", a.Version)
	}
	if _, known := a.Adapters[bundle]; a.Adapters != nil && !known {
		return nil, fmt.Errorf("sie-config has no bundle %q", bundle)
	}
	e := &Export{Epoch: a.Epoch, Bundle: bundle, Hash: a.Hashes[bundle], Adapters: a.Adapters}
	seen := make(map[string]bool, len(a.Models))
	for i := range a.Models {
		m := &a.Models[i]
		if m.Bundles != nil && !slices.Contains(*m.Bundles, bundle) {
			continue
		}
		if seen[m.ID] {
			return nil, fmt.Errorf("sie-config exports the model %.200q twice", m.ID)
		}
		seen[m.ID] = true
		text := m.YAML
		if strings.TrimSpace(text) == "" {
			// A document's lines are bounded. They are not indented: what is nested deeply would
			// grow with the square of its depth before the server refuses it.
			var lines bytes.Buffer
			if err := json.Indent(&lines, m.Config, "", ""); err != nil {
				return nil, fmt.Errorf("the model %.200q has no raw_yaml, and its model_config is no JSON: %w",
					m.ID, err)
			}
			text = lines.String()
		}
		e.Models = append(e.Models, Model{ID: m.ID, YAML: text})
		if m.Hashes != nil {
			if e.Hashes == nil {
				e.Hashes = make(map[string]string, len(a.Models))
			}
			e.Hashes[m.ID] = m.Hashes[bundle]
		}
	}
	return e, nil
}
