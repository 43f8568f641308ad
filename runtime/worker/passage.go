package worker

import (
	"context"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
)

// passage is a request with items on its way through a loaded model. Owned by one goroutine.
type passage struct {
	ctx     context.Context
	model   *model
	adapter batch.Adapter
	plan    *plan
	reader  *reader
	queue   *batch.Queue // of the program that answers; set by run
}

// begin pins the model of a plan for a request, until done is called. field is what the client calls the texts.
func (w *Worker) begin(ctx context.Context, p *plan, field string) (s passage, done func(), err error) {
	m, adapter, done, err := w.open(ctx, p)
	if err != nil {
		return s, nil, err
	}
	return passage{ctx: ctx, model: m, adapter: adapter, plan: p, reader: newReader(ctx, m, p, field)}, done, nil
}

// use makes the program that gives what is wanted the one whose queue the request is in.
func (s *passage) use(want arch.Want) (*variant, error) {
	v, err := s.model.variant(want)
	if err == nil {
		s.queue = v.queue
	}
	return v, err
}
