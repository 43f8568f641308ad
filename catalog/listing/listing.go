// Package listing describes models of the catalog to clients, as far as the catalog knows them.
// sie-server and the gateway describe a model by it, so that clients see the same.
//
// Entry points: Info (an entry of GET /v1/models) and Model (what the routes of other APIs ask
// for). Both are pure functions.
package listing

import (
	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
)

// Info returns the entry of a model that is not loaded. Its state is left to the caller. The lists
// are the catalog's own.
func Info(m *catalog.Resolved) api.ModelInfo {
	info := api.ModelInfo{
		Name: m.ID, Inputs: m.Inputs, Outputs: m.Outputs,
		Dims: api.ModelDims{
			Dense: m.Dims["dense"], Sparse: m.Dims["sparse"], Multivector: m.Dims["multivector"],
		},
		Profiles: make(map[string]api.ProfileInfo),
	}
	for _, p := range m.Profiles {
		info.Profiles[p.Name] = api.ProfileInfo{IsDefault: p.IsDefault}
	}
	if m.MaxSequenceLength > 0 {
		info.MaxSequenceLength = &m.MaxSequenceLength
	}
	if revision := m.ServedRevision(); revision != "" {
		info.Revision = &revision
	}
	return info
}

// Model returns what the routes of other APIs ask of a model. Its Handle is left to the caller.
func Model(m *catalog.Resolved) compat.Model {
	c := compat.Model{
		ID:             m.ID,
		Outputs:        m.Outputs,
		CrossEncoder:   m.ScoresPairs(),
		HFID:           m.HFID,
		Revision:       m.ServedRevision(),
		MaxBatchTokens: m.MaxBatchTokens,
	}
	if m.Runtime != nil {
		c.Pooling = string(m.Runtime.Pooling)
	}
	return c
}
