package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/configpoll"
	"github.com/sie-engine/sie/internal/docform"
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
	// Documents are the hashes of all that the models' documents say, by id; nil where sie-config
	// did not say.
	Documents map[string]string
}

// Model is one model's document.
type Model struct{ ID, YAML string }

// Gated reports whether the export says how models are configured, so that work can be compared
// with it.
func (e *Export) Gated() bool { return e.Hashes != nil }

// ModelHash returns the config hash of an id, which may name a profile of a model ("id:profile");
// "" for one that the bundle does not have.
func (e *Export) ModelHash(id string) string { return ofModel(e.Hashes, id) }

// DocumentHash returns the hash of all that the document of an id says, as ModelHash does.
func (e *Export) DocumentHash(id string) string { return ofModel(e.Documents, id) }

func ofModel(hashes map[string]string, id string) string {
	if hash, ok := hashes[id]; ok {
		return hash
	}
	if i := strings.LastIndexByte(id, ':'); i >= 0 {
		return hashes[id[:i]]
	}
	return ""
}

// exported is a model in an export, as far as a sidecar reads it.
type exported struct {
	Model
	bundles *[]string         // nil: sie-config did not say
	hashes  map[string]string // by bundle, nil: sie-config did not say
	said    string            // the hash of the document; "": sie-config did not say
	problem error
}

// readExported reads a model of an export.
func readExported(text json.RawMessage) (x exported) {
	var m struct {
		ID      string            `json:"model_id"`
		Config  json.RawMessage   `json:"model_config"`
		YAML    string            `json:"raw_yaml"`
		Bundles *[]string         `json:"affected_bundles"`
		Hashes  map[string]string `json:"model_config_hashes"`
		Said    string            `json:"model_document_hash"`
	}
	if x.problem = json.Unmarshal(text, &m); x.problem != nil {
		return x
	}
	x = exported{Model: Model{ID: m.ID, YAML: m.YAML}, bundles: m.Bundles, hashes: m.Hashes, said: m.Said}
	if strings.TrimSpace(m.YAML) == "" {
		if len(m.Config) == 0 {
			x.problem = fmt.Errorf("the model %.200q has neither raw_yaml nor model_config", m.ID)
		}
		x.YAML = string(docform.OfJSON(m.Config, "")) // the server refuses what is nested too deeply
	}
	return x
}

// exportOf returns what sie-config has for a bundle. It refuses an export that does not know the
// bundle: the models of before are better than none.
func exportOf(bundle string, all *configpoll.Export, models []exported) (*Export, error) {
	if _, known := all.Adapters[bundle]; all.Adapters != nil && !known {
		return nil, fmt.Errorf("sie-config has no bundle %q", bundle)
	}
	e := &Export{Epoch: all.Epoch, Bundle: bundle, Hash: all.Hashes[bundle], Adapters: all.Adapters}
	seen := make(map[string]bool, len(models))
	for i := range models {
		m := &models[i]
		if m.bundles != nil && !slices.Contains(*m.bundles, bundle) {
			continue
		}
		if m.problem != nil {
			return nil, m.problem
		}
		if seen[m.ID] {
			return nil, fmt.Errorf("sie-config exports the model %.200q twice", m.ID)
		}
		seen[m.ID] = true
		e.Models = append(e.Models, m.Model)
		if m.hashes != nil {
			if e.Hashes == nil {
				e.Hashes = make(map[string]string, len(models))
			}
			e.Hashes[m.ID] = m.hashes[bundle]
		}
		if m.said != "" {
			if e.Documents == nil {
				e.Documents = make(map[string]string, len(models))
			}
			e.Documents[m.ID] = m.said
		}
	}
	return e, nil
}
