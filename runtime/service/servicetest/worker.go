package servicetest

import (
	"context"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/task"
)

// Worker wraps a service with one request type per operation, in the form that tests write most
// easily.
type Worker struct {
	*service.Service
	hold task.Hold
}

// Options configures a Worker with the options of the service.
type Options = service.Options

// New opens the devices and loads no model.
func New(opt Options) (*Worker, error) {
	s, err := service.New(opt)
	if err != nil {
		return nil, err
	}
	return Of(s), nil
}

// Of returns a Worker over a service.
func Of(s *service.Service) *Worker { return &Worker{s, func(int64, int) error { return nil }} }

// With returns a Worker over the same service whose requests ask hold for the room of their
// results.
func (w *Worker) With(hold task.Hold) *Worker { return &Worker{w.Service, hold} }

// Result is the result of a task.
type Result = task.Result

// Request asks for the vectors of texts or of token ids. Exactly one of Texts and Tokens is set.
type Request struct {
	Model  string
	Texts  []string
	Tokens [][]int32
	Field  string

	Options      map[string]any
	OutputTypes  []string
	OutputDType  string
	Instruction  *string
	IsQuery      *bool
	Dimensions   int
	TruncateLeft bool
}

// ScoreRequest asks how relevant texts are to a query.
type ScoreRequest struct {
	Model       string
	Query       string
	Texts       []string
	Field       string
	Instruction *string
	Options     map[string]any

	TruncateLeft bool
}

// ExtractRequest asks for the entities or classes of texts.
type ExtractRequest struct {
	Model       string
	Texts       []string
	Labels      []string
	Instruction *string
	Options     map[string]any
}

// ClassifyRequest asks a model with a classification head for the scores of its labels. Exactly one
// of Texts and Pairs is set.
type ClassifyRequest struct {
	Model     string
	Texts     []string
	Pairs     [][2]string
	Field     string
	RawScores bool
	Options   map[string]any

	TruncateLeft bool
}

// Encode returns the vectors of texts or token ids.
func (w *Worker) Encode(ctx context.Context, r *Request) (*Result, error) {
	inputs := task.Texts(r.Texts)
	if r.Tokens != nil {
		inputs = task.TokenLists(r.Tokens)
	}
	return w.run(ctx, r.Model, &task.Request{
		Op: task.Encode, Inputs: inputs, Field: r.Field, Options: r.Options, OutputTypes: r.OutputTypes,
		OutputDType: r.OutputDType, Instruction: r.Instruction, IsQuery: r.IsQuery, Dimensions: r.Dimensions,
		TruncateLeft: r.TruncateLeft,
	})
}

// Score returns the scores of texts.
func (w *Worker) Score(ctx context.Context, r *ScoreRequest) (*Result, error) {
	return w.run(ctx, r.Model, &task.Request{
		Op:           task.Score,
		Query:        &api.Item{Text: r.Query, HasText: true},
		Inputs:       task.Texts(r.Texts),
		Field:        r.Field,
		Options:      r.Options,
		Instruction:  r.Instruction,
		TruncateLeft: r.TruncateLeft,
	})
}

// Extract returns the entities or classes of texts.
func (w *Worker) Extract(ctx context.Context, r *ExtractRequest) (*Result, error) {
	return w.run(ctx, r.Model,
		&task.Request{Op: task.Extract, Inputs: task.Texts(r.Texts), Labels: r.Labels, Options: r.Options,
			Instruction: r.Instruction})
}

// Classify returns the scores of the labels of a classification head.
func (w *Worker) Classify(ctx context.Context, r *ClassifyRequest) (*Result, error) {
	inputs := task.Texts(r.Texts)
	if r.Pairs != nil {
		inputs = make([]api.Item, len(r.Pairs))
		for i := range r.Pairs {
			inputs[i] = api.Item{
				Text: r.Pairs[i][0], HasText: true, Extra: &api.ItemExtra{Second: &r.Pairs[i][1]},
			}
		}
	}
	return w.run(ctx, r.Model, &task.Request{
		Op:           task.Classify,
		Inputs:       inputs,
		Field:        r.Field,
		RawScores:    r.RawScores,
		Options:      r.Options,
		TruncateLeft: r.TruncateLeft,
	})
}

func (w *Worker) run(ctx context.Context, id string, r *task.Request) (*Result, error) {
	var err error
	if r.Model, err = w.Describe(id); err != nil {
		return nil, err
	}
	r.Name = id
	p, err := task.Prepare(r)
	if err != nil {
		return nil, err
	}
	return p.Run(ctx, w.Host, w.hold)
}

// Tokenize splits texts as the model's tokenizer does.
func (w *Worker) Tokenize(
	ctx context.Context, id string, texts []string, addSpecial bool,
) ([][]api.Token, error) {
	m, err := w.Describe(id)
	if err != nil {
		return nil, err
	}
	return task.Tokenize(ctx, w.Host, m, texts, addSpecial, w.hold)
}

// Detokenize turns lists of token ids back into texts.
func (w *Worker) Detokenize(
	ctx context.Context, id string, ids [][]int32, skipSpecial bool,
) ([]string, error) {
	m, err := w.Describe(id)
	if err != nil {
		return nil, err
	}
	return task.Detokenize(ctx, w.Host, m, ids, skipSpecial, w.hold)
}
