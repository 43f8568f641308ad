package ipc

import (
	"context"
	"os"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
)

// ping answers with the state of the server. It notes the sidecar's heartbeat.
func (s *Server) ping(c *conn, r *wire.Request) {
	b, ok := decode[wire.PingRequest](c, r)
	if !ok {
		return
	}
	now := time.Now()
	s.beat.Store(&now)
	a := &wire.PingResponse{
		TimestampMS: b.TimestampMS, WorkerID: s.opt.WorkerID, PID: os.Getpid(), Epoch: s.epoch,
		Ready:            s.opt.Ready() && !s.gate.Draining() && !s.service.Lost(),
		BundleConfigHash: s.opt.Configs.Hash(), BundleDocumentsHash: s.opt.Configs.DocumentsHash(),
		LoadedModels: []string{}, LoadingModels: []string{}, RequestBytes: maxRequest,
	}
	for _, m := range s.service.Presence() {
		if m.Loaded {
			a.LoadedModels = append(a.LoadedModels, m.ID)
		} else {
			a.LoadingModels = append(a.LoadingModels, m.ID)
		}
		a.QueuedTokens += int64(m.QueuedTokens)
	}
	var last time.Time
	a.FinishedBatch, last = s.service.FinishedBatches()
	for _, g := range s.service.GPUs() {
		a.GPUCount++
		a.MemoryUsed, a.MemoryTotal = a.MemoryUsed+g.Used, a.MemoryTotal+g.Total
	}
	if a.GPUCount == 0 {
		a.MemoryUsed, a.MemoryTotal = s.service.HostMemory()
	}
	s.mu.Lock()
	for b := range s.batches {
		since := b.began
		if last.After(since) {
			since = last
		}
		a.Running = append(a.Running, wire.Progress{
			RequestID: b.id, Done: b.done.Load(), Total: b.total,
			ProgressMS: api.Milliseconds(now.Sub(since)),
		})
	}
	s.mu.Unlock()
	c.reply(r, a)
}

// ensure answers at once how far a model is loaded, and begins its load if there is none.
func (c *conn) ensure(r *wire.Request) {
	b, ok := decode[wire.ModelRequest](c, r)
	if !ok {
		return
	}
	s := c.server
	if err := s.gate.Open(); err != nil {
		c.reply(r, &wire.ReadyResponse{State: wire.StateRetryLater, RetryAfterS: 1})
		return
	}
	m, err := s.service.Find(b.ModelID)
	if err != nil {
		c.reply(r, failedModel(err))
		return
	}
	a, err := m.Ask()
	if err != nil {
		c.reply(r, failedModel(err))
		return
	}
	out := &wire.ReadyResponse{State: wire.StateLoadingInProgress, RetryAfterS: loadingPause}
	switch {
	case a.Loaded:
		e := m.Entry()
		out = &wire.ReadyResponse{State: wire.StateReady, BatchTokens: a.BatchTokens}
		out.Descriptor = &wire.Descriptor{
			OutputTypes: e.Outputs, SupportsRunBatch: true, MaxSeqLen: &a.MaxTokens,
		}
	case a.Started:
		out.State = wire.StateLoadingStarted
	case !a.Loading: // it is being unloaded
		out.State = wire.StateRetryLater
	}
	c.reply(r, out)
}

// loadingPause is the time in seconds after which a sidecar may ask again for a model that loads.
const loadingPause = 0.25

func failedModel(err error) *wire.ReadyResponse {
	e := errs.As(err)
	return &wire.ReadyResponse{
		State: wire.StateFailed, RetryAfterS: e.RetryAfter.Seconds(), Err: e.AppendMsgpack(nil),
	}
}

func (c *conn) capabilities(r *wire.Request) {
	a := &wire.CapabilitiesResponse{
		GenerationModels: []string{}, SupportedModels: []string{}, LoadedModels: []string{},
	}
	for _, m := range c.server.service.Catalog().List() {
		if m.Usable() == nil {
			a.SupportedModels = append(a.SupportedModels, m.ID)
		}
	}
	for _, m := range c.server.service.Presence() {
		if m.Loaded {
			a.LoadedModels = append(a.LoadedModels, m.ID)
		}
	}
	c.reply(r, a)
}

// pin replaces the set of models that are never unloaded. Ids that the catalog does not have yet
// count as soon as it has them.
func (c *conn) pin(r *wire.Request) {
	if b, ok := decode[wire.PinRequest](c, r); ok {
		c.reply(r, &wire.PinResponse{Applied: true, Count: c.server.service.SetPinned(b.Models)})
	}
}

// drain shuts the gate of the whole process. What runs has until the deadline; what comes later is
// given back.
func (c *conn) drain(r *wire.Request) {
	b, ok := decode[wire.DrainRequest](c, r)
	if !ok {
		return
	}
	s := c.server
	s.gate.Shut()
	limit := time.Duration(max(0, min(b.DeadlineMS, maxTimeoutMS)) * float64(time.Millisecond))
	s.opt.Log.Info("ipc: draining", "at_most", limit)
	s.done.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, limit)
		defer cancel()
		if err := s.gate.Drain(ctx); err != nil && s.ctx.Err() == nil {
			s.opt.Log.Warn("ipc: the drain ran out of time", "error", err)
		}
	})
	c.reply(r, &wire.DrainResponse{Acknowledged: true})
}
