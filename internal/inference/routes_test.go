package inference

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/tenant"
	"github.com/sie-engine/sie/internal/testrig"
)

// fake is a Backend of the models "dense" and "judge", which score, and "bare", which does not. It
// notes how each request ended.
type fake struct {
	mu    sync.Mutex
	heads []Head
	ends  []string
	asked []string // ids for which Refusal was asked

	check   error
	refusal *Refusal
	err     error
	hold    chan struct{} // Encode waits for its context's end after closing it
	encode  func()        // Encode calls it; nil: it does not
}

func (b *fake) Begin(h Head) Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heads = append(b.heads, h)
	return &fakeSession{b: b, endpoint: h.Endpoint}
}

func (b *fake) Models() []api.ModelInfo { return []api.ModelInfo{{Name: "dense"}} }

type fakeSession struct {
	compat.Backend // nil: what is not below is not called
	b              *fake
	endpoint       string
}

func (s *fakeSession) Model(id string) (compat.Model, error) {
	outputs := map[string][]string{"dense": {"dense", "score"}, "judge": {"score"}, "bare": {"dense"}}[id]
	if outputs == nil {
		return compat.Model{}, errs.UnknownModel("Model '" + id + "' not found")
	}
	return compat.Model{ID: id, Outputs: outputs}, nil
}

func (s *fakeSession) OpenAIModel(id string) (compat.Model, error) { return s.Model(id) }

func (s *fakeSession) Info(id string) (*api.ModelInfo, error) {
	m, err := s.Model(id)
	return &api.ModelInfo{Name: m.ID}, err
}

func (s *fakeSession) Check() error { return s.b.check }

func (s *fakeSession) Refusal(id string) *Refusal {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.asked = append(s.b.asked, id)
	return s.b.refusal
}

func (s *fakeSession) outcome(m compat.Model, n int) api.Outcome {
	return api.Outcome{ModelID: m.ID, Items: n, Tokens: 9, Revision: "rev", Ignored: []string{"top_k"}}
}

func (s *fakeSession) Encode(
	w *admit.Work, m compat.Model, r *api.EncodeRequest,
) (*api.EncodeResponse, error) {
	if s.b.hold != nil {
		close(s.b.hold)
		<-w.Context().Done()
		return nil, context.Cause(w.Context())
	}
	if s.b.err != nil {
		return nil, s.b.err
	}
	if s.b.encode != nil {
		s.b.encode()
	}
	res := &api.EncodeResponse{Model: m.ID, Usage: &api.Usage{}, Outcome: s.outcome(m, len(r.Items))}
	for range r.Items {
		res.Items = append(res.Items, api.EncodeItem{Dense: &api.Dense{Dims: 1,
			Values: api.Vector(api.Float32, []byte{0, 0, 128, 63})}})
	}
	return res, nil
}

func (s *fakeSession) Score(
	_ *admit.Work, m compat.Model, r *api.ScoreRequest,
) (*api.ScoreResponse, error) {
	if len(m.Outputs) == 1 && m.Outputs[0] == "dense" {
		return nil, errs.NoScoring(m.ID)
	}
	res := &api.ScoreResponse{Model: m.ID, Usage: &api.Usage{ContentTokens: 5, HasContent: true},
		Outcome: s.outcome(m, len(r.Items))}
	for i := range r.Items {
		res.Scores = append(res.Scores, api.Score{ItemID: fmt.Sprint(i), Index: i, Rank: i})
	}
	return res, s.b.err
}

func (s *fakeSession) Extract(
	_ *admit.Work, m compat.Model, r *api.ExtractRequest,
) (*api.ExtractResponse, error) {
	res := &api.ExtractResponse{Model: m.ID, Usage: &api.Usage{}, Outcome: s.outcome(m, len(r.Items))}
	for i := range r.Items {
		res.Items = append(res.Items, api.ExtractItem{ID: fmt.Sprint(i)})
	}
	res.Items[len(res.Items)-1].Error = errs.NonFinite(m.ID, "scores")
	return res, s.b.err
}

func (s *fakeSession) End(model string, o *api.Outcome, err error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	text := s.endpoint + " " + model + " "
	switch {
	case errors.Is(err, admit.ErrClientGone):
		text += "gone"
	case err != nil:
		text += string(errs.As(err).Code)
	default:
		text += fmt.Sprint(o.Items)
	}
	s.b.ends = append(s.b.ends, text)
}

// taken returns how the requests since the last call ended.
func (b *fake) taken() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := strings.Join(b.ends, ", ")
	b.ends, b.asked = nil, nil
	return out
}

// rig serves the routes over a fake.
type rig struct {
	*fake
	t    *testing.T
	url  string
	gate *admit.Gate
	log  *testrig.Log
}

func start(t *testing.T) *rig {
	t.Helper()
	return startWith(t, nil)
}

