package api

import (
	"bytes"
	"encoding/json"
)

// ModelInfo is an entry of GET /v1/models. It has the fields of the reference's worker and, for a
// gateway, those of the reference's gateway.
type ModelInfo struct {
	Name string `json:"name"`
	// in the order text, image, audio, video, document
	Inputs []string `json:"inputs"`
	// in the order dense, sparse, multivector, score, json, tokens
	Outputs           []string               `json:"outputs"`
	Dims              ModelDims              `json:"dims"`
	Loaded            bool                   `json:"loaded"`
	State             string                 `json:"state"` // available, loading, loaded, unloading or failed
	LastError         *ModelError            `json:"last_error"`
	MaxSequenceLength *int                   `json:"max_sequence_length"`
	Profiles          map[string]ProfileInfo `json:"profiles"`
	Revision          *string                `json:"revision"`
	Capabilities      *struct{}              `json:"capabilities"` // generation only: always null here
	Routing           ModelRouting           `json:"routing"`

	*GatewayInfo
}

// ModelDims holds the widths of a model's outputs; 0 leaves one out.
type ModelDims struct {
	Dense       int `json:"dense,omitempty"`
	Sparse      int `json:"sparse,omitempty"`
	Multivector int `json:"multivector,omitempty"`
}

// ModelError is a recorded load failure.
type ModelError struct {
	Code      string `json:"code"` // the class, see errs.LoadFailure
	Message   string `json:"message"`
	Attempts  int    `json:"attempts"`
	Permanent bool   `json:"permanent"`
}

// ProfileInfo describes a profile. The digests belong to remote serving and stay null.
type ProfileInfo struct {
	IsDefault             bool    `json:"is_default"`
	Identity              *string `json:"identity"`
	RemoteContractSHA256  *string `json:"remote_contract_sha256"`
	RemoteExecutionSHA256 *string `json:"remote_execution_sha256"`
	RuntimeInstanceID     *string `json:"runtime_instance_id"`
}

// ModelRouting tells how a bare model name is served; null means locally.
type ModelRouting struct {
	Policy       *string `json:"policy"`
	UpstreamKind *string `json:"upstream_kind"`
}

// GatewayInfo holds the fields that only a gateway fills. A worker leaves it nil, and its keys out.
type GatewayInfo struct {
	Bundles     []string `json:"bundles"`
	WorkerCount int      `json:"worker_count"`
	Workers     []string `json:"workers"`
	Aliases     []string `json:"aliases,omitempty"` // names that stand for the model, sometimes or always
}

// AppendModelJSON appends one model entry.
func AppendModelJSON(dst []byte, m *ModelInfo) []byte { return appendMarshalled(dst, m.withLists()) }

// AppendModelsJSON appends the whole list.
func AppendModelsJSON(dst []byte, models []ModelInfo) []byte {
	dst = append(dst, `{"models":[`...)
	for i := range models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModelJSON(dst, &models[i])
	}
	return append(dst, "]}"...)
}

// withLists returns a copy with empty lists and maps in place of nil ones, because clients iterate
// over them.
func (m *ModelInfo) withLists() ModelInfo {
	c := *m
	if c.Inputs == nil {
		c.Inputs = []string{}
	}
	if c.Outputs == nil {
		c.Outputs = []string{}
	}
	if c.Profiles == nil {
		c.Profiles = map[string]ProfileInfo{}
	}
	return c
}

func appendMarshalled(dst []byte, v any) []byte {
	buf := bytes.NewBuffer(dst)
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("api: a plain struct does not encode: " + err.Error())
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
