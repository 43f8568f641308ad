package server

import (
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/runtime/service"
)

// backend implements inference.Backend with the models of a service.
type backend struct {
	service *service.Service
	models  compat.Backend // of the service
	profile string         // Options.MachineProfile
	full    queueFullAnswers
	// wrap is nil but in tests.
	wrap func(inference.Session) inference.Session
}

func newBackend(w *service.Service, profile string) *backend {
	return &backend{
		service: w, models: w.Backend(), profile: profile, full: prepareFull(w.QueueLimit(), w.QueueWait()),
	}
}

// Models implements inference.Backend.
func (b *backend) Models() []api.ModelInfo { return b.service.Models() }

// Begin implements inference.Backend.
func (b *backend) Begin(h inference.Head) inference.Session {
	var s inference.Session = &session{
		Backend: b.models, backend: b, call: b.service.Call(h.Endpoint), profile: h.MachineProfile,
	}
	if b.wrap != nil {
		s = b.wrap(s)
	}
	return s
}

// session implements inference.Session. The Handle of its models is a service.Model.
type session struct {
	compat.Backend
	backend *backend
	call    service.Call
	profile string // that the request names
}

func (s *session) Check() error {
	if err := dialect.CheckMachineProfile(s.profile, s.backend.profile); err != nil {
		return err
	}
	return nil
}

func (s *session) Refusal(id string) *inference.Refusal {
	if id == "" {
		return s.backend.full.refusal(s.backend.service.AllFull())
	}
	return s.backend.full.refusal(s.backend.service.Full(id))
}

func (s *session) Extract(
	w *admit.Work, m compat.Model, r *api.ExtractRequest,
) (*api.ExtractResponse, error) {
	return m.Handle.(service.Model).Extract(w, r)
}

func (s *session) End(model string, o *api.Outcome, err error) {
	s.call.Model = model
	s.call.End(o, err)
}

// queueFullAnswers holds the prepared refusals of requests that find every queue full: one for
// queues that are full by items, and one per Retry-After in seconds for queues that are full by
// waiting time.
type queueFullAnswers struct {
	items *inference.Refusal
	slow  [maxRetry]*inference.Refusal
}

// maxRetry is one more than the largest Retry-After, in seconds.
const maxRetry = 61

func prepareFull(items int, wait time.Duration) (f queueFullAnswers) {
	f.items = inference.Refuse(errs.FullQueue(items, 1, items))
	for s := range f.slow {
		f.slow[s] = inference.Refuse(errs.SlowQueue(wait, time.Duration(s)*time.Second))
	}
	return f
}

// refusal returns the refusal for a full queue, or nil if there is room.
func (f *queueFullAnswers) refusal(retry time.Duration, full bool) *inference.Refusal {
	switch {
	case !full:
		return nil
	case retry == 0:
		return f.items
	}
	return f.slow[min((retry+time.Second-1)/time.Second, maxRetry-1)]
}
