package server

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/service"
)

func defaults(ids ...string) func(*Options, *service.Options) {
	return func(o *Options, _ *service.Options) { o.DefaultModels = ids }
}

func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil || a.status != 200 {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
}

// This test uses a real model: /embed gives the vectors of /v1/encode.
func TestTEIEmbed(t *testing.T) {
	r := start(t, defaults(model))
	want := r.encode(
		`{"items":[{"text":"the cat"},{"text":"a dog"}],"params":{"options":{"normalize":true}}}`).encoded(t)
	for _, path := range []string{"/embed", "/"} {
		var got [][]float32
		a := r.do("POST", path, `{"inputs":["the cat","a dog"]}`)
		a.into(t, &got)
		for i := range got {
			for k, v := range want.Items[i].Dense.Values {
				if got[i][k] != v {
					t.Fatalf("%s: component %d of text %d is %v, want %v", path, k, i, got[i][k], v)
				}
			}
		}
		if a.header.Get("x-compute-type") != "cpu+optimized" ||
			a.header.Get("x-compute-characters") != "12" || a.header.Get("x-compute-tokens") == "0" ||
			a.header.Get("x-inference-time") == "" || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("headers %v", a.header)
		}
	}
	var one, raw, cut [][]float64
	r.do("POST", "/embed", `{"inputs":"the cat"}`).into(t, &one)
	r.do("POST", "/embed", `{"inputs":"the cat","normalize":false,"truncate":true}`).into(t, &raw)
	r.do("POST", "/embed", `{"inputs":"the cat","dimensions":8}`).into(t, &cut)
	if norm(one[0]) < 0.999 || norm(one[0]) > 1.001 || math.Abs(norm(raw[0])-1) < 0.01 || len(cut[0]) != 8 ||
		math.Abs(norm(cut[0])-1) > 1e-3 {
		t.Errorf("norms %v %v %v", norm(one[0]), norm(raw[0]), norm(cut[0]))
	}
	var sim []float64
	r.do("POST", "/similarity",
		`{"inputs":{"source_sentence":"the cat","sentences":["the cat","a dog"]}}`).into(t, &sim)
	var dot float64
	for k := range want.Items[0].Dense.Values {
		dot += float64(want.Items[0].Dense.Values[k]) * float64(want.Items[1].Dense.Values[k])
	}
	if math.Abs(sim[0]-1) > 1e-6 || math.Abs(sim[1]-dot) > 1e-5 {
		t.Errorf("similarities %v, want 1 and %v", sim, dot)
	}
	if n := r.metric(
		`sie_requests_total{endpoint="similarity",model="test/mean",status="success"}`); n != "1" {
		t.Errorf("counted %q", n)
	}
}

func norm(v []float64) (n float64) {
	for _, x := range v {
		n += x * x
	}
	return math.Sqrt(n)
}

func TestTEITasks(t *testing.T) {
	f := &fakeTasks{labels: []string{"LABEL_0"}}
	r := start(t, defaults(model, reranker), with(f))
	for _, c := range []struct{ path, body, want string }{
		{"/rerank", `{"query":"red cat","texts":["dog","red cat","cat"]}`,
			`[{"index":1,"score":2.0},{"index":2,"score":1.0},{"index":0,"score":0.0}]`},
		{"/rerank", `{"query":"a","texts":["b"],"raw_scores":true,"return_text":true}`,
			`[{"index":0,"text":"b","score":100.0}]`},
		{"/tokenize", `{"inputs":"ab  c"}`,
			`[[{"id":101,"text":"[CLS]","special":true,"start":null,"stop":null},{"id":2,"text":"ab","special":false,"start":0,"stop":2},{"id":1,"text":"c","special":false,"start":4,"stop":5}]]`},
		{"/tokenize", `{"inputs":["a",""],"add_special_tokens":false}`,
			`[[{"id":1,"text":"a","special":false,"start":0,"stop":1}],[]]`},
		{"/decode", `{"ids":[[101,2],[1]]}`, `["xx","x"]`},
		{"/decode", `{"ids":[1]}`, `["x"]`},
	} {
		if a := r.do("POST", c.path, c.body); a.status != 200 || string(a.body) != c.want {
			t.Errorf("%s %s: %d %s, want %s", c.path, c.body, a.status, a.body, c.want)
		}
	}
	if p := f.classed[0].Items; len(p) != 3 || p[1].Text != "red cat" || *p[1].Extra.Second != "red cat" ||
		!f.classed[1].RawScores {
		t.Errorf("asked %+v", f.classed)
	}
	if f.classed[0].Field != "texts" {
		t.Errorf("errors would name %q", f.classed[0].Field)
	}
	// Pairs and single texts of one batch keep their places, and labels come best first.
	f.labels = []string{"no", "yes"}
	for _, c := range []struct{ body, want string }{
		{`{"inputs":[["abc"],["x","x"],["a"]]}`,
			`[[{"score":3.0,"label":"yes"},{"score":0.0,"label":"no"}],[{"score":1.0,"label":"no"},{"score":0.0,"label":"yes"}],[{"score":1.0,"label":"yes"},{"score":0.0,"label":"no"}]]`},
		{`{"inputs":"ab"}`, `[{"score":2.0,"label":"yes"},{"score":0.0,"label":"no"}]`},
		{`{"inputs":["ab","b"],"raw_scores":true}`,
			`[{"score":100.0,"label":"no"},{"score":0.0,"label":"yes"}]`},
	} {
		if a := r.do("POST", "/predict", c.body); a.status != 200 || string(a.body) != c.want {
			t.Errorf("/predict %s: %d %s, want %s", c.body, a.status, a.body, c.want)
		}
	}
	if a := r.do("POST", "/rerank", `{"query":"a","texts":["b"]}`); a.status != 424 ||
		!strings.Contains(string(a.body), `"Backend"`) {
		t.Errorf("a classifier of two labels: %d %s", a.status, a.body)
	}
}

