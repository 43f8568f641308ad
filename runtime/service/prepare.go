package service

import (
	"context"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/task"
)

// Prepared is a request that every check has passed which needs no loaded model. R is its answer.
type Prepared[R any] struct {
	service *Service
	task    *task.Prepared
	start   time.Time
	answer  func(*task.Result) R
}

// Run answers the request. ctx bounds waiting: when it ends, its queued items are dropped and its
// cause is returned. Other errors are *errs.Error. Results count as held bytes where ctx says so
// (task.WithHold).
func (p *Prepared[R]) Run(ctx context.Context) (R, error) {
	res, err := p.task.Run(ctx, p.service.Host)
	if err != nil {
		var none R
		return none, err
	}
	res.Timings.Preprocess += time.Since(p.start) - res.Timings.Total
	res.Timings.Total = time.Since(p.start)
	return p.answer(res), nil
}

// prepare checks r for a model.
func prepare[R any](m Model, r *task.Request, answer func(*task.Result) R) (*Prepared[R], error) {
	r.Model, r.Name = m.entry, m.name
	p, err := task.Prepare(r)
	if err != nil {
		return nil, err
	}
	return &Prepared[R]{m.service, p, m.began, answer}, nil
}

// PrepareEncode checks a request for vectors.
func (m Model) PrepareEncode(r *api.EncodeRequest) (*Prepared[*api.EncodeResponse], error) {
	return prepare(m, &task.Request{Op: task.Encode, Inputs: r.Items, Field: r.Field, Options: r.Options, OutputTypes: r.OutputTypes,
		OutputDType: r.OutputDType, Instruction: r.Instruction, IsQuery: r.IsQuery, Dimensions: r.Dimensions,
		TruncateLeft: r.TruncateLeft},
		func(res *task.Result) *api.EncodeResponse { return encoded(m.name, r, res) })
}

// PrepareScore checks a request for scores.
func (m Model) PrepareScore(r *api.ScoreRequest) (*Prepared[*api.ScoreResponse], error) {
	return prepare(m, &task.Request{Op: task.Score, Query: &r.Query, Inputs: r.Items, Field: r.Field, Options: r.Options,
		Instruction: r.Instruction, TruncateLeft: r.TruncateLeft},
		func(res *task.Result) *api.ScoreResponse { return scored(m.name, r, res) })
}

// PrepareClassify checks a request for the scores of labels.
func (m Model) PrepareClassify(r *api.ClassifyRequest) (*Prepared[*api.ClassifyResponse], error) {
	return prepare(m, &task.Request{Op: task.Classify, Inputs: r.Items, Field: r.Field, Options: r.Options, RawScores: r.RawScores,
		TruncateLeft: r.TruncateLeft}, classified)
}

// PrepareExtract checks a request for what is in texts.
func (m Model) PrepareExtract(r *api.ExtractRequest) (*Prepared[*api.ExtractResponse], error) {
	if !r.OutputSchema.Empty() {
		return nil, errs.Invalidf("params.output_schema", "Field 'params.output_schema': model '%s' has no use for it; remove it", m.name)
	}
	if r.Instruction != nil && *r.Instruction != "" {
		return nil, errs.Invalidf("params.instruction", "Field 'params.instruction': model '%s' has no use for it; remove it", m.name)
	}
	return prepare(m, &task.Request{Op: task.Extract, Inputs: r.Items, Labels: r.Labels, Options: r.Options},
		func(res *task.Result) *api.ExtractResponse { return extracted(m.name, r, res) })
}

// Encode gives items their vectors.
func (m Model) Encode(ctx context.Context, r *api.EncodeRequest) (*api.EncodeResponse, error) {
	return both(ctx, m.PrepareEncode, r)
}

// Score gives items finite scores, best first; equal scores keep their order.
func (m Model) Score(ctx context.Context, r *api.ScoreRequest) (*api.ScoreResponse, error) {
	return both(ctx, m.PrepareScore, r)
}

// Classify gives items the scores of all labels of a classification head.
func (m Model) Classify(ctx context.Context, r *api.ClassifyRequest) (*api.ClassifyResponse, error) {
	return both(ctx, m.PrepareClassify, r)
}

// Extract says what is in items. An item that cannot be answered has an error of its own.
func (m Model) Extract(ctx context.Context, r *api.ExtractRequest) (*api.ExtractResponse, error) {
	return both(ctx, m.PrepareExtract, r)
}

// Tokenize splits texts as the model's tokenizer does, whole, with or without the special tokens of
// one text.
func (m Model) Tokenize(ctx context.Context, texts []string, addSpecial bool) ([][]api.Token, error) {
	return task.Tokenize(ctx, m.service.Host, m.entry, texts, addSpecial)
}

// Detokenize turns lists of token ids back into texts.
func (m Model) Detokenize(ctx context.Context, ids [][]int32, skipSpecial bool) ([]string, error) {
	return task.Detokenize(ctx, m.service.Host, m.entry, ids, skipSpecial)
}

// both prepares and runs a request.
func both[Q, R any](ctx context.Context, prepare func(Q) (*Prepared[R], error), r Q) (R, error) {
	p, err := prepare(r)
	if err != nil {
		var none R
		return none, err
	}
	return p.Run(ctx)
}
