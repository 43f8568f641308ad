package ipc

import (
	"fmt"
	"runtime/debug"
	"strconv"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/runtime/service"
)

// answer is what a slice's request gave.
type answer struct {
	results []msgp.Raw
	single  []byte // in the reference's form; then results is nil
	out     api.Outcome
	usage   *api.Usage // nil: nothing was counted
	labels  []string   // of classify
	pairs   int        // of score
	hash    string     // the model's config hash
}

// outcome returns the outcome of a slice that was answered.
func (a *answer) outcome(it *wire.RunItem, wi *work.Item) outcome {
	t := a.out.Timings
	o := outcome{field: fieldOf(wi), items: max(1, len(a.results))}
	o.wire = wire.Outcome{
		WorkItemID: it.WorkItemID, RequestID: it.RequestID, ItemIndex: it.ItemIndex,
		Disposition: wire.PublishAndAck, InputTokens: int64(a.out.Tokens),
	}
	o.result = work.Result{
		WorkItemID: it.WorkItemID, RequestID: it.RequestID, Index: it.ItemIndex, Success: true,
		Results: a.results, ResultMsgpack: a.single,
		ModelID: a.out.ModelID, Revision: a.out.Revision, Ignored: a.out.Ignored, Labels: a.labels,
		ProcessingMS: api.Milliseconds(t.Total), InferenceMS: api.Milliseconds(t.Inference),
		TokenizationMS: api.Milliseconds(t.Tokenize), PreprocessMS: api.Milliseconds(t.Preprocess),
		BatchWaitMS: api.Milliseconds(t.BatchWait), PayloadFetchMS: it.PayloadFetchMS,
		ExecutedBundleConfigHash: a.hash,
	}
	if u := a.usage; u != nil {
		o.result.Units = &work.Units{
			InputTokens: uint64(u.InputTokens), Pairs: uint64(a.pairs),
			ContentInputTokens: uint64(u.ContentTokens), Images: uint64(u.Images),
			QueryTokens: uint64(u.QueryTokens), QueryContent: uint64(u.QueryContent),
		}
	}
	return o
}

// request is a slice on its way to its answer.
type request struct {
	wi    *work.Item
	model service.Model
	w     *admit.Work
	raws  []msgp.Raw
	items []api.Item // of the operations that have items
	first int        // of the items in the whole request
	lim   api.Limits
	api.ForeignOptions
	options api.Options
}

// operations holds what each operation does.
var operations = map[string]func(*request) (*answer, error){
	work.Encode: (*request).encode, work.Score: (*request).score, work.Extract: (*request).extract,
	work.Classify: (*request).classify, work.Tokenize: (*request).tokenize,
	work.Detokenize: (*request).detokenize,
}

