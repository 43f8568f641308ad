package catalog

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// AdHocInfo describes a model without a model file. Exactly one of HFID and WeightsPath is set.
// Other fields with zero values leave the choice to the model's own files, except as noted.
type AdHocInfo struct {
	HFID        string
	Revision    string
	WeightsPath string

	Adapter string // module:Class; "" = an encoder of dense vectors
	Tasks   Tasks  // used only with Adapter

	Dim                int // 0 = unknown until the weights are read
	MaxSequenceLength  int // tokens
	MaxBatchTokens     int // 0 = 16384
	Precision          Precision
	Pooling            Pooling
	Normalize          *bool
	QueryTemplate      *Template
	DocTemplate        *Template
	DefaultInstruction string
}

const (
	adHocAdapter          = "sie_server.adapters.sentence_transformer:SentenceTransformerDenseAdapter"
	defaultMaxBatchTokens = 16384
)

// AdHoc builds the model for a directory or hub repository without a model file. Without
// info.Adapter it takes text and gives one dense vector, as a sentence-transformers model does.
// Pooling and prompts come from the repository unless info states them.
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
	}{{"dimension", info.Dim, maxDim}, {"maximum sequence length", info.MaxSequenceLength, maxTokensN}, {"maximum batch tokens", info.MaxBatchTokens, maxTokensN}} {
		if n.v < 0 || n.v > n.limit {
			return nil, fmt.Errorf("%s must be between 0 and %d; got %d", n.name, n.limit, n.v)
		}
	}
	path, tasks := adHocAdapter, Tasks{Dense: &Dim{info.Dim}}
	if info.Adapter != "" {
		path, tasks = info.Adapter, info.Tasks
	}
	adapter, err := ParseAdapterPath(path)
	if err != nil {
		return nil, err
	}
	p := Profile{Name: DefaultProfile, Adapter: adapter, MaxBatchTokens: info.MaxBatchTokens, ComputePrecision: info.Precision, Runtime: info.runtime()}
	if familyOf(adapter, tasks) == FamilyColBERT {
		p.Loadtime = map[string]any{"skip_special_tokens": false} // as such models are trained
	}
	if p.MaxBatchTokens == 0 {
		p.MaxBatchTokens = defaultMaxBatchTokens
	}
	return &Model{
		ID: id, HFID: info.HFID, HFRevision: info.Revision, WeightsPath: info.WeightsPath,
		Inputs: Inputs{Text: true}, Tasks: tasks,
		MaxSequenceLength: info.MaxSequenceLength, Profiles: []Profile{p},
	}, nil
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