// truncation_direction reaches every route that truncates texts.
func TestTEILeftTruncation(t *testing.T) {
	f := &fakeTasks{labels: []string{"a"}}
	r := start(t, defaults(model, reranker), with(f))
	words := strings.Repeat("a b c d e ", 20)
	var left, right, tail [][]float32
	r.do("POST", "/embed", `{"inputs":"`+words+`","truncation_direction":"Left"}`).into(t, &left)
	r.do("POST", "/embed", `{"inputs":"`+words+`","truncation_direction":"Right"}`).into(t, &right)
	r.do("POST", "/embed", `{"inputs":"`+words[len(words)-76:]+`"}`).into(t, &tail) // the last 38 words
	if !slices.Equal(left[0], tail[0]) || slices.Equal(left[0], right[0]) {
		t.Errorf("/embed gives %v, of the text's end %v", left[0][:4], tail[0][:4])
	}
	var sims [2][]float64
	r.do("POST", "/similarity", `{"inputs":{"source_sentence":"`+words+
		`","sentences":["x"]},"parameters":{"truncation_direction":"left"}}`).into(t, &sims[0])
	r.do("POST", "/similarity", `{"inputs":{"source_sentence":"`+words[len(words)-76:]+
		`","sentences":["x"]}}`).into(t, &sims[1])
	if !slices.Equal(sims[0], sims[1]) {
		t.Errorf("/similarity: %v", sims)
	}
	sparse := start(t, func(o *Options, w *service.Options) {
		besides(t,
			[4]string{"acme/sparse", "splade-bert", "splade_flash", "{encode: {sparse: {dim: 101}}}"})(o, w)
		o.DefaultModels = []string{"acme/sparse"}
	})
	var rows [3]string
	for i, body := range []string{`{"inputs":"` + words + `","truncation_direction":"left"}`,
		`{"inputs":"` + words[len(words)-76:] + `"}`, `{"inputs":"` + words + `"}`} {
		rows[i] = string(sparse.do("POST", "/embed_sparse", body).body)
	}
	if rows[0] != rows[1] || rows[0] == rows[2] || len(rows[0]) < 20 {
		t.Errorf("/embed_sparse gives %.100s, of the text's end %.100s", rows[0], rows[1])
	}
	r.do("POST", "/rerank", `{"query":"a","texts":["b"],"truncation_direction":"left"}`)
	r.do("POST", "/predict", `{"inputs":[["a"],["b","c"]],"truncation_direction":"left"}`)
	r.do("POST", "/predict", `{"inputs":"a"}`)
	if len(f.classed) != 4 || !f.classed[0].TruncateLeft || !f.classed[1].TruncateLeft ||
		!f.classed[2].TruncateLeft || f.classed[3].TruncateLeft {
		t.Errorf("asked %+v", f.classed)
	}
}

