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

// Options configures a Service with the options of its host. New sets Tasks.
type Options = model.Options

// Service serves every model of the catalog. Its methods are safe for concurrent use.
type Service struct {
	*model.Host
	metrics *metrics.Metrics
}

// New opens the devices and loads no model.
func New(opt Options) (*Service, error) {
	opt.Tasks = task.Tasks()
	h, err := model.New(opt)
	if err != nil {
		return nil, err
	}
	return &Service{h, opt.Metrics}, nil
}

// Model is one model in one catalog snapshot. A request finds its Model once and uses it
// throughout, so that all its steps see the same snapshot.
type Model struct {
	service *Service
	entry   *catalog.Resolved
	name    string    // the id that the caller used
	began   time.Time // when the request began
}

// Find resolves an id, or returns the 404 error with suggestions. It loads nothing.
func (s *Service) Find(id string) (Model, error) {
	m, err := s.Describe(id)
	return Model{s, m, id, time.Now()}, err
}

// FindOpenAI works as Find for OpenAI-style routes, where "org__name" also names "org/name".
func (s *Service) FindOpenAI(id string) (Model, error) {
	m, err := s.DescribeOpenAI(id)
	if err != nil {
		return Model{}, err
	}
	return Model{s, m, m.ID, time.Now()}, nil
}

// Entry returns the model's catalog entry, which is read-only.
func (m Model) Entry() *catalog.Resolved { return m.entry }

// Began returns m with timings that count from at instead of from Find.
func (m Model) Began(at time.Time) Model {
	m.began = at
	return m
}

// Room reports whether every queue of the model is full, so that a new request would be refused.
// retry is then the time to wait before a retry; 0 means that the queues are full by items. full is
// false when there is room, and when only the request's body can decide. The check is cheap: an
// overloaded server spends little on requests that it refuses.
func (m Model) Room() (retry time.Duration, full bool) { return m.service.Full(m.entry.ID) }

// Outcome returns the status label of sie_requests_total for a request that ended with err. err is
// nil for a success. cancelled means that the client left before the answer.
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

// Ended counts a request that was not answered with a result. model is its id in the catalog, or ""
// for a model that is not there.
func (s *Service) Ended(model, endpoint string, o metrics.Outcome) {
	s.metrics.Request(model, endpoint, o)
}

// Served counts a request that was answered with a result.
func (s *Service) Served(model, endpoint string, items, tokens int, t api.Timings) {
	s.metrics.Request(model, endpoint, metrics.Success)
	s.metrics.Served(model, endpoint, items, tokens, t)
}
