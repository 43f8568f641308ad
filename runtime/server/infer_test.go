package server

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/service"
)

// encoded is an encode answer in JSON.
type encoded struct {
	Model string
	Items []struct {
		ID    *string
		Dense struct {
			Dims   int
			DType  string
			Values []float32
		}
	}
	Usage struct {
		InputTokens int `json:"input_tokens"`
	}
}

func (a answer) encoded(t *testing.T) encoded {
	t.Helper()
	var e encoded
	if err := json.Unmarshal(a.body, &e); err != nil || a.status != 200 {
		t.Fatalf("status %d, %v: %.300q", a.status, err, a.body)
	}
	return e
}

func TestEncode(t *testing.T) {
	r := start(t, nil)
	a := r.encode(
		`{"items":[{"id":"a","text":"the cat"},{"text":"sat on the mat"}],"params":{"options":{"dimensions":8}}}`)
	e := a.encoded(t)
	if e.Model != model || len(e.Items) != 2 || *e.Items[0].ID != "a" || e.Items[1].ID != nil ||
		len(e.Items[1].Dense.Values) != 8 || e.Items[1].Dense.Dims != 8 {
		t.Errorf("got %s", a.body)
	}
	if a.header.Get("Content-Type") != "application/json" ||
		a.header.Get("X-SIE-Units-Input-Tokens") != fmt.Sprint(e.Usage.InputTokens) ||
		a.header.Get("X-SIE-Served-By") != "local" ||
		!strings.HasPrefix(a.header.Get("X-SIE-Build"), build.Version) || a.header.Get("Date") == "" {
		t.Errorf("headers %v", a.header)
	}
	for _, name := range []string{"X-Queue-Time", "X-Tokenization-Time", "X-Inference-Time", "X-Total-Time"} {
		if !regexp.MustCompile(`^\d+\.\d\d$`).MatchString(a.header.Get(name)) {
			t.Errorf("%s: %q", name, a.header.Get(name))
		}
	}
	if got := r.encode(oneText, "X-SIE-SDK-Version",
		"0.3.4").header.Get("X-SIE-Server-Version"); !strings.HasPrefix(got, "0.3") {
		t.Errorf("an SDK 0.3.4 is told server version %q", got)
	}
	escaped := r.do("POST", "/v1/encode/test%2Fmean", oneText, "Accept", "application/json").encoded(t)
	if !slices.Equal(escaped.Items[0].Dense.Values, r.encode(oneText).encoded(t).Items[0].Dense.Values) {
		t.Error("an escaped model id is another model")
	}
}

func TestNegotiation(t *testing.T) {
	r := start(t, nil)
	packed := msgp.AppendMapHeader(nil, 1)
	packed = msgp.AppendArrayHeader(msgp.AppendString(packed, "items"), 1)
	packed = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(packed, 1), "text"), "the cat")
	for _, c := range []struct {
		contentType, body, accept, want string
		status                          int
	}{
		{"application/json", oneText, "application/json", "application/json", 200},
		{"application/json", oneText, "application/json, text/plain;q=0.5", "application/json", 200},
		{"application/json", oneText, "", "application/msgpack", 200},
		{"application/json", oneText, "*/*", "application/msgpack", 200},
		{"application/json", oneText, "application/msgpack, application/json", "application/msgpack", 200},
		{"application/json; charset=utf-8", oneText, "application/x-msgpack", "application/msgpack", 200},
		{"", oneText, "application/json", "application/json", 200},
		{"text/plain", oneText, "application/json", "application/json", 200},
		{"application/msgpack", string(packed), "application/json", "application/json", 200},
		{"application/x-msgpack", string(packed), "application/msgpack", "application/msgpack", 200},
		{"application/msgpack", oneText, "application/msgpack", "application/json", 400},
		{"application/json", string(packed), "application/msgpack", "application/json", 400},
	} {
		a := r.do("POST", encodePath, c.body, "Content-Type", c.contentType, "Accept", c.accept)
		if a.status != c.status || a.header.Get("Content-Type") != c.want {
			t.Errorf("%q, Accept %q: %d, %s; want %d, %s: %.100q",
				c.contentType, c.accept, a.status, a.header.Get("Content-Type"), c.status, c.want, a.body)
			continue
		}
		if a.status == 200 && c.want == "application/json" != json.Valid(a.body) {
			t.Errorf("%q, Accept %q: the body is not %s", c.contentType, c.accept, c.want)
		}
	}
	// Both formats give the same numbers.
	want := r.encode(oneText).encoded(t).Items[0].Dense.Values
	raw := make([]byte, 0, 4*len(want))
	for _, v := range want {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	if a := r.do("POST", encodePath, string(packed), "Content-Type",
		"application/msgpack"); !bytes.Contains(a.body, raw) {
		t.Error("the msgpack answer does not hold the vector of the JSON answer")
	}
}

