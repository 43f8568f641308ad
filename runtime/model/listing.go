package model

import (
	"cmp"
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/registry"
)

// Models lists every model id that requests can name, in catalog order. It loads nothing.
func (h *Host) Models() []api.ModelInfo {
	list := h.view.Load().catalog.List()
	out := make([]api.ModelInfo, len(list))
	for i, m := range list {
		out[i] = h.info(m)
	}
	return out
}

// Model describes one id. For an unknown id it returns the 404 error.
func (h *Host) Model(id string) (*api.ModelInfo, error) {
	m, err := h.Describe(id)
	if err != nil {
		return nil, err
	}
	info := h.info(m)
	return &info, nil
}

func (h *Host) info(m *catalog.Resolved) api.ModelInfo {
	r := h.models.Get(h.key(m))
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
	h.fillFromWeights(&info, m)
	return info
}

// fillFromWeights adds the dense dimension and the maximum length if the catalog lacks them and the
// model is loaded.
func (h *Host) fillFromWeights(info *api.ModelInfo, m *catalog.Resolved) {
	needsDim := info.Dims.Dense == 0 && m.Has(string(catalog.OutputDense))
	if !info.Loaded || (!needsDim && info.MaxSequenceLength != nil) {
		return
	}
	h.models.Each(func(key string, l *Model) {
		if key != h.key(m) {
			return
		}
		if needsDim {
			info.Dims.Dense = l.weights.Dim
		}
		if info.MaxSequenceLength == nil {
			n := l.Limit(m)
			info.MaxSequenceLength = &n
		}
	})
}

// Status holds the state of the worker that the status socket shows.
type Status struct {
	Loaded           []string // ids
	Models           []api.ModelStatus
	MaxBatchRequests int
	Saturated        bool // a queue is full
	GPUs             []api.GPUStatus
}

// use holds the current state of one loaded model.
type use struct {
	bytes     int64
	dim       int
	maxTokens int
	queue     batch.Stats
}

// Status returns a snapshot: every id of the catalog, as in the reference server, the largest in
// memory first. If several ids share weights, their memory and queue are shown only under the
// first.
func (h *Host) Status() Status {
	st := Status{Loaded: []string{}, MaxBatchRequests: h.maxBatchRequests(), GPUs: h.gpus()}
	uses := make(map[string]use)
	h.models.Each(func(key string, l *Model) {
		u := use{bytes: l.Bytes(), dim: l.weights.Dim, maxTokens: l.maxTokens, queue: l.stats()}
		st.Saturated = st.Saturated || u.queue.Items >= h.opt.MaxQueueItems
		uses[key] = u
	})
	device := h.DeviceName()
	v := h.view.Load()
	list := v.catalog.List()
	st.Models = make([]api.ModelStatus, len(list))
	for i, m := range list {
		s := &st.Models[i]
		*s = api.ModelStatus{Name: m.ID, State: string(registry.Loaded), Config: api.ModelConfig{Adapter: m.Adapter.String(),
			Inputs: m.Inputs, Outputs: m.Outputs, Dims: m.Dims}}
		if m.HFID != "" {
			s.Config.HFID = &m.HFID
		}
		limit := m.MaxSequenceLength
		u, loaded := uses[h.key(m)]
		if loaded {
			st.Loaded = append(st.Loaded, m.ID)
			s.Device = &device
			if limit == 0 || u.maxTokens < limit {
				limit = u.maxTokens
			}
			if len(m.Dims) == 0 && m.Has(string(catalog.OutputDense)) {
				s.Config.Dims = map[string]int{"dense": u.dim}
			}
		} else {
			s.State = string(h.models.Get(h.key(m)).State)
		}
		if limit > 0 {
			s.Config.MaxSequenceLength = &limit
		}
		if loaded && m == v.copies[h.key(m)].first {
			s.MemoryBytes = u.bytes
			s.QueueDepth, s.QueuePendingItems = u.queue.Items, u.queue.Items
			s.AdaptiveBatching = &api.AdaptiveStatus{Calibrated: u.queue.Calibrated, TargetP50MS: u.queue.TargetP50,
				WaitMS: float64(u.queue.Wait.Microseconds()) / 1e3, BatchCost: u.queue.BatchCost, P50MS: u.queue.P50,
				HeadroomMS: u.queue.Headroom, FillRatio: u.queue.Fill}
		}
	}
	slices.SortStableFunc(st.Models, func(a, b api.ModelStatus) int { return cmp.Compare(b.MemoryBytes, a.MemoryBytes) })
	return st
}

func (h *Host) maxBatchRequests() int {
	if n := h.opt.Batch.MaxRequests; n > 0 {
		return n
	}
	return 64
}
