package service

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/task"
)

// Options configures a Service.
type Options struct {
	model.Options               // of its host; New sets Tasks
	Admit         admit.Options // bounds on all requests together, and on the time of each
}

// Validate returns all errors in the options joined, nil for none.
func (o *Options) Validate() error { return errors.Join(o.Options.Validate(), o.Admit.Validate()) }

// Service serves every model of the catalog. Its methods are safe for concurrent use.
type Service struct {
	*model.Host
	gate    *admit.Gate
	metrics *metrics.Metrics
}

// New opens the devices and loads no model.
func New(opt Options) (*Service, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	opt.Tasks = task.Tasks()
	h, err := model.New(opt.Options)
	if err != nil {
		return nil, err
	}
	return &Service{h, admit.New(opt.Admit), opt.Metrics}, nil
}

// Gate returns the gate that admits the requests of every entrance. Draining it ends the work of
// the service; Close may follow.
func (s *Service) Gate() *admit.Gate { return s.gate }

// Gatherer returns the series of the process.
func (s *Service) Gatherer() prometheus.Gatherer { return s.metrics.Registry }

// Model is one model in one catalog snapshot. A request finds its Model once and uses it
// throughout, so that all its steps see the same snapshot.
type Model struct {
	service *Service
	entry   *catalog.Resolved
	name    string // the id that the caller used
}

// Find resolves an id, or returns the 404 error with suggestions. It loads nothing.
func (s *Service) Find(id string) (Model, error) {
	m, err := s.Describe(id)
	return Model{s, m, id}, err
}

// FindOpenAI works as Find for OpenAI-style routes, where "org__name" also names "org/name".
func (s *Service) FindOpenAI(id string) (Model, error) {
	m, err := s.DescribeOpenAI(id)
	if err != nil {
		return Model{}, err
	}
	return Model{s, m, m.ID}, nil
}

// Entry returns the model's catalog entry, which is read-only.
func (m Model) Entry() *catalog.Resolved { return m.entry }

// Room reports whether every queue of the model is full, so that a new request would be refused.
// retry is then the time to wait before a retry; 0 means that the queues are full by items. full is
// false when there is room, and when only the request's body can decide. The check is cheap: an
// overloaded server spends little on requests that it refuses.
func (m Model) Room() (retry time.Duration, full bool) { return m.service.Full(m.entry.ID) }

// Asked says how far a model is loaded.
type Asked = model.Asked

// Ask says how far the model is loaded, and begins its load if there is none. It waits for nothing.
func (m Model) Ask() (Asked, error) { return m.service.Host.Ask(m.entry) }

// Changes lists the model ids that SetCatalog added, changed or removed.
type Changes = model.Changes

// Presence is a model id that is loaded or is being loaded.
type Presence struct {
	ID           string
	Loaded       bool // false: it is being loaded
	QueuedTokens int  // under the first of several ids that share the weights
}

// Presence lists every id whose model is loaded or is being loaded, in catalog order.
func (s *Service) Presence() []Presence {
	var out []Presence
	for _, m := range s.States() {
		switch {
		case m.Loaded != nil:
			p := Presence{ID: m.Entry.ID, Loaded: true}
			if m.Loaded.First {
				p.QueuedTokens = m.Loaded.Queue.Tokens
			}
			out = append(out, p)
		case m.State == registry.Loading:
			out = append(out, Presence{ID: m.Entry.ID})
		}
	}
	return out
}