// startWith is start with API keys.
func startWith(t *testing.T, keys *tenant.Access) *rig {
	t.Helper()
	r := &rig{fake: &fake{}, t: t, gate: admit.New(admit.Options{}), log: &testrig.Log{}}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	a := New(Options{Backend: r.fake, Gate: r.gate, Log: log, Defaults: []string{"dense"},
		GPU: func() bool { return true },
		Headers: func(dst []dialect.Header, o *api.Outcome) []dialect.Header {
			return append(dst, dialect.Header{Name: "X-Own", Value: o.ModelID})
		}})
	s, err := httpd.New(httpd.Options{Gate: r.gate, Log: log, Unrouted: Unrouted, Keys: keys}, a.Routes())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	r.url = "http://" + l.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) do(ctx context.Context, method, path, body string, headers ...string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Error(err)
	}
	return resp, string(b)
}

const (
	texts = `{"items":[{"text":"a"},{"text":"b"}]}`
	query = `{"query":{"text":"q"},"items":[{"text":"a"}]}`
)

// Every request is counted once, under the model that was found and as its route, whatever becomes
// of it; what is wrong first is answered first.
func TestEveryRequestIsCountedOnce(t *testing.T) {
	r := start(t)
	full, other := Refuse(errs.FullQueue(1, 2, 3)), errs.Invalid("X-SIE-Pool", "no pool")
	remote := []string{"X-SIE-Remote", "allow"}
	zipped := []string{"Content-Encoding", "gzip"}
	for _, c := range []struct {
		name, path, body string
		headers          []string
		check, err       error
		refusal          *Refusal
		status           int
		want             string
	}{
		{name: "encode", path: "/v1/encode/dense", body: texts, status: 200, want: "encode dense 2"},
		{name: "score", path: "/v1/score/judge", body: query, status: 200, want: "score judge 1"},
		{name: "extract", path: "/v1/extract/dense", body: texts, status: 200, want: "extract dense 2"},
		{name: "embeddings", path: "/v1/embeddings", body: `{"model":"dense","input":"a"}`, status: 200,
			want: "embeddings dense 1"},
		{name: "rerank", path: "/v1/rerank", body: `{"model":"judge","query":"q","documents":["a"]}`,
			status: 200, want: "rerank judge 1"},
		{name: "embed", path: "/embed", body: `{"inputs":"a"}`, status: 200, want: "embed dense 1"},
		{name: "the root", path: "/", body: `{"inputs":"a"}`, status: 200, want: "embed dense 1"},

		{name: "a bad body", path: "/v1/encode/dense", body: "{", status: 400, want: "encode  INVALID_INPUT"},
		{name: "a bad body of no model", path: "/v1/encode/nope", body: "{", status: 400,
			want: "encode  INVALID_INPUT"},
		{name: "no model", path: "/v1/encode/nope", body: texts, status: 404, refusal: full,
			want: "encode  MODEL_NOT_FOUND"},
		{name: "no model of a guest", path: "/v1/embeddings", body: `{"model":"nope","input":"a"}`,
			status: 404, want: "embeddings  MODEL_NOT_FOUND"},
		{name: "an error of the backend", path: "/v1/encode/dense", body: texts, status: 500,
			err: errors.New("secret"), want: "encode dense INTERNAL_ERROR"},

		{name: "full", path: "/v1/encode/dense", body: "{", refusal: full, status: 503,
			want: "encode dense QUEUE_FULL"},
		{name: "full, a guest", path: "/v1/embeddings", body: "{", refusal: full, status: 503,
			want: "embeddings  QUEUE_FULL"},
		{name: "full, TEI", path: "/embed", body: "{", refusal: full, status: 429, want: "embed  QUEUE_FULL"},
		{name: "full, and cannot score", path: "/v1/score/bare", body: query, refusal: full, status: 400,
			want: "score bare INVALID_INPUT"},
		{name: "a bad head", path: "/v1/encode/dense", body: "{", check: other, refusal: full, status: 400,
			headers: zipped, want: "encode dense INVALID_INPUT"},
		{name: "compressed", path: "/v1/encode/bare", body: "{", status: 415, headers: zipped,
			want: "encode  INVALID_INPUT"},
		{name: "remote", path: "/v1/encode/bare", body: "{", status: 400, headers: remote,
			want: "encode  INVALID_INPUT"},
	} {
		r.check, r.err, r.refusal = c.check, c.err, c.refusal
		resp, body := r.do(t.Context(), "POST", c.path, c.body, c.headers...)
		if resp == nil || resp.StatusCode != c.status || strings.Contains(body, "secret") {
			t.Errorf("%s: %v %s, want %d", c.name, resp, body, c.status)
			continue
		}
		if c.check != nil && !strings.Contains(body, "no pool") {
			t.Errorf("%s: %s", c.name, body)
		}
		if own := resp.Header.Get("X-Own"); (own != "") != (c.status == 200) {
			t.Errorf("%s: the entrance's own header is %q", c.name, own)
		}
		if got := r.taken(); got != c.want {
			t.Errorf("%s: counted %q, want %q", c.name, got, c.want)
		}
	}
	r.check, r.err, r.refusal = nil, nil, nil
	if resp, _ := r.do(t.Context(), "GET", "/v1/models/nope", ""); resp.StatusCode != 404 ||
		r.taken() != "models  MODEL_NOT_FOUND" {
		t.Error("an unknown model of the list")
	}
	for _, path := range []string{"/v1/models", "/v1/models/dense"} {
		if resp, _ := r.do(t.Context(), "GET", path, ""); resp.StatusCode != 200 || r.taken() != "" {
			t.Errorf("%s: a listing is no inference request", path)
		}
	}
	if resp, _ := r.do(t.Context(), "POST", "/v1/chat/completions", "{}"); resp.StatusCode != 501 ||
		r.taken() != "" {
		t.Error("a route out of scope")
	}
	log := r.log.String()
	if !strings.Contains(log, `msg="request failed" id=`) || !strings.Contains(log, "secret") {
		t.Errorf("the log has not the cause of a failure, with the request's id: %s", log)
	}
}