func TestTEIErrors(t *testing.T) {
	f := &fakeTasks{labels: []string{"a"}}
	r := start(t, defaults(model), with(f))
	for _, c := range []struct {
		path, body string
		err        error
		status     int
		kind, text string
	}{
		{"/embed", `{"inputs":[]}`, nil, 400, "Empty", "`inputs` cannot be empty"},
		{"/embed", `{`, nil, 422, "Validation", "truncated"},
		{"/embed", `{"inputs":"a","prompt_name":"x"}`, nil, 422, "Validation", "prompt_name"},
		{"/embed", `{"inputs":"a","truncation_direction":"up"}`, nil, 422, "Validation",
			"truncation_direction"},
		{"/embed", `{"inputs":"a","dimensions":33}`, nil, 422, "Validation", "32"},
		{"/embed", `{"inputs":["a","` + strings.Repeat("cat ", 60) + `"],"truncate":false}`, nil, 422,
			"Validation", "Field 'inputs[1]' has more than 40 tokens"},
		{"/embed", `{"inputs":[[2,3],[101]]}`, nil, 422, "Validation",
			"Field 'inputs[1]': token id 101 is outside"},
		{"/embed_sparse", `{"inputs":"a"}`, nil, 422, "Validation",
			"does not support output types: {'sparse'}"},
		{"/embed_all", `{"inputs":"a"}`, nil, 422, "Validation",
			"does not support output types: {'multivector'}"},
		{"/rerank", `{"query":"q","texts":["a"]}`, nil, 424, "Backend", "not a re-ranker"},
		{"/predict", `{"inputs":"a","prompt_name":"query"}`, nil, 422, "Validation", "prompt_name"},
		{"/predict", `{"inputs":"a"}`, errs.FullQueue(1, 1, 1), 429, "Overloaded", "Queue full"},
		{"/predict", `{"inputs":"a"}`, errs.Loading("m"), 503, "Unhealthy", "loading"},
		{"/tokenize", `{"inputs":"a","prompt_name":"query"}`, nil, 422, "Validation", "prompt_name"},
		{"/decode", `{"ids":[1,2,3,4,5,6]}`, nil, 422, "Validation", "too many"},
	} {
		f.err = c.err
		a := r.do("POST", c.path, c.body)
		var b struct {
			Error     string
			ErrorType string `json:"error_type"`
		}
		if err := json.Unmarshal(a.body, &b); err != nil || a.status != c.status || b.ErrorType != c.kind ||
			!strings.Contains(b.Error, c.text) {
			t.Errorf("%s %s: %d %s, want %d %s %q",
				c.path, c.body, a.status, a.body, c.status, c.kind, c.text)
		}
	}
}

func TestTEIInfoAndHealth(t *testing.T) {
	r := start(t, defaults(model))
	var info struct {
		ModelID        string                                       `json:"model_id"`
		DType          string                                       `json:"model_dtype"`
		MaxInputLength int                                          `json:"max_input_length"`
		ModelType      struct{ Embedding struct{ Pooling string } } `json:"model_type"`
		AutoTruncate   bool                                         `json:"auto_truncate"`
	}
	r.do("GET", "/info", "").into(t, &info)
	if info.ModelID != model || info.DType != "float32" || info.MaxInputLength != 40 ||
		info.ModelType.Embedding.Pooling == "" || !info.AutoTruncate {
		t.Errorf("%+v", info)
	}
	if a := r.do("GET", "/health", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.ready.Store(false)
	if a := r.do("GET", "/health", ""); a.status != 503 ||
		string(a.body) != `{"error":"unhealthy","error_type":"Unhealthy"}` {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The task decides before the order of the default models: /predict asks a classifier even if a
// reranker comes first.
func TestTEIDefaultModels(t *testing.T) {
	f := &fakeTasks{labels: []string{"a"}}
	r := start(t, func(o *Options, w *service.Options) {
		m, _, err := catalog.ParseModel("moods.yaml",
			[]byte("sie_id: acme/moods\nhf_id: acme/moods\ntasks: {extract: {}}\nmax_sequence_length: 40\n"+
				`profiles: {default: {adapter_path: "sie_server.adapters.sequence_classification:X", max_batch_tokens: 4096}}`))
		if err == nil {
			w.Catalog, err = w.Catalog.With(m)
		}
		if err != nil {
			t.Fatal(err)
		}
		o.DefaultModels = []string{reranker, "acme/moods", model}
	}, with(f))
	r.do("POST", "/predict", `{"inputs":"x"}`)
	r.do("POST", "/rerank", `{"query":"x","texts":["y"]}`)
	if len(f.classed) != 2 || f.models[0] != "acme/moods" || f.models[1] != reranker {
		t.Errorf("asked %+v", f.classed)
	}
	var info struct {
		ModelID string `json:"model_id"`
	}
	if r.do("GET", "/info", "").into(t, &info); info.ModelID != reranker {
		t.Errorf("/info is about %q", info.ModelID)
	}
}

// Without a default model, every TEI route says what to do.
func TestTEIWithoutDefaultModel(t *testing.T) {
	r := start(t, nil)
	for _, path := range []string{
		"/embed", "/rerank", "/predict", "/similarity", "/tokenize", "/decode", "/",
	} {
		if a := r.do("POST", path, `{"inputs":"a"}`); a.status != 404 ||
			!strings.Contains(string(a.body), "--default-model") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := r.do("GET", "/info", ""); a.status != 404 ||
		!strings.Contains(string(a.body), "--default-model") {
		t.Errorf("/info: %d %s", a.status, a.body)
	}
}
