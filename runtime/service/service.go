package service

import (
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/task"
)

// Options of a service are those of its host. New sets Tasks.
type Options = model.Options

// Service is every model of the catalog, ready to be asked. Its methods are safe for concurrent
// use.
type Service struct {
	*model.Host
	metrics *metrics.Metrics
}

// New opens the devices. No model is loaded yet.
func New(opt Options) (*Service, error) {
	opt.Tasks = task.Tasks()
	h, err := model.New(opt)
	if err != nil {
		return nil, err
	}
	return &Service{h, opt.Metrics}, nil
}

// Model is a model as one view of the catalog has it. A request finds it once and asks it from then
// on.
type Model struct {
	service *Service
	entry   *catalog.Resolved
	name    string    // what the caller calls it
	began   time.Time // when the request did
}

// Find resolves an id, or returns the 404 with suggestions. It loads nothing.
func (s *Service) Find(id string) (Model, error) {
	m, err := s.Describe(id)
	return Model{s, m, id, time.Now()}, err
}

// FindOpenAI is Find for OpenAI-style routes, where "org__name" also names "org/name".
func (s *Service) FindOpenAI(id string) (Model, error) {
	m, err := s.DescribeOpenAI(id)
	if err != nil {
		return Model{}, err
	}
	return Model{s, m, m.ID, time.Now()}, nil
}

// Entry is the catalog's entry; read-only.
func (m Model) Entry() *catalog.Resolved { return m.entry }

// Began returns the model for a request whose timings count from at, not from when the model was
// found.
func (m Model) Began(at time.Time) Model {
	m.began = at
	return m
}

// Room says when a request may come again that would find every queue of the model full; full is
// false where it may come now, and where only its body tells. It is cheap, so that an overloaded
// server spends little on what it refuses.
func (m Model) Room() (retry time.Duration, full bool) { return m.service.Full(m.entry.ID) }

// Outcome is how a request ended, in the words of sie_requests_total. err is what it was answered
// with, nil for a success; cancelled: its client left before.
func Outcome(err error, cancelled bool) metrics.Outcome {
	switch e := errs.As(err); {
	case err == nil:
		return metrics.Success
	case cancelled:
		return metrics.Cancelled
	case e.Code == errs.QueueFull:
		return metrics.QueueFull
	case e.Status < 500:
		return metrics.Rejected
	}
	return metrics.Error
}

// Ended counts a request that was not answered with a result. model is its id in the catalog, ""
// for one that is not there.
func (s *Service) Ended(model, endpoint string, o metrics.Outcome) {
	s.metrics.Request(model, endpoint, o)
}

// Served counts a request that was answered.
func (s *Service) Served(model, endpoint string, items, tokens int, t api.Timings) {
	s.metrics.Request(model, endpoint, metrics.Success)
	s.metrics.Served(model, endpoint, items, tokens, t)
}