// A draining server refuses before everything else, and counts that.
func TestADrainComesFirst(t *testing.T) {
	r := start(t)
	r.gate.Shut()
	r.check, r.refusal = errs.Invalid("", "x"), Refuse(errs.FullQueue(1, 2, 3))
	resp, body := r.do(t.Context(), "POST", "/v1/encode/nope", "{")
	if resp.StatusCode != 503 || !strings.Contains(body, "DRAINING") || r.taken() != "encode  DRAINING" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A client that leaves ends the work of its request, which is counted as such.
func TestAClientThatLeaves(t *testing.T) {
	r := start(t)
	r.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		r.do(ctx, "POST", "/v1/encode/dense", texts)
	}()
	<-r.hold
	cancel()
	<-left
	testrig.Until(t, "the request has ended", func() bool { return r.gate.Running() == 0 })
	if got := r.taken(); got != "encode dense gone" {
		t.Errorf("counted %q", got)
	}
}

// A request takes the memory of its body once, as it is counted: what is read of the body is no
// copy.
func TestABodyIsInMemoryOnce(t *testing.T) {
	r := start(t)
	const items, size = 16, 3 << 19
	used := func() int64 {
		var now runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools gave up at the first
		runtime.ReadMemStats(&now)
		return int64(now.HeapAlloc)
	}
	text := strings.Repeat("x", size)
	var parts []io.Reader
	length, before := int64(0), `{"items":[`
	for range items {
		for _, part := range []string{before, `{"text":"`, text, `"}`} {
			parts, length = append(parts, strings.NewReader(part)), length+int64(len(part))
		}
		before = ","
	}
	parts, length = append(parts, strings.NewReader("]}")), length+2
	q, err := http.NewRequestWithContext(t.Context(), "POST", r.url+"/v1/encode/dense",
		io.MultiReader(parts...))
	if err != nil {
		t.Fatal(err)
	}
	q.ContentLength = length
	idle, during := used(), int64(0)
	r.encode = func() { during = used() }
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || 2*(during-idle) > 3*length {
		t.Errorf("status %d: %d MiB for a body of %d", resp.StatusCode, (during-idle)>>20, length>>20)
	}
}

// The headers of a success, and an extraction of which one item failed.
func TestHeadersOfASuccess(t *testing.T) {
	r := start(t)
	resp, _ := r.do(t.Context(), "POST", "/v1/score/judge", query, "X-SIE-SDK-Version", "0.6.30")
	for name, want := range map[string]string{
		"X-SIE-Server-Version": "0.6", "X-SIE-Units-Input-Tokens": "9", "X-SIE-Units-Pairs": "1",
		"X-SIE-Units-Content-Input-Tokens": "5", "X-SIE-Model-Revision": "rev", "X-Own": "judge",
		"X-SIE-Warning": "options of other operations ignored: top_k",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for version, status := range map[string]int{"0.3.4": 500, "0.10.1": 200, "": 200} {
		resp, body := r.do(t.Context(), "POST", "/v1/extract/dense", texts, "X-SIE-SDK-Version", version,
			"Accept", "application/json")
		if resp.StatusCode != status || !strings.Contains(body, "non-finite") {
			t.Errorf("%q: %d %s", version, resp.StatusCode, body)
		}
		if named := strings.Contains(body, `"param":"items[`); named != (status == 500) {
			t.Errorf("%q: the item is named: %v; %s", version, named, body)
		}
	}
	resp, _ = r.do(t.Context(), "POST", "/embed", `{"inputs":"a"}`)
	if resp.Header.Get("X-Compute-Type") != "gpu+optimized" || resp.Header.Get("X-Own") != "dense" {
		t.Errorf("%v", resp.Header)
	}
}