func TestErrorEnvelopes(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.MachineProfile = "l4" })
	const score = `{"query":{"text":"q"},"items":[{"text":"d"}]}`
	for _, c := range []struct {
		path, body string
		headers    []string
		status     int
		code, text string
	}{
		{encodePath, "{", nil, 400, "INVALID_INPUT", "truncated"},
		{encodePath, "", nil, 400, "INVALID_INPUT", "truncated"},
		{encodePath, `{"items":[]}`, nil, 400, "INVALID_INPUT", "must not be empty"},
		{encodePath, `{"items":[{}]}`, nil, 400, "INVALID_INPUT", "requires text input"},
		{encodePath, `{"items":[{"text":1}]}`, nil, 400, "INVALID_INPUT",
			"Expected `str | null`, got `int` - at `$.items[0].text`"},
		{encodePath, `{"items":[{"text":"a"}],"params":{"options":{"dimensions":"8"}}}`, nil, 400,
			"INVALID_INPUT", `Field 'options.dimensions': expected a whole number, got the string "8"`},
		{encodePath, `{"items":[{"text":"a"}],"params":{"options":{"normalize":1.5}}}`, nil, 400,
			"INVALID_INPUT", "Field 'options.normalize': expected true or false, got the number 1.5"},
		{encodePath, `{"items":[{"text":"a"}],"params":{"output_dtype":"float8"}}`, nil, 400, "INVALID_INPUT",
			"Unsupported output_dtype: float8"},
		{encodePath, `{"items":[{"text":"a"}],"params":{"output_types":["sparse"]}}`, nil, 400,
			"INVALID_INPUT", "does not support output types: {'sparse'}"},
		{"/v1/encode/test/maen", oneText, nil, 404, "MODEL_NOT_FOUND", "Did you mean 'test/mean'?"},
		{"/v1/encode/acme/judge", oneText, nil, 400, "INVALID_INPUT", "cannot be served"},
		{encodePath, oneText, []string{"X-SIE-MACHINE-PROFILE", "h100"}, 400, "INVALID_INPUT",
			"this worker is 'l4'"},
		{encodePath, oneText, []string{"X-SIE-MACHINE-PROFILE", " L4 "}, 200, "", ""},
		{encodePath, oneText, []string{"X-SIE-Remote", "allow"}, 400, "INVALID_INPUT",
			"accepts only 'forbid'"},
		{encodePath, oneText, []string{"X-SIE-Remote", ""}, 400, "INVALID_INPUT", "accepts only 'forbid'"},
		{encodePath, oneText, []string{"X-SIE-Remote", "forbid"}, 200, "", ""},
		{"/v1/score/test/mean", score, nil, 400, "INVALID_INPUT", "does not support scoring"},
		{"/v1/score/acme/judge", score, nil, 400, "INVALID_INPUT", "cannot be served"},
		{"/v1/score/x", "[]", nil, 400, "INVALID_INPUT", "Expected `object`"},
		{"/v1/score/x", score, nil, 404, "MODEL_NOT_FOUND", "Model 'x' not found"},
		{"/v1/extract/test/mean", `{"items":[{"text":"d"}],"params":{"labels":["a"]}}`, nil, 400,
			"INVALID_INPUT", "does not support extraction"},
		{"/v1/extract/test/mean", `{"items":1}`, nil, 400, "INVALID_INPUT", "Expected `array`"},
	} {
		a := r.do("POST", c.path, c.body, append([]string{"Accept", "application/json"}, c.headers...)...)
		if a.status != c.status {
			t.Errorf("%s %.60s %v: %d %s, want %d", c.path, c.body, c.headers, a.status, a.body, c.status)
			continue
		}
		if c.status == 200 {
			continue
		}
		e := a.failure(t)
		if e.Code != c.code || e.Detail.Code != c.code || e.Error.Code == "" ||
			e.Error.Message != e.Detail.Message || !strings.Contains(e.Detail.Message, c.text) ||
			a.header.Get("X-SIE-Error-Code") != c.code || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %.60s: %s %v; want %s, %q", c.path, c.body, a.body, a.header, c.code, c.text)
		}
	}
}

