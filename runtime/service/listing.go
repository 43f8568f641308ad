package service

import (
	"cmp"
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/catalog/listing"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/registry"
)

// Models lists every model id that requests can name, in catalog order. It loads nothing.
func (s *Service) Models() []api.ModelInfo {
	list := s.States()
	out := make([]api.ModelInfo, len(list))
	for i := range list {
		out[i] = listed(&list[i])
	}
	return out
}

// Model describes one id. For an unknown id it returns the 404 error.
func (s *Service) Model(id string) (*api.ModelInfo, error) {
	m, err := s.Describe(id)
	if err != nil {
		return nil, err
	}
	state := s.StateOf(m)
	info := listed(&state)
	return &info, nil
}

// listed returns the entry of a model in the list of models. What the catalog does not say comes
// from the weights, if they are loaded.
func listed(s *model.State) api.ModelInfo {
	m := s.Entry
	info := listing.Info(m)
	info.Loaded, info.State = s.State == registry.Loaded, string(s.State)
	if f := s.Failure; f != nil {
		info.LastError = &api.ModelError{
			Code: f.Class, Message: f.Cause, Attempts: f.Attempts, Permanent: f.Permanent,
		}
	}
	if l := s.Loaded; l != nil {
		if info.Dims.Dense == 0 && m.Has(string(catalog.OutputDense)) {
			info.Dims.Dense = l.Dim
		}
		if info.MaxSequenceLength == nil {
			info.MaxSequenceLength = &l.MaxTokens
		}
	}
	return info
}

// Status holds the state of the worker that the status socket shows.
type Status struct {
	Loaded           []string // ids
	Models           []api.ModelStatus
	MaxBatchRequests int
	Saturated        bool // a queue is full
	GPUs             []api.GPUStatus
	Activity         api.Activity
}

// Status returns a snapshot: every id of the catalog, as in the reference server, the largest in
// memory first. If several ids share weights, their memory and queue are shown only under the
// first.
func (s *Service) Status() Status {
	st := Status{Loaded: []string{}, MaxBatchRequests: s.MaxBatchItems(), GPUs: gpuStatuses(s.GPUs()),
		Activity: api.Activity{Totals: s.metrics.Totals(), Running: s.gate.Running()}}
	st.Activity.MemoryUsedBytes, st.Activity.MemoryTotalBytes = s.HostMemory()
	device := s.DeviceName()
	list := s.States()
	st.Models = make([]api.ModelStatus, len(list))
	for i := range list {
		st.Models[i] = shown(&list[i], &device)
		if l := list[i].Loaded; l != nil {
			st.Loaded = append(st.Loaded, list[i].Entry.ID)
			st.Saturated = st.Saturated || l.Queue.Items >= s.QueueLimit()
		}
	}
	slices.SortStableFunc(st.Models,
		func(a, b api.ModelStatus) int { return cmp.Compare(b.MemoryBytes, a.MemoryBytes) })
	return st
}

// gpuStatuses returns the status of GPUs.
func gpuStatuses(list []model.GPU) []api.GPUStatus {
	out := make([]api.GPUStatus, len(list))
	for i, g := range list {
		out[i] = api.GPUStatus{Device: g.Device, Name: g.Name, GPUType: g.Type, UtilizationPct: g.Utilization,
			MemoryUsedBytes: g.Used, MemoryTotalBytes: g.Total, MemoryThresholdPct: g.Threshold}
	}
	return out
}

// shown returns the status of one id. device is the name of the device that models run on.
func shown(s *model.State, device *string) api.ModelStatus {
	m := s.Entry
	out := api.ModelStatus{Name: m.ID, State: string(s.State), Config: api.ModelConfig{
		Adapter: m.Adapter.String(), Inputs: m.Inputs, Outputs: m.Outputs, Dims: m.Dims,
	}}
	if m.HFID != "" {
		out.Config.HFID = &m.HFID
	}
	if m.MaxSequenceLength > 0 {
		out.Config.MaxSequenceLength = &m.MaxSequenceLength
	}
	l := s.Loaded
	if l == nil {
		return out
	}
	out.Device = device
	if l.MaxTokens > 0 {
		out.Config.MaxSequenceLength = &l.MaxTokens
	}
	if len(m.Dims) == 0 && m.Has(string(catalog.OutputDense)) {
		out.Config.Dims = map[string]int{"dense": l.Dim}
	}
	if l.First {
		q := &l.Queue
		out.MemoryBytes = l.Bytes
		out.QueueDepth, out.QueuePendingItems = q.Items, q.Items
		out.AdaptiveBatching = &api.AdaptiveStatus{Calibrated: q.Calibrated, TargetP50MS: q.TargetP50,
			WaitMS: float64(q.Wait.Microseconds()) / 1e3, BatchCost: q.BatchCost, P50MS: q.P50,
			HeadroomMS: q.Headroom, FillRatio: q.Fill}
	}
	return out
}