// answer runs a slice that was admitted, and counts it. Exactly one of the results is nil.
func (s *Server) answer(it *wire.RunItem, wi *work.Item, w *admit.Work) (a *answer, err error) {
	call := s.service.Call(it.Op)
	defer func() {
		if p := recover(); p != nil { // the process serves others
			err = errs.Internal(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
		if err != nil {
			a = nil
			call.End(nil, err)
		} else {
			call.End(&a.out, nil)
		}
	}()
	do := operations[it.Op]
	if do == nil {
		return nil, errs.Invalidf("op", "Field 'op': there is no operation %s", quoted(it.Op))
	}
	// before the model is looked up: hashes of a change come after its models
	hashes := s.opt.Configs.hashes.Load()
	m, err := s.service.Find(wi.ModelID)
	if err != nil {
		return nil, err
	}
	call.Model = m.Entry().ID
	if !hashes.current(wi, m.Entry().BaseID) {
		// another worker has the configuration, or this one gets it
		return nil, errs.Unloading(wi.ModelID)
	}
	r := &request{wi: wi, model: m, w: w, first: int(wi.FirstIndex)}
	if err := r.read(s.opt.Limits); err != nil {
		return nil, err
	}
	if a, err = do(r); err != nil {
		return nil, err
	}
	a.hash = hashes.bundle
	if a.out.ModelID == "" { // of operations that count nothing
		a.out.ModelID, a.out.Revision = m.Entry().ID, m.Entry().ServedRevision()
	}
	return a, nil
}

// reference reports whether the slice has the reference's form.
func (r *request) reference() bool { return len(r.wi.Items) == 0 }

// read decodes what the operations share.
func (r *request) read(lim api.Limits) (err error) {
	wi := r.wi
	if f := wi.Foreign; f != nil {
		r.ForeignOptions = api.ForeignOptions{
			Field: f.Field, Dimensions: f.Dimensions, TruncateLeft: f.TruncateLeft,
		}
	}
	if r.options, err = api.ReadOptions(wi.Options); err != nil {
		return err
	}
	r.raws = wi.Items
	if r.reference() {
		if r.raws = wi.ScoreItems; present(wi.Single) {
			r.raws = []msgp.Raw{wi.Single}
		}
		lim.AcceptContent = true
	}
	if len(r.raws) == 0 {
		return errs.Invalid("items", "the slice has no items")
	}
	if wi.Operation == work.Tokenize || wi.Operation == work.Detokenize {
		return nil
	}
	lim.AcceptForeign, lim.KeepItems = true, false
	r.lim = lim
	r.items = make([]api.Item, len(r.raws))
	for i, raw := range r.raws {
		if r.items[i], err = api.ReadItem(raw, i, lim); err != nil {
			return err
		}
	}
	return nil
}

// rows cuts a buffer into the results that were appended to it.
type rows struct {
	buf  []byte
	ends []int
}

func (x *rows) end(buf []byte) { x.buf, x.ends = buf, append(x.ends, len(buf)) }

func (x *rows) raws() []msgp.Raw {
	out, from := make([]msgp.Raw, len(x.ends)), 0
	for i, end := range x.ends {
		out[i], from = msgp.Raw(x.buf[from:end:end]), end
	}
	return out
}

// answered returns the answer with the rows of its items, in the form that was asked.
func (r *request) answered(x *rows, out api.Outcome, usage *api.Usage) *answer {
	a := &answer{out: out, usage: usage}
	if r.reference() {
		a.single = x.buf
	} else {
		a.results = x.raws()
	}
	return a
}

func (r *request) encode() (*answer, error) {
	res, err := r.model.Encode(r.w, &api.EncodeRequest{
		Items: r.items, OutputTypes: r.wi.OutputTypes, OutputDType: r.wi.OutputDType,
		Instruction: r.wi.Instruction, IsQuery: r.wi.IsQuery, Options: r.options,
		ForeignOptions: r.ForeignOptions,
	})
	if err != nil {
		return nil, err
	}
	x := rows{buf: make([]byte, 0, res.SizeHint())}
	for i := range res.Items {
		x.end(api.AppendEncodeResult(x.buf, &res.Items[i]))
	}
	return r.answered(&x, res.Outcome, res.Usage), nil
}

func (r *request) score() (*answer, error) {
	query, err := api.ReadItem(r.wi.Query, -1, r.lim)
	if err != nil {
		return nil, err
	}
	res, err := r.model.Score(r.w, &api.ScoreRequest{
		Query: query, Items: r.items, Instruction: r.wi.Instruction, Options: r.options,
		ForeignOptions: r.ForeignOptions,
	})
	if err != nil {
		return nil, err
	}
	if r.reference() {
		a := &answer{out: res.Outcome, usage: res.Usage, pairs: len(r.items)}
		a.single = api.AppendRankedScores(nil, res.Scores)
		return a, nil
	}
	scores := make([]float64, len(r.items))
	for _, s := range res.Scores {
		scores[s.Index] = s.Score
	}
	var x rows
	for _, s := range scores {
		x.end(api.AppendScoreResult(x.buf, s))
	}
	a := r.answered(&x, res.Outcome, res.Usage)
	a.pairs = len(r.items)
	return a, nil
}

func (r *request) extract() (*answer, error) {
	q := &api.ExtractRequest{
		Items: r.items, Labels: r.wi.Labels, Instruction: r.wi.Instruction, Options: r.options,
	}
	if present(r.wi.OutputSchema) {
		q.OutputSchema = api.Raw{Format: api.Msgpack, Data: r.wi.OutputSchema}
	}
	res, err := r.model.Extract(r.w, q)
	if err != nil {
		return nil, err
	}
	var x rows
	for i := range res.Items {
		it := &res.Items[i]
		it.ID = api.ItemID(&r.items[i], r.first+i)
		if it.Error != nil {
			it.Error = ofRequest(it.Error, r.first, fieldOf(r.wi))
		}
		x.end(api.AppendExtractResult(x.buf, it))
	}
	return r.answered(&x, res.Outcome, res.Usage), nil
}

func (r *request) classify() (*answer, error) {
	q := &api.ClassifyRequest{Items: r.items, Options: r.options, ForeignOptions: r.ForeignOptions}
	if r.wi.Foreign != nil {
		q.RawScores = r.wi.Foreign.RawScores
	}
	res, err := r.model.Classify(r.w, q)
	if err != nil {
		return nil, err
	}
	var x rows
	for _, scores := range res.Scores {
		x.end(api.AppendClassifyResult(x.buf, scores))
	}
	a := r.answered(&x, res.Outcome, res.Usage)
	a.labels = res.Labels
	return a, nil
}

func (r *request) tokenize() (*answer, error) {
	texts := make([]string, len(r.raws))
	for i, raw := range r.raws {
		var err error
		if texts[i], err = api.ReadText(raw); err != nil {
			return nil, errs.Invalid("inputs["+strconv.Itoa(i)+"]", err.Error())
		}
	}
	lists, err := r.model.Tokenize(r.w, texts, r.wi.Foreign != nil && r.wi.Foreign.AddSpecial)
	if err != nil {
		return nil, err
	}
	var x rows
	for _, tokens := range lists {
		x.end(api.AppendTokens(x.buf, tokens))
	}
	return r.answered(&x, api.Outcome{Items: len(lists)}, nil), nil
}

func (r *request) detokenize() (*answer, error) {
	ids := make([][]int32, len(r.raws))
	for i, raw := range r.raws {
		var err error
		if ids[i], err = api.ReadTokenIDs(raw); err != nil {
			return nil, errs.Invalid("ids["+strconv.Itoa(i)+"]", err.Error())
		}
	}
	texts, err := r.model.Detokenize(r.w, ids, r.wi.Foreign != nil && r.wi.Foreign.SkipSpecial)
	if err != nil {
		return nil, err
	}
	var x rows
	for _, text := range texts {
		x.end(api.AppendText(x.buf, text))
	}
	return r.answered(&x, api.Outcome{Items: len(texts)}, nil), nil
}