func TestEmbeddings(t *testing.T) {
	r := start(t, nil)
	type list struct {
		Object, Model string
		Data          []struct {
			Object    string
			Index     int
			Embedding json.RawMessage
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Total  int `json:"total_tokens"`
		}
	}
	get := func(body string) list {
		t.Helper()
		a := r.do("POST", "/v1/embeddings", body, "Content-Type", "application/json")
		var l list
		if err := json.Unmarshal(a.body, &l); err != nil || a.status != 200 {
			t.Fatalf("%d %v %s", a.status, err, a.body)
		}
		return l
	}
	native := r.encode(oneText).encoded(t)
	l := get(`{"model":"test__mean","input":["the cat","zebra"]}`)
	var v []float32
	if err := json.Unmarshal(l.Data[0].Embedding, &v); err != nil || l.Object != "list" ||
		l.Model != "test__mean" || len(l.Data) != 2 || l.Data[1].Index != 1 ||
		l.Data[1].Object != "embedding" || !slices.Equal(v, native.Items[0].Dense.Values) {
		t.Errorf("got %+v, %v", l, err)
	}
	if l := get(`{"model":"test/mean","input":"the cat"}`); l.Usage.Prompt != native.Usage.InputTokens ||
		l.Usage.Total != native.Usage.InputTokens {
		t.Errorf("usage %+v, want %d tokens", l.Usage, native.Usage.InputTokens)
	}
	var text string
	l = get(`{"model":"test/mean","input":[[2,3]],"encoding_format":"base64","dimensions":4}`)
	if err := json.Unmarshal(l.Data[0].Embedding, &text); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	sum := 0.0
	for i := range len(raw) / 4 {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		sum += x * x
	}
	if err != nil || len(raw) != 16 || math.Abs(sum-1) > 1e-5 || l.Usage.Prompt != 2 {
		t.Errorf("base64 of 4 dimensions: %d bytes with a norm of %v, %+v, %v", len(raw), sum, l.Usage, err)
	}
	for body, want := range map[string][3]string{
		`{"model":"test/mean","input":"a","dimensions":33}`: {"unsupported_field", "dimensions",
			"at most 32"},
		`{"model":"test/none","input":"a"}`:   {"model_not_found", "model", "Model 'test/none' not found"},
		`{"model":"test/mean","input":[]}`:    {"invalid_request", "input", "cannot be empty"},
		`{"model":"test/mean","input":[500]}`: {"invalid_request", "input", "token id 500"},
		`{`:                                   {"invalid_request", "", "truncated"},
	} {
		a := r.do("POST", "/v1/embeddings", body)
		e := a.failure(t)
		if a.status/100 != 4 || e.Error.Code != want[0] || e.Error.Param != want[1] ||
			!strings.Contains(e.Error.Message, want[2]) || e.Error.Type != "invalid_request_error" {
			t.Errorf("%s: %d %s, want %v", body, a.status, a.body, want)
		}
	}
}

// Clients cannot grow the label set with model ids that they make up.
func TestMetrics(t *testing.T) {
	r := start(t, nil)
	series := func() int {
		return strings.Count(string(r.do("GET", "/metrics", "").body), "\nsie_")
	}
	tokens := r.encode(oneText).encoded(t).Usage.InputTokens
	r.encode("{")
	r.do("POST", "/v1/encode/none", oneText)
	r.do("POST", "/v1/score/none", `{"query":{"text":"q"},"items":[{"text":"d"}]}`)
	r.do("POST", "/v1/embeddings", `{"model":"none","input":"a"}`)
	r.do("GET", "/v1/models/none", "")
	before := series()
	for i := range 30 {
		id := fmt.Sprintf("none%d", i)
		r.do("POST", "/v1/encode/"+id, oneText)
		r.do("POST", "/v1/score/"+id, `{"query":{"text":"q"},"items":[{"text":"d"}]}`)
		r.do("POST", "/v1/embeddings", `{"model":"`+id+`","input":"a"}`)
		r.do("GET", "/v1/models/"+id, "")
		r.encode(oneText, "X-SIE-Remote", id)
	}
	if after := series(); after != before {
		t.Errorf("%d series before requests for unknown models, %d after:\n%s",
			before, after, r.do("GET", "/metrics", "").body)
	}
	for line, want := range map[string]string{
		`sie_requests_total{endpoint="encode",model="test/mean",status="success"}`:                  "1",
		`sie_requests_total{endpoint="encode",model="",status="rejected"}`:                          "62",
		`sie_request_duration_seconds_count{endpoint="encode",model="test/mean",phase="total"}`:     "1",
		`sie_request_duration_seconds_count{endpoint="encode",model="test/mean",phase="inference"}`: "1",
		`sie_tokens_processed_total{model="test/mean"}`: fmt.Sprint(
			tokens),
		`sie_batch_size_count{model="test/mean"}`:          "1",
		`sie_device_batch_items_count{model="test/mean"}`:  "1",
		`sie_queue_depth{model="test/mean"}`:               "0",
		`sie_model_loaded{device="cpu",model="test/mean"}`: "1",
	} {
		// what a batch came to is counted behind its answers
		testrig.Until(t, line+" is "+want, func() bool { return r.metric(line) == want })
	}
	if n := r.metric(`sie_model_memory_bytes{device="cpu",model="test/mean"}`); n == "" || n == "0" {
		t.Errorf("the model takes %q bytes", n)
	}
}
