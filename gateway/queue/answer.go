package queue

import (
	"errors"
	"math"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// rawItem is a value in msgpack.
type rawItem = msgp.Raw

var errNoOutput = errors.New("queue: a result of encode has no output")

// Encode implements compat.Backend.
func (s *session) Encode(w *admit.Work, m compat.Model, r *api.EncodeRequest) (*api.EncodeResponse, error) {
	model := m.Handle.(models.Model)
	class := model.Entry.Adapter.Class
	if err := api.CheckItems(r.Items, r.Field, class, api.Reads{Tokens: true}); err != nil {
		return nil, err
	}
	done, err := s.do(w, model, task{
		item: work.Item{
			Operation: work.Encode, OutputTypes: r.OutputTypes, OutputDType: r.OutputDType,
			Instruction: r.Instruction, IsQuery: r.IsQuery, Options: api.AppendOptions(nil, r.Options),
			Foreign: foreign(&r.ForeignOptions),
		},
		n: len(r.Items), append: appendItems(r.Items), field: r.Field, result: expected(model.Entry, r),
	})
	if err != nil {
		return nil, err
	}
	out := &api.EncodeResponse{Model: model.Name, Items: make([]api.EncodeItem, len(r.Items))}
	err = done.each(func(i int, raw []byte) (err error) {
		it := &out.Items[i]
		*it, err = api.ReadEncodeResult(raw)
		if err == nil && it.Dense == nil && it.Sparse == nil && it.Multivector == nil {
			err = errNoOutput
		}
		it.ID, it.HasID = r.Items[i].ID, r.Items[i].HasID
		return err
	})
	if err != nil {
		return nil, err
	}
	out.Outcome, out.Usage = done.outcome(w, len(r.Items))
	out.Timing = out.Timings.Wire()
	return out, nil
}

// Score implements compat.Backend.
func (s *session) Score(w *admit.Work, m compat.Model, r *api.ScoreRequest) (*api.ScoreResponse, error) {
	model := m.Handle.(models.Model)
	if !model.Entry.Has("score") {
		return nil, errs.NoScoring(model.Name)
	}
	class := model.Entry.Adapter.Class
	if err := api.CheckQuery(&r.Query, class); err != nil {
		return nil, err
	}
	if err := api.CheckItems(r.Items, r.Field, class, api.Reads{}); err != nil {
		return nil, err
	}
	done, err := s.do(w, model, task{
		item: work.Item{
			Operation: work.Score, Query: api.AppendItem(nil, &r.Query), Instruction: r.Instruction,
			Options: api.AppendOptions(nil, r.Options), Foreign: foreign(&r.ForeignOptions),
		},
		n: len(r.Items), append: appendItems(r.Items), field: r.Field,
	})
	if err != nil {
		return nil, err
	}
	scores := make([]float64, len(r.Items))
	err = done.each(func(i int, raw []byte) (err error) {
		scores[i], err = api.ReadScoreResult(raw)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &api.ScoreResponse{Model: model.Name, QueryID: r.Query.ID, HasQuery: r.Query.HasID,
		Scores: make([]api.Score, len(scores))}
	out.Outcome, out.Usage = done.outcome(w, len(scores))
	out.Usage.HasContent = true
	order, _ := api.Rank(scores) // they are finite
	for rank, i := range order {
		out.Scores[rank] = api.Score{
			ItemID: api.ItemID(&r.Items[i], i), Index: i, Score: scores[i], Rank: rank,
		}
	}
	return out, nil
}

// Classify implements compat.Backend.
func (s *session) Classify(
	w *admit.Work, m compat.Model, r *api.ClassifyRequest,
) (*api.ClassifyResponse, error) {
	model := m.Handle.(models.Model)
	class := model.Entry.Adapter.Class
	if err := api.CheckItems(r.Items, r.Field, class, api.Reads{Second: true}); err != nil {
		return nil, err
	}
	f := foreign(&r.ForeignOptions)
	f.RawScores = r.RawScores
	done, err := s.do(w, model, task{
		item: work.Item{Operation: work.Classify, Options: api.AppendOptions(nil, r.Options), Foreign: f},
		n:    len(r.Items), append: appendItems(r.Items), field: r.Field,
	})
	if err != nil {
		return nil, err
	}
	out := &api.ClassifyResponse{Scores: make([][]float64, len(r.Items))}
	err = done.each(func(i int, raw []byte) (err error) {
		out.Scores[i], err = api.ReadClassifyResult(raw)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(done.slices) > 0 {
		out.Labels = done.slices[0].result.Labels
	}
	out.Outcome, out.Usage = done.outcome(w, len(r.Items))
	return out, nil
}

// Extract implements inference.Session. An item that failed keeps its own error.
func (s *session) Extract(
	w *admit.Work, m compat.Model, r *api.ExtractRequest,
) (*api.ExtractResponse, error) {
	model := m.Handle.(models.Model)
	if err := checkExtract(model, r); err != nil {
		return nil, err
	}
	done, err := s.do(w, model, task{
		item: work.Item{
			Operation: work.Extract, Labels: r.Labels, Instruction: r.Instruction,
			OutputSchema: api.AppendRaw(nil, r.OutputSchema), Options: api.AppendOptions(nil, r.Options),
		},
		n: len(r.Items), append: appendItems(r.Items),
	})
	if err != nil {
		return nil, err
	}
	out := &api.ExtractResponse{Model: model.Name, Items: make([]api.ExtractItem, len(r.Items))}
	err = done.each(func(i int, raw []byte) (err error) {
		out.Items[i], err = api.ReadExtractResult(raw)
		out.Items[i].ID = api.ItemID(&r.Items[i], i)
		return err
	})
	if err != nil {
		return nil, err
	}
	out.Outcome, out.Usage = done.outcome(w, len(r.Items))
	return out, nil
}

// Tokenize implements compat.Backend.
func (s *session) Tokenize(
	w *admit.Work, m compat.Model, texts []string, addSpecial bool,
) ([][]api.Token, error) {
	out := make([][]api.Token, len(texts))
	done, err := s.do(w, m.Handle.(models.Model), task{
		item: work.Item{Operation: work.Tokenize, Foreign: &work.Foreign{AddSpecial: addSpecial}},
		n:    len(texts), append: func(dst []byte, i int) []byte { return api.AppendText(dst, texts[i]) },
		field: "inputs",
	})
	if err == nil {
		err = done.each(func(i int, raw []byte) (err error) {
			out[i], err = api.ReadTokens(raw)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Detokenize implements compat.Backend.
func (s *session) Detokenize(
	w *admit.Work, m compat.Model, ids [][]int32, skipSpecial bool,
) ([]string, error) {
	out := make([]string, len(ids))
	done, err := s.do(w, m.Handle.(models.Model), task{
		item: work.Item{Operation: work.Detokenize, Foreign: &work.Foreign{SkipSpecial: skipSpecial}},
		n:    len(ids), append: func(dst []byte, i int) []byte { return api.AppendTokenIDs(dst, ids[i]) },
		field: "ids",
	})
	if err == nil {
		err = done.each(func(i int, raw []byte) (err error) {
			out[i], err = api.ReadText(raw)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func appendItems(items []api.Item) func(dst []byte, i int) []byte {
	return func(dst []byte, i int) []byte { return api.AppendItem(dst, &items[i]) }
}

func foreign(f *api.ForeignOptions) *work.Foreign {
	return &work.Foreign{Field: f.Field, Dimensions: f.Dimensions, TruncateLeft: f.TruncateLeft}
}

// each reads the result of each item in its order. It is called when all slices are done.
func (r *request) each(read func(i int, raw []byte) error) error {
	for n := range r.slices {
		s := &r.slices[n]
		for i, raw := range s.result.Results {
			if err := read(s.first+i, raw); err != nil {
				return errs.Internal(err)
			}
		}
		s.result.Results = nil
	}
	return nil
}

// outcome puts together what the slices say of the request's work.
func (r *request) outcome(w *admit.Work, items int) (api.Outcome, *api.Usage) {
	o := api.Outcome{Items: items, Pool: r.item.PoolName, Profile: r.item.MachineProfile, Alias: r.alias}
	u := &api.Usage{}
	longest := -1.0
	for i := range r.slices {
		s := &r.slices[i]
		res, t := s.result, &o.Timings
		if res.ProcessingMS > longest {
			longest, o.Worker = res.ProcessingMS, res.WorkerID
		}
		t.Tokenize = max(t.Tokenize, ms(res.TokenizationMS))
		t.Inference = max(t.Inference, ms(res.InferenceMS))
		t.BatchWait = max(t.BatchWait, ms(res.BatchWaitMS))
		t.Preprocess = max(t.Preprocess, ms(res.PreprocessMS))
		o.Fetch = max(o.Fetch, ms(res.PayloadFetchMS))
		if !s.takenAt.IsZero() {
			o.QueueWait = max(o.QueueWait, s.takenAt.Sub(s.began))
		} else {
			o.QueueWait = max(o.QueueWait, ms(res.QueueMS))
		}
		if res.Units != nil {
			o.Tokens += count(res.Units.InputTokens)
			u.ContentTokens += count(res.Units.ContentInputTokens)
			u.Images += count(res.Units.Images)
			if i > 0 { // the first slice has counted the query
				o.Tokens -= count(res.Units.QueryTokens)
				u.ContentTokens -= count(res.Units.QueryContent)
			}
		}
		if i == 0 {
			o.ModelID, o.Revision, o.Ignored = res.ModelID, res.Revision, res.Ignored
			o.BundleHash = res.ExecutedBundleConfigHash
		}
	}
	if o.ModelID == "" {
		o.ModelID = r.item.ModelID
	}
	if !r.placed.IsZero() {
		o.Publish = r.placed.Sub(r.began)
	}
	u.InputTokens = o.Tokens
	o.Timings.Total = time.Since(w.Began())
	return o, u
}

// ms returns milliseconds of a message as a duration, 0 for what is none.
func ms(x float64) time.Duration {
	if !(x > 0) || x > 1e12 {
		return 0
	}
	return time.Duration(x * float64(time.Millisecond))
}

func count(n uint64) int { return int(min(n, math.MaxInt32)) }
