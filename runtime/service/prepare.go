package service

import (
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/task"
)

// Prepared is a request that passed every check that needs no loaded model. R is the type of its
// answer.
type Prepared[R any] struct {
	service *Service
	task    *task.Prepared
	answer  func(*task.Result) R
}

// Run answers the request. w's context bounds waiting: when it ends, queued items are dropped and
// its cause is returned. All other errors are *errs.Error. The bytes of the results count as w's. A
// Prepared may run more than once.
func (p *Prepared[R]) Run(w *admit.Work) (R, error) {
	res, err := p.task.Run(w.Context(), p.service.Host, w.Hold)
	if err != nil {
		var none R
		return none, err
	}
	total := time.Since(w.Began())
	res.Timings.Preprocess += total - res.Timings.Total
	res.Timings.Total = total
	return p.answer(res), nil
}

// prepare checks r against a model's catalog entry.
func prepare[R any](m Model, r *task.Request, answer func(*task.Result) R) (*Prepared[R], error) {
	r.Model, r.Name = m.entry, m.name
	p, err := task.Prepare(r)
	if err != nil {
		return nil, err
	}
	return &Prepared[R]{m.service, p, answer}, nil
}

// PrepareEncode checks a request for vectors without loading the model.
func (m Model) PrepareEncode(r *api.EncodeRequest) (*Prepared[*api.EncodeResponse], error) {
	return prepare(m, &task.Request{
		Op: task.Encode, Inputs: r.Items, Field: r.Field, Options: r.Options, OutputTypes: r.OutputTypes,
		OutputDType: r.OutputDType, Instruction: r.Instruction, IsQuery: r.IsQuery, Dimensions: r.Dimensions,
		TruncateLeft: r.TruncateLeft,
	}, func(res *task.Result) *api.EncodeResponse { return encoded(m.name, r, res) })
}

// PrepareScore checks a request for scores without loading the model.
func (m Model) PrepareScore(r *api.ScoreRequest) (*Prepared[*api.ScoreResponse], error) {
	return prepare(m, &task.Request{
		Op:           task.Score,
		Query:        &r.Query,
		Inputs:       r.Items,
		Field:        r.Field,
		Options:      r.Options,
		Instruction:  r.Instruction,
		TruncateLeft: r.TruncateLeft,
	}, func(res *task.Result) *api.ScoreResponse { return scored(m.name, r, res) })
}

// PrepareClassify checks a request for the scores of labels without loading the model.
func (m Model) PrepareClassify(r *api.ClassifyRequest) (*Prepared[*api.ClassifyResponse], error) {
	return prepare(m, &task.Request{
		Op:           task.Classify,
		Inputs:       r.Items,
		Field:        r.Field,
		Options:      r.Options,
		RawScores:    r.RawScores,
		TruncateLeft: r.TruncateLeft,
	}, classified)
}

// PrepareExtract checks a request for entities or classes without loading the model.
func (m Model) PrepareExtract(r *api.ExtractRequest) (*Prepared[*api.ExtractResponse], error) {
	if err := r.CheckUse(m.name); err != nil {
		return nil, err
	}
	return prepare(m, &task.Request{Op: task.Extract, Inputs: r.Items, Labels: r.Labels, Options: r.Options,
		Instruction: r.Instruction},
		func(res *task.Result) *api.ExtractResponse { return extracted(m.name, r, res) })
}

// Encode returns the vectors of each item.
func (m Model) Encode(w *admit.Work, r *api.EncodeRequest) (*api.EncodeResponse, error) {
	return both(w, m.PrepareEncode, r)
}

// Score returns one finite score per item, best first; equal scores keep the order of the items.
func (m Model) Score(w *admit.Work, r *api.ScoreRequest) (*api.ScoreResponse, error) {
	return both(w, m.PrepareScore, r)
}

// Classify returns each item's scores for all labels of a classification head.
func (m Model) Classify(w *admit.Work, r *api.ClassifyRequest) (*api.ClassifyResponse, error) {
	return both(w, m.PrepareClassify, r)
}

// Extract returns the entities or classes found in each item. An item that cannot be answered has
// its own error and does not fail the request.
func (m Model) Extract(w *admit.Work, r *api.ExtractRequest) (*api.ExtractResponse, error) {
	return both(w, m.PrepareExtract, r)
}

// Tokenize splits texts with the model's tokenizer and never truncates them. addSpecial adds the
// special tokens of a single text.
func (m Model) Tokenize(w *admit.Work, texts []string, addSpecial bool) ([][]api.Token, error) {
	return task.Tokenize(w.Context(), m.service.Host, m.entry, texts, addSpecial, w.Hold)
}

// Detokenize turns lists of token ids back into texts; skipSpecial leaves special tokens out.
func (m Model) Detokenize(w *admit.Work, ids [][]int32, skipSpecial bool) ([]string, error) {
	return task.Detokenize(w.Context(), m.service.Host, m.entry, ids, skipSpecial, w.Hold)
}

// both prepares a request and runs it.
func both[Q, R any](w *admit.Work, prepare func(Q) (*Prepared[R], error), r Q) (R, error) {
	p, err := prepare(r)
	if err != nil {
		var none R
		return none, err
	}
	return p.Run(w)
}
