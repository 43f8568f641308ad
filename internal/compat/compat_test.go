package compat

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// fake is a Backend of a few models that records its requests and computes simple answers.
type fake struct {
	models map[string]Model
	err    error
	labels []string
	nan    bool

	encoded []*api.EncodeRequest
	scored  []*api.ScoreRequest
	classed []*api.ClassifyRequest
	asked   []string // model ids
}

func (f *fake) Model(id string) (Model, error) {
	if m, ok := f.models[id]; ok {
		m.Handle = m.ID // so that the test sees which Model the methods get
		return m, nil
	}
	return Model{}, errs.UnknownModel("no " + id)
}

func (f *fake) OpenAIModel(id string) (Model, error) {
	return f.Model(strings.Replace(id, "__", "/", 1))
}

func (f *fake) Info(id string) (*api.ModelInfo, error) {
	n := 77
	return &api.ModelInfo{Name: id, MaxSequenceLength: &n}, nil
}

func row(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

var took = api.Outcome{Timings: api.Timings{
	Total:     time.Hour,
	Tokenize:  2 * time.Millisecond,
	BatchWait: 3 * time.Millisecond,
	Inference: 4 * time.Millisecond,
}, Ignored: []string{"top_k"}, Worker: "w-1", BundleHash: "abc", Publish: 5, QueueWait: 6, Fetch: 7}

func (f *fake) Encode(_ *admit.Work, m Model, r *api.EncodeRequest) (*api.EncodeResponse, error) {
	f.encoded, f.asked = append(f.encoded, r), append(f.asked, m.Handle.(string))
	if f.err != nil {
		return nil, f.err
	}
	out := &api.EncodeResponse{
		Items:   make([]api.EncodeItem, len(r.Items)),
		Usage:   &api.Usage{InputTokens: 3 * len(r.Items)},
		Outcome: took,
	}
	for i := range r.Items {
		n := float32(len(r.Items[i].Text))
		if x := r.Items[i].Extra; x != nil {
			n = float32(x.Tokens[0])
		}
		switch r.OutputTypes[0] {
		case "dense":
			out.Items[i].Dense = &api.Dense{Dims: 2, Values: api.Vector(api.Float32, row(n, 1))}
		case "sparse":
			out.Items[i].Sparse = &api.Sparse{
				Indices: api.Vector(api.Int32, []byte{byte(n), 0, 0, 0}),
				Values:  api.Vector(api.Float32, row(n)),
			}
		default:
			out.Items[i].Multivector = &api.Multivector{
				TokenDims: 1, Values: api.Matrix(api.Float32, 2, 1, row(n, 2)),
			}
		}
	}
	return out, nil
}

func (f *fake) Score(_ *admit.Work, m Model, r *api.ScoreRequest) (*api.ScoreResponse, error) {
	f.scored, f.asked = append(f.scored, r), append(f.asked, m.Handle.(string))
	if f.err != nil {
		return nil, f.err
	}
	values := make([]float64, len(r.Items))
	for i := range values {
		values[i] = float64(len(r.Items[i].Text))
	}
	order, _ := api.Rank(values)
	out := &api.ScoreResponse{Usage: &api.Usage{InputTokens: 10 * len(r.Items)}, Outcome: took}
	for rank, i := range order {
		out.Scores = append(out.Scores, api.Score{Index: i, Score: values[i], Rank: rank})
	}
	return out, nil
}

func (f *fake) Classify(_ *admit.Work, m Model, r *api.ClassifyRequest) (*api.ClassifyResponse, error) {
	f.classed, f.asked = append(f.classed, r), append(f.asked, m.Handle.(string))
	if f.err != nil {
		return nil, f.err
	}
	out := &api.ClassifyResponse{
		Labels: f.labels, Usage: &api.Usage{InputTokens: 5 * len(r.Items)}, Outcome: took,
	}
	for i := range r.Items {
		scores := make([]float64, len(f.labels))
		scores[0] = float64(len(r.Items[i].Text))
		if x := r.Items[i].Extra; x != nil {
			scores[0] = float64(10 * len(*x.Second))
		}
		if f.nan {
			scores[0] = math.NaN()
		}
		out.Scores = append(out.Scores, scores)
	}
	return out, nil
}

// Tokenize splits at spaces; ids are lengths.
func (f *fake) Tokenize(_ *admit.Work, m Model, texts []string, addSpecial bool) ([][]api.Token, error) {
	f.asked = append(f.asked, m.Handle.(string))
	out := make([][]api.Token, len(texts))
	for i, t := range texts {
		if addSpecial {
			out[i] = append(out[i], api.Token{ID: 101, Text: "[CLS]", Special: true})
		}
		for _, at := range regexp.MustCompile(`\S+`).FindAllStringIndex(t, -1) {
			out[i] = append(out[i],
				api.Token{ID: at[1] - at[0], Text: t[at[0]:at[1]], Start: &at[0], Stop: &at[1]})
		}
	}
	return out, f.err
}

func (f *fake) Detokenize(_ *admit.Work, m Model, ids [][]int32, skipSpecial bool) ([]string, error) {
	f.asked = append(f.asked, m.Handle.(string))
	out := make([]string, len(ids))
	for i, list := range ids {
		for _, id := range list {
			if id != 101 || !skipSpecial {
				out[i] += strings.Repeat("x", int(id))
			}
		}
	}
	return out, f.err
}

func newFake() *fake {
	return &fake{labels: []string{"LABEL_0"}, models: map[string]Model{
		"org/dense": {ID: "org/dense", Outputs: []string{"dense"}, HFID: "hub/dense", Revision: "r1",
			MaxBatchTokens: 9, Pooling: "cls"}, "sparse": {ID: "sparse", Outputs: []string{"sparse"}},
		"multi": {ID: "multi", Outputs: []string{"multivector"}},
		"cross": {ID: "cross", Outputs: []string{"score"}, CrossEncoder: true}, "judge": {ID: "judge",
			Outputs: []string{"score"}}, "classes": {ID: "classes", Outputs: []string{"json"}},
	}}
}

// ask sends a body to a route.
func ask(t *testing.T, a *API, path, body string) (string, Reply, error) {
	t.Helper()
	route := a.Root()
	for _, r := range Routes() {
		if r.Path == path {
			route = r
		}
	}
	if route.Path != path && path != "/" {
		t.Fatalf("no route %s", path)
	}
	out, err := a.Begin(route).Serve(admit.Unbounded(t.Context()), "application/json", []byte(body))
	if err != nil {
		return "", out, err
	}
	return string(out.Body(nil, nil)), out, nil
}

// Every route makes native requests and answers in its own format.
func TestRoutes(t *testing.T) {
	for _, c := range []struct{ path, defaults, body, want, model string }{
		{"/v1/embeddings", "", `{"model":"org__dense","input":["ab","abc"]}`,
			`"data":[{"object":"embedding","embedding":[2.0,1.0],"index":0},{"object":"embedding","embedding":[3.0,1.0],"index":1}]`,
			"org/dense"},
		{"/embeddings", "", `{"model":"org/dense","input":[[7,8],[9]]}`, `"embedding":[7.0,1.0]`,
			"org/dense"},
		{"/v1/rerank", "", `{"model":"judge","query":"q","documents":["a","abc","ab"],"top_n":2}`,
			`"results":[{"index":1,"relevance_score":3.0},{"index":2,"relevance_score":2.0}]`, "judge"},
		{"/v2/rerank", "judge", `{"query":"q","documents":["a b c","d"],"max_tokens_per_doc":2}`,
			`"results":[{"index":0,"relevance_score":3.0},{"index":1,"relevance_score":1.0}]`, "judge"},
		{"/v1/rerank", "",
			`{"model":"judge","query":"q","documents":[{"text":"ab","k":1}],"return_documents":true}`,
			`"k":1`, "judge"},
		{"/embed", "cross org/dense", `{"inputs":["ab","abc"]}`, `[[2.0,1.0],[3.0,1.0]]`, "org/dense"},
		{"/", "org/dense", `{"inputs":"ab"}`, `[[2.0,1.0]]`, "org/dense"},
		{"/similarity", "org/dense", `{"inputs":{"source_sentence":"a","sentences":["a","abc"]}}`,
			`[1.0,0.8944272]`, "org/dense"},
		{"/embed_sparse", "org/dense sparse", `{"inputs":"abc"}`, `[[{"index":3,"value":3.0}]]`, "sparse"},
		{"/", "sparse", `{"inputs":"abc"}`, `[[{"index":3,"value":3.0}]]`, "sparse"},
		{"/embed_all", "multi", `{"inputs":"abc"}`, `[[[3.0],[2.0]]]`, "multi"},
		{"/rerank", "cross", `{"query":"q","texts":["a","abc"],"return_text":true}`,
			`[{"index":1,"text":"abc","score":30.0},{"index":0,"text":"a","score":10.0}]`, "cross"},
		{"/rerank", "judge", `{"query":"q","texts":["a","abc"]}`,
			`[{"index":1,"score":3.0},{"index":0,"score":1.0}]`, "judge"},
		{"/", "cross", `{"query":"q","texts":["a"]}`, `[{"index":0,"score":10.0}]`, "cross"},
		{"/predict", "classes", `{"inputs":[["a"],["b","cc"],["ddd"]]}`,
			`[[{"score":1.0,"label":"LABEL_0"}],[{"score":20.0,"label":"LABEL_0"}],[{"score":3.0,"label":"LABEL_0"}]]`,
			"classes"},
		{"/", "classes", `{"inputs":"ab"}`, `[{"score":2.0,"label":"LABEL_0"}]`, "classes"},
		{"/tokenize", "org/dense", `{"inputs":"ab  c","add_special_tokens":false}`,
			`[[{"id":2,"text":"ab","special":false,"start":0,"stop":2},{"id":1,"text":"c","special":false,"start":4,"stop":5}]]`,
			"org/dense"},
		{"/tokenize", "org/dense", `{"inputs":"ab"}`, `[CLS]`, "org/dense"},
		{"/decode", "org/dense", `{"ids":[[101,2],[1]]}`, `["xx","x"]`, "org/dense"},
	} {
		f := newFake()
		a := &API{Backend: f, Defaults: strings.Fields(c.defaults)}
		got, out, err := ask(t, a, c.path, c.body)
		if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %s, %v; want %s", c.path, c.body, got, err, c.want)
			continue
		}
		if !json.Valid([]byte(got)) || out.ModelID != c.model || out.Items == 0 || out.Timings.Total <= 0 {
			t.Errorf("%s %s: %+v", c.path, c.body, out)
		}
		for _, m := range f.asked {
			if m != c.model {
				t.Errorf("%s asked %s", c.path, m)
			}
		}
	}
}

