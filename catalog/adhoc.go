package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
)

// AdHocInfo describes a model without a model file. Exactly one of HFID and WeightsPath is set.
// Other fields with zero values leave the choice to the model's own files, except as noted.
type AdHocInfo struct {
	HFID        string
	Revision    string
	WeightsPath string

	Family Family // served by this build; FamilyNone = one of dense vectors

	Dim                int // 0 = unknown until the weights are read
	MaxSequenceLength  int // tokens
	MaxBatchTokens     int // 0 = 16384
	Precision          Precision
	Pooling            Pooling
	Normalize          *bool
	QueryTemplate      *Template
	DocTemplate        *Template
	DefaultInstruction string
	NoPrompts          bool  // the prompts of the model's files do not count
	LoRA               *LoRA // the model's own adapter, for requests that name none; nil = none
}

const defaultMaxBatchTokens = 16384

// AdHoc builds the model for a directory or hub repository without a model file. It takes text and
// gives all that its family does. Pooling and prompts come from the repository unless info states
// them.
func AdHoc(id string, info AdHocInfo) (*Model, error) {
	if err := checkID(id); err != nil {
		return nil, fmt.Errorf("model id: %w", err)
	}
	if (info.HFID == "") == (info.WeightsPath == "") {
		return nil, errors.New("give either a hub repository or a directory with the weights")
	}
	if info.HFID != "" {
		if err := checkHubID(info.HFID); err != nil {
			return nil, err
		}
	}
	if err := checkRevision(info.Revision); err != nil {
		return nil, fmt.Errorf("revision: %w", err)
	}
	for _, n := range []struct {
		name     string
		v, limit int
	}{{"dimension", info.Dim, maxDim}, {"maximum sequence length", info.MaxSequenceLength, maxTokensN},
		{"maximum batch tokens", info.MaxBatchTokens, maxTokensN}} {
		if n.v < 0 || n.v > n.limit {
			return nil, fmt.Errorf("%s must be between 0 and %d; got %d", n.name, n.limit, n.v)
		}
	}
	family := cmp.Or(info.Family, likely).info()
	if family == nil || family.reason != "" {
		return nil, fmt.Errorf("the family %q is not served", info.Family)
	}
	if family.unites != FamilyNone {
		return nil, errors.New("a union of models needs a model file, which names its members")
	}
	adapter, err := ParseAdapterPath("sie_server.adapters." + family.adHoc)
	if err != nil {
		return nil, err
	}
	p := Profile{
		Name:             DefaultProfile,
		Adapter:          adapter,
		MaxBatchTokens:   info.MaxBatchTokens,
		ComputePrecision: info.Precision,
		Loadtime:         family.loadtime,
		Runtime:          info.runtime(),
	}
	if p.MaxBatchTokens == 0 {
		p.MaxBatchTokens = defaultMaxBatchTokens
	}
	if l := info.LoRA; l != nil {
		p.Loadtime = maps.Clone(p.Loadtime)
		if p.Loadtime == nil {
			p.Loadtime = map[string]any{}
		}
		paths := map[string]any{"id": l.ID}
		if l.Revision != "" {
			paths["revision"] = l.Revision
		}
		p.Loadtime["lora_paths"] = map[string]any{l.Name: paths}
		p.Runtime["lora_id"] = l.Name
	}
	m := &Model{
		ID: id, HFID: info.HFID, HFRevision: info.Revision, WeightsPath: info.WeightsPath,
		Inputs: Inputs{Text: true}, Tasks: tasksOf(family.outputs, info.Dim),
		MaxSequenceLength: info.MaxSequenceLength, Profiles: []Profile{p},
	}
	m.describe()
	return m, nil
}

// tasksOf returns the tasks of a model with these outputs. dim is the width of its dense vectors.
func tasksOf(outputs []string, dim int) (t Tasks) {
	for _, o := range outputs {
		switch o {
		case outDense:
			t.Dense = &Dim{dim}
		case outSparse:
			t.Sparse = &Dim{}
		case outMultivector:
			t.Multivector = &Dim{}
		case outScore:
			t.Score = true
		case outJSON:
			t.Extract = true
		}
	}
	return t
}

func (info AdHocInfo) runtime() map[string]any {
	out := map[string]any{}
	if info.Pooling != "" {
		out["pooling"] = string(info.Pooling)
	}
	if info.Normalize != nil {
		out["normalize"] = *info.Normalize
	}
	if info.QueryTemplate != nil {
		out["query_template"] = info.QueryTemplate.String()
	}
	if info.DocTemplate != nil {
		out["doc_template"] = info.DocTemplate.String()
	}
	if info.DefaultInstruction != "" {
		out["default_instruction"] = info.DefaultInstruction
	}
	if info.NoPrompts {
		out["instruction"] = "" // which stands in for them
	}
	return out
}

// IsPath reports whether a --models entry names a directory and not an id. A directory starts with
// "/", "./", "../" or "~/", or is "." or "..".
func IsPath(ref string) bool {
	return ref == "." || ref == ".." || strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "./") ||
		strings.HasPrefix(ref, "../") || strings.HasPrefix(ref, "~/")
}

// AdHocID returns the public id of a directory given as a path. It is the path's last part, with
// "-" for characters that an id cannot have, or "model" if that is no valid id.
func AdHocID(dir string) string {
	name := path.Base(strings.TrimRight(strings.ReplaceAll(dir, `\`, "/"), "/"))
	id := strings.Map(func(r rune) rune {
		if r > 0x7f || notHubRune(r) {
			return '-'
		}
		return r
	}, name)
	if checkID(id) != nil {
		return "model"
	}
	return id
}
