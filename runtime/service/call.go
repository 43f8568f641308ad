package service

import (
	"errors"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/metrics"
)

// Call counts one request of an entrance, from its arrival to its end. An entrance makes it with
// Service.Call and calls End once, however the request ends. It belongs to one goroutine.
type Call struct {
	// Model is the model's id in the catalog, "" until the entrance knows it. Clients cannot grow
	// the set of labels with ids that they make up.
	Model string

	service  *Service
	endpoint string
}

// Call begins a request. endpoint is its name in metrics.
func (s *Service) Call(endpoint string) Call { return Call{service: s, endpoint: endpoint} }

// Endpoint returns the call's name in metrics.
func (c *Call) Endpoint() string { return c.endpoint }

// End counts the request. o is its outcome, or nil if err says why there is no answer.
func (c *Call) End(o *api.Outcome, err error) {
	m := c.service.metrics
	if err != nil {
		m.Request(c.Model, c.endpoint, outcomeOf(err))
		return
	}
	m.Request(o.ModelID, c.endpoint, metrics.Success)
	m.Served(o.ModelID, c.endpoint, o.Items, o.Tokens, o.Timings)
}

// outcomeOf returns the status label of sie_requests_total for a request that ended with err.
func outcomeOf(err error) metrics.Outcome {
	switch e := errs.As(err); {
	case errors.Is(err, admit.ErrClientGone):
		return metrics.Cancelled
	case e.Code == errs.QueueFull:
		return metrics.QueueFull
	case e.Status < 500:
		return metrics.Rejected
	}
	return metrics.Error
}
