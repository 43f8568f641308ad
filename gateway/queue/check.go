package queue

import (
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// checkExtract refuses an extraction as a worker does, in the same order.
func checkExtract(m models.Model, r *api.ExtractRequest) error {
	if err := r.CheckUse(m.Name); err != nil {
		return err
	}
	if !m.Entry.Has("json") {
		return errs.NoExtraction(m.Name)
	}
	return api.CheckItems(r.Items, "", m.Entry.Adapter.Class, api.Reads{})
}

// expected returns what the result of each item is expected to take in bytes.
func expected(m *catalog.Resolved, r *api.EncodeRequest) func(i int) int {
	types := r.OutputTypes
	if len(types) == 0 {
		types = []string{"dense"}
	}
	if m.Runtime != nil && m.Runtime.OutputTypes != nil {
		types = nil
		for _, t := range m.Runtime.OutputTypes {
			types = append(types, string(t))
		}
	}
	fixed, perToken := 0, 0
	for _, t := range types {
		switch strings.ToLower(t) {
		case "dense":
			fixed += 4 * max(m.Dims["dense"], 1024)
		case "sparse":
			perToken += 64
		case "multivector":
			perToken += 4 * max(m.Dims["multivector"], 128)
		}
	}
	if perToken == 0 {
		return nil // a slice of the largest vectors is far below the bound
	}
	most := m.MaxSequenceLength
	if most <= 0 {
		most = 32 << 10
	}
	return func(i int) int {
		it := &r.Items[i]
		tokens := len(it.Text)/2 + 16 // more than most texts have
		if ids := it.Tokens(); ids != nil {
			tokens = len(ids)
		}
		return fixed + perToken*min(tokens, most)
	}
}
