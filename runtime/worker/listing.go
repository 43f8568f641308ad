package worker

import (
	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/registry"
)

// Models lists every id that can be asked for, in catalog order. It loads nothing.
func (w *Worker) Models() []api.ModelInfo {
	list := w.catalog.List()
	out := make([]api.ModelInfo, len(list))
	for i, m := range list {
		out[i] = w.info(m)
	}
	return out
}

// Model describes one id, or returns the 404.
func (w *Worker) Model(id string) (*api.ModelInfo, error) {
	m, err := w.Describe(id)
	if err != nil {
		return nil, err
	}
	info := w.info(m)
	return &info, nil
}

func (w *Worker) info(m *catalog.Resolved) api.ModelInfo {
	r := w.models.Get(w.key(m))
	info := api.ModelInfo{
		Name: m.ID, Inputs: m.Inputs, Outputs: m.Outputs,
		Dims:   api.ModelDims{Dense: m.Dims["dense"], Sparse: m.Dims["sparse"], Multivector: m.Dims["multivector"]},
		Loaded: r.State == registry.Loaded, State: string(r.State), Profiles: make(map[string]api.ProfileInfo),
	}
	for _, p := range m.Profiles {
		info.Profiles[p.Name] = api.ProfileInfo{IsDefault: p.IsDefault}
	}
	if m.MaxSequenceLength > 0 {
		info.MaxSequenceLength = &m.MaxSequenceLength
	}
	if m.Revision != "" {
		info.Revision = &m.Revision
	}
	if f := r.Failure; f != nil {
		info.LastError = &api.ModelError{Code: f.Class, Message: publicCause(f.Err), Attempts: f.Attempts, Permanent: f.Permanent}
	}
	w.fillFromWeights(&info, m)
	return info
}

// fillFromWeights adds what only a loaded model knows: the widths of a model without a catalog entry.
func (w *Worker) fillFromWeights(info *api.ModelInfo, m *catalog.Resolved) {
	if !info.Loaded || (info.Dims.Dense > 0 && info.MaxSequenceLength != nil) {
		return
	}
	w.models.Each(func(key string, l *model) {
		if key != w.key(m) {
			return
		}
		if info.Dims.Dense == 0 {
			info.Dims.Dense = l.weights.Dim
		}
		if info.MaxSequenceLength == nil {
			n := l.limit(m)
			info.MaxSequenceLength = &n
		}
	})
}

// Status is what the status socket shows of the worker.
type Status struct {
	Loaded           []string
	Models           []ModelStatus
	MaxBatchRequests int
	Saturated        bool // a queue is full
}

// ModelStatus is one loaded model, in the reference's words.
type ModelStatus struct {
	Name              string          `json:"name"`
	State             string          `json:"state"`
	Device            string          `json:"device"`
	MemoryBytes       int64           `json:"memory_bytes"`
	Config            ModelConfig     `json:"config"`
	QueueDepth        int             `json:"queue_depth"`
	QueuePendingItems int             `json:"queue_pending_items"`
	AdaptiveBatching  *AdaptiveStatus `json:"adaptive_batching,omitempty"`
}

// ModelConfig is the part of a model's configuration that watchers see.
type ModelConfig struct {
	HFID              string         `json:"hf_id"`
	Adapter           string         `json:"adapter"`
	Inputs            []string       `json:"inputs"`
	Outputs           []string       `json:"outputs"`
	Dims              map[string]int `json:"dims"`
	MaxSequenceLength int            `json:"max_sequence_length"`
}

// AdaptiveStatus shows the latency controller of a model.
type AdaptiveStatus struct {
	Calibrated  bool    `json:"calibrated"`
	TargetP50MS float64 `json:"target_p50_ms"`
	WaitMS      float64 `json:"wait_ms"`
	BatchCost   int     `json:"batch_cost"`
	P50MS       float64 `json:"p50_ms"`
	HeadroomMS  float64 `json:"headroom_ms"`
	FillRatio   float64 `json:"fill_ratio"`
}

// Status takes a snapshot. A set of weights appears under the id of the first catalog entry that uses it.
func (w *Worker) Status() Status {
	st := Status{Loaded: []string{}, Models: []ModelStatus{}, MaxBatchRequests: w.maxBatchRequests()}
	w.models.Each(func(key string, l *model) {
		m := w.copies[key].first
		q := l.stats()
		st.Loaded = append(st.Loaded, m.ID)
		st.Saturated = st.Saturated || q.Items >= w.opt.MaxQueueItems
		st.Models = append(st.Models, ModelStatus{
			Name: m.ID, State: string(registry.Loaded), Device: w.DeviceName(), MemoryBytes: l.Bytes(),
			Config: ModelConfig{HFID: m.HFID, Adapter: m.Adapter.String(), Inputs: m.Inputs, Outputs: m.Outputs,
				Dims: m.Dims, MaxSequenceLength: l.limit(m)},
			QueueDepth: q.Items, QueuePendingItems: q.Items,
			AdaptiveBatching: &AdaptiveStatus{Calibrated: q.Calibrated, TargetP50MS: q.TargetP50,
				WaitMS: float64(q.Wait.Microseconds()) / 1e3, BatchCost: q.BatchCost, P50MS: q.P50,
				HeadroomMS: q.Headroom, FillRatio: q.Fill},
		})
	})
	return st
}

func (w *Worker) maxBatchRequests() int {
	if n := w.opt.Batch.MaxRequests; n > 0 {
		return n
	}
	return 64
}