// The fields of a request reach the backend.
func TestNativeRequests(t *testing.T) {
	f := newFake()
	a := &API{Backend: f, Defaults: []string{"org/dense", "cross", "sparse", "classes"}}
	for _, c := range []struct{ path, body string }{
		{"/v1/embeddings", `{"model":"org/dense","input":[[7,8]],"dimensions":4}`},
		{"/embed",
			`{"inputs":"a","truncate":false,"truncation_direction":"left","prompt_name":"query","normalize":false,"dimensions":5}`},
		{"/embed_sparse", `{"inputs":"a","prompt_name":"document"}`},
		{"/embed_sparse", `{"inputs":"a","prompt_name":"separation"}`},
		{"/v1/rerank",
			`{"model":"judge","query":"q","documents":["one  two three","x"],"truncation":false,"max_tokens_per_doc":2,"options":{"top_k":1}}`},
		{"/rerank", `{"query":"q","texts":["a"],"raw_scores":true,"truncation_direction":"left"}`},
		{"/predict", `{"inputs":[["a"],["b","c"]],"raw_scores":true}`},
	} {
		if _, _, err := ask(t, a, c.path, c.body); err != nil {
			t.Fatalf("%s: %v", c.path, err)
		}
	}
	dense := []string{"dense"}
	if got, want := f.encoded[0], (&api.EncodeRequest{
		Items:          []api.Item{{Extra: &api.ItemExtra{Tokens: []int32{7, 8}}}},
		OutputTypes:    dense,
		OutputDType:    "float32",
		ForeignOptions: api.ForeignOptions{Field: "input", Dimensions: 4},
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("embeddings: %+v", got)
	}
	if got, want := f.encoded[1], (&api.EncodeRequest{
		Items:          []api.Item{{Text: "a", HasText: true}},
		OutputTypes:    dense,
		OutputDType:    "float32",
		Options:        api.Options{"overflow_policy": "error", "is_query": true, "normalize": false},
		ForeignOptions: api.ForeignOptions{Field: "inputs", Dimensions: 5, TruncateLeft: true},
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("embed: %+v", got)
	}
	if got := f.encoded[2]; got.OutputTypes[0] != "sparse" || got.Options["is_query"] != false ||
		got.OutputDType != "float32" {
		t.Errorf("embed_sparse: %+v", got)
	}
	if got := f.encoded[3]; !reflect.DeepEqual(got.Options["prompt_name"], "separation") {
		t.Errorf("embed_sparse with the name of a task: %+v", got)
	}
	s := f.scored[0]
	if s.Query.Text != "q" || !s.Query.HasText || s.Items[0].Text != "one  two" || s.Items[1].Text != "x" ||
		s.Field != "documents" ||
		!reflect.DeepEqual(s.Options, api.Options{"overflow_policy": "error", "top_k": int64(1)}) {
		t.Errorf("rerank: %+v", s)
	}
	if r := f.classed[0]; r.Items[0].Text != "q" || *r.Items[0].Extra.Second != "a" || !r.RawScores ||
		!r.TruncateLeft || r.Field != "texts" {
		t.Errorf("TEI's rerank: %+v", r)
	}
	if r, p := f.classed[1], f.classed[2]; r.Items[0].Extra != nil || *p.Items[0].Extra.Second != "c" ||
		!p.RawScores || p.Field != "inputs" {
		t.Errorf("predict: %+v %+v", r, p)
	}
}

// The fields of a reply other than its body.
func TestReplies(t *testing.T) {
	f := newFake()
	a := &API{Backend: f, Defaults: []string{"org/dense"}, GPU: true}
	_, out, err := ask(t, a, "/embed", `{"inputs":["äb","c"]}`)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, h := range out.Headers {
		got[h.Name] = h.Value
	}
	total := strconv.FormatInt(out.Timings.Total.Milliseconds(), 10)
	if want := map[string]string{
		"x-compute-type":       "gpu+optimized",
		"x-compute-characters": "3",
		"x-compute-tokens":     "6",
		"x-compute-time":       total,
		"x-total-time":         total,
		"x-tokenization-time":  "2",
		"x-queue-time":         "3",
		"x-inference-time":     "4",
	}; !reflect.DeepEqual(got, want) || out.Items != 2 || out.Tokens != 6 || out.Ignored != nil {
		t.Errorf("%v, %+v", got, out)
	}
	_, out, _ = ask(t, a, "/v1/rerank", `{"model":"judge","query":"q","documents":["a","b","c"],"top_n":1}`)
	if out.Items != 3 || out.Tokens != 30 || !reflect.DeepEqual(out.Ignored, []string{"top_k"}) ||
		out.Headers != nil {
		t.Errorf("%+v", out)
	}
	_, out, _ = ask(t, a, "/v1/embeddings", `{"model":"org/dense","input":"a"}`)
	if !reflect.DeepEqual(out.Outputs, []string{"dense"}) || out.Timings.Total <= 0 ||
		out.Timings.Total >= time.Hour {
		t.Errorf("%+v", out)
	}
}

// Every reply tells which worker answered it, and how long it was in a queue.
func TestRepliesTellTheWorker(t *testing.T) {
	for path, c := range map[string][2]string{
		"/v1/embeddings": {"org/dense", `{"model":"org/dense","input":"a"}`},
		"/v1/rerank":     {"judge", `{"model":"judge","query":"q","documents":["a"]}`},
		"/embed":         {"org/dense", `{"inputs":"a"}`},
		"/rerank":        {"cross", `{"query":"q","texts":["a"]}`},
		"/predict":       {"classes", `{"inputs":[["a","b"],["c"]]}`},
	} {
		_, out, err := ask(t, &API{Backend: newFake(), Defaults: []string{c[0]}}, path, c[1])
		if err != nil || out.Worker != "w-1" || out.BundleHash != "abc" || out.Publish != 5 ||
			out.QueueWait != 6 || out.Fetch != 7 {
			t.Errorf("%s: %v, %+v", path, err, out.Outcome)
		}
	}
	_, out, err := ask(t, &API{Backend: newFake(), Defaults: []string{"judge"}}, "/rerank",
		`{"query":"q","texts":["a"]}`)
	if err != nil || out.Worker != "w-1" {
		t.Errorf("a score: %v, %+v", err, out.Outcome)
	}
	call := call{}
	call.via(&api.Outcome{Worker: "a", QueueWait: 2, Publish: 1})
	call.via(&api.Outcome{Worker: "b", QueueWait: 1, Publish: 3})
	call.via(&api.Outcome{Worker: "c", QueueWait: 4, Publish: 2})
	if r := call.reply; r.Worker != "c" || r.QueueWait != 4 || r.Publish != 3 {
		t.Errorf("of several: %+v", r.Outcome)
	}
}

// Errors keep the model's id if it is known, and no error is lost.
func TestErrors(t *testing.T) {
	full := errs.FullQueue(1, 2, 3)
	for _, c := range []struct {
		path, defaults, body string
		err                  error
		status               int
		text, model          string
	}{
		{"/v1/embeddings", "", `{`, nil, 400, "", ""},
		{"/v1/embeddings", "", `{"model":"none","input":"a"}`, nil, 404, "no none", ""},
		{"/v1/embeddings", "", `{"model":"org/dense","input":"a"}`, full, 503, "Queue full", "org/dense"},
		{"/v1/rerank", "", `{"model":"org/dense","query":"q","documents":["a"]}`, nil, 400,
			"does not support scoring", "org/dense"},
		{"/v1/rerank", "", `{"query":"q","documents":["a"]}`, nil, 404, "--default-model", ""},
		{"/v1/rerank", "", `{"model":"judge","query":"q","documents":["a"]}`, full, 503,
			"Queue full", "judge"},
		{"/embed", "", `{"inputs":"a"}`, nil, 404, "--default-model", ""},
		{"/embed", "gone", `{"inputs":"a"}`, nil, 404, "no gone", ""},
		{"/rerank", "org/dense", `{"query":"q","texts":["a"]}`, nil, 424, "not a re-ranker", "org/dense"},
		{"/predict", "classes", `{"inputs":"a","prompt_name":"query"}`, nil, 400,
			"not supported by /predict", "classes"},
		{"/tokenize", "org/dense", `{"inputs":"a","prompt_name":"query"}`, nil, 400,
			"not supported by /tokenize", "org/dense"},
		{"/decode", "org/dense", `{"ids":[1]}`, full, 503, "Queue full", "org/dense"},
		{"/predict", "classes", `{"inputs":"a"}`, full, 503, "Queue full", "classes"},
		{"/rerank", "cross", `{"query":"q","texts":["a"]}`, full, 503, "Queue full", "cross"},
		{"/rerank", "judge", `{"query":"q","texts":["a"]}`, full, 503, "Queue full", "judge"},
	} {
		f := newFake()
		f.err = c.err
		_, out, err := ask(t, &API{Backend: f, Defaults: strings.Fields(c.defaults)}, c.path, c.body)
		var e *errs.Error
		if !errors.As(err, &e) || e.Status != c.status || !strings.Contains(e.Message, c.text) ||
			out.ModelID != c.model {
			t.Errorf("%s %s: %v of %q, want %d %q of %q",
				c.path, c.body, err, out.ModelID, c.status, c.text, c.model)
		}
	}
	for path, body := range map[string]string{
		"/rerank": `{"query":"q","texts":["a"]}`, "/predict": `{"inputs":"a"}`,
	} {
		f := newFake()
		f.nan = true
		if _, _, err := ask(t, &API{Backend: f, Defaults: []string{"cross"}}, path, body); err == nil ||
			errs.As(err).Status != 500 {
			t.Errorf("%s: a score that is no number: %v", path, err)
		}
	}
	for _, c := range []struct {
		path, body string
		item       int // of the last native request
		place      string
	}{
		{"/predict", `{"inputs":[["a","b"],["c"],["d","e"],["f"]]}`, 1, "inputs[3]"},
		{"/predict", `{"inputs":[["a","b"],["d","e"]]}`, 1, "inputs[1]"},
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":["a","b"]}}`, 0,
			"inputs.source_sentence"},
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":["a","b"]}}`, 2, "inputs.sentences[1]"},
	} {
		f, own := newFake(), fmt.Sprintf("inputs[%d]", c.item)
		long := errs.TooLong(own, "Field '"+own+"' is too long")
		long.Item = &c.item
		f.err = long
		_, _, err := ask(t, &API{
			Backend:  f,
			Defaults: []string{map[string]string{"/predict": "classes", "/similarity": "org/dense"}[c.path]},
		}, c.path, c.body)
		if e := errs.As(err); e == nil || e.Param != c.place ||
			e.Message != "Field '"+c.place+"' is too long" || long.Param != own {
			t.Errorf("%s: item %d is named in %v, want %s", c.path, c.item, err, c.place)
		}
	}
	f := newFake()
	f.labels = []string{"a", "b"}
	if _, _, err := ask(t, &API{Backend: f, Defaults: []string{"cross"}}, "/rerank",
		`{"query":"q","texts":["a"]}`); err == nil || errs.As(err).Status != 424 {
		t.Errorf("a head of two labels ranks: %v", err)
	}
}

// Before the body is read, a Call reports which model answers.
func TestBegin(t *testing.T) {
	a := &API{Backend: newFake(), Defaults: []string{"cross", "org/dense"}}
	for path, want := range map[string]Call{
		"/v1/embeddings": {Named: true},
		"/v2/rerank":     {Named: true},
		"/embed":         {Model: "org/dense"},
		"/rerank":        {Model: "cross"},
		"/tokenize":      {Model: "cross"},
		"/embed_sparse":  {Model: "cross"},
	} {
		for _, r := range Routes() {
			if got := a.Begin(r); r.Path == path && (got.Named != want.Named || got.Model != want.Model) {
				t.Errorf("%s: %+v", path, got)
			}
		}
	}
}

func TestTEIInfo(t *testing.T) {
	a := &API{
		Backend:   newFake(),
		Defaults:  []string{"org/dense"},
		Precision: "bf16",
		MaxQueued: 5,
		Limits:    api.Limits{MaxItems: 6},
	}
	info, err := a.TEIInfo()
	if err != nil || info.ModelID != "hub/dense" || info.ServedModelName != "org/dense" ||
		*info.ModelSHA != "r1" || info.ModelDType != "bfloat16" || info.MaxConcurrentRequests != 5 ||
		info.MaxClientBatchSize != 6 || info.MaxInputLength != 77 || info.MaxBatchTokens != 9 ||
		info.ModelType.Embedding.Pooling != "cls" {
		t.Errorf("%+v, %v", info, err)
	}
	a.Defaults = []string{"cross"}
	if info, err := a.TEIInfo(); err != nil || info.ModelType.Reranker == nil || info.ModelSHA != nil {
		t.Errorf("%+v, %v", info, err)
	}
	a.Defaults = nil
	if _, err := a.TEIInfo(); err == nil {
		t.Error("about no model")
	}
}
