package configd_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd"
)

// load serves the models and bundles of testdata.
func load(t *testing.T, s *configd.Server) {
	t.Helper()
	c, err := catalog.LoadDir("testdata/models")
	if err != nil {
		t.Fatal(err)
	}
	b, err := catalog.LoadBundlesDir("testdata/bundles")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set(c, b); err != nil {
		t.Fatal(err)
	}
}

// asks sends a request and returns the status, the content type and the body of its answer.
type asks func(method, path, auth, body string) (int, string, []byte)

// serve starts a server without a store and returns how to ask it.
func serve(t *testing.T, tokens configd.Tokens) (*configd.Server, asks) {
	t.Helper()
	s, ask := serveWith(t, configd.Options{Tokens: tokens})
	return s, func(method, path, auth, body string) (int, string, []byte) {
		t.Helper()
		a := ask(method, path, map[string]string{"Authorization": auth}, body)
		return a.status, a.kind, a.body
	}
}

// serveWith starts a server and returns how to ask it. Empty headers are not sent.
func serveWith(
	t *testing.T, o configd.Options,
) (*configd.Server, func(method, path string, headers map[string]string, body string) *answered) {
	t.Helper()
	o.Log, o.IdleGrace = slog.New(slog.DiscardHandler), time.Millisecond
	s, err := configd.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, func(method, path string, headers map[string]string, body string) *answered {
		t.Helper()
		q, err := http.NewRequest(method, "http://"+l.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range headers {
			if value != "" {
				q.Header.Set(name, value)
			}
		}
		resp, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		return answerOf(t, resp)
	}
}

// differs lists what this sie-config answers otherwise than the reference, and why.
var differs = map[string]string{
	"GET /v1/configs/models/ORG/Plain": "the reference makes up a document for another spelling",
	"GET /nope":                        "an unknown path has the error body of every SIE server",
	// A model with one profile is served under its bare id too.
	`POST /v1/configs/resolve {"model":"org/onlycandle"}`: "its only profile is its default",
	`POST /v1/configs/resolve {"model":"ORG/PLAIN"}`:      "profiles in any case (weak point 23)",
}

// Every answer is the reference's, apart from what differs lists.
func TestAnswersAreTheReferences(t *testing.T) {
	text, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var want []struct {
		Method, Path, Type string
		Headers            map[string]string
		Body               string
		Status             int
		Answer             any
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if len(want) < 50 {
		t.Fatalf("%d answers", len(want))
	}
	s, ask := serve(t, configd.Tokens{Read: "reader", Inference: "caller"})
	load(t, s)
	seen := map[string]bool{}
	for _, w := range want {
		status, kind, body := ask(w.Method, w.Path, w.Headers["Authorization"], w.Body)
		var got any = string(body)
		if kind == "application/json" {
			if err := json.Unmarshal(body, &got); err != nil {
				t.Errorf("%s %s: %v", w.Method, w.Path, err)
				continue
			}
		}
		if strings.HasSuffix(w.Path, "/epoch") && status == 200 {
			delete(got.(map[string]any), "models_hash") // of ours alone
		}
		if strings.HasSuffix(w.Path, "/export") && status == 200 {
			checkExport(t, got.(map[string]any), w.Answer.(map[string]any))
		}
		if strings.HasSuffix(w.Path, "/models") && status == 200 {
			list := got.(map[string]any)
			list["models"] = without(t, list["models"].([]any), "org/onlycandle")
		}
		same := status == w.Status && kind == w.Type && reflect.DeepEqual(got, w.Answer)
		name := strings.TrimSpace(fmt.Sprint(w.Method, " ", w.Path, " ", w.Body))
		if differs[name] != "" {
			seen[name] = true
			if same {
				t.Errorf("%s is the reference's answer, and listed as another", name)
			}
			continue
		}
		if !same {
			g, _ := json.Marshal(got)
			x, _ := json.Marshal(w.Answer)
			t.Errorf("%s %v:\n got %d %s %s\nwant %d %s %s",
				name, w.Headers, status, kind, g, w.Status, w.Type, x)
		}
	}
	for name := range differs {
		if !seen[name] {
			t.Errorf("%s was not asked", name)
		}
	}
}

// without returns a list of models without the one of an id, which must be there.
func without(t *testing.T, list []any, id string) []any {
	t.Helper()
	for i, x := range list {
		if x.(map[string]any)["model_id"] == id {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	t.Errorf("%s is not listed", id)
	return list
}

// checkExport compares what the export may write in another way, and then makes both alike.
func checkExport(t *testing.T, got, want map[string]any) {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, got["generated_at"].(string))
	if err != nil || time.Since(at) > time.Minute {
		t.Errorf("generated_at %v", got["generated_at"])
	}
	delete(got, "generated_at")
	list := want["models"].([]any)
	for i, x := range got["models"].([]any) {
		m := x.(map[string]any)
		hashes := m["model_config_hashes"].(map[string]any)
		bundles := m["affected_bundles"].([]any)
		for _, b := range bundles {
			if h, _ := hashes[b.(string)].(string); len(h) != 64 {
				t.Errorf("%v has the hash %q in %v", m["model_id"], h, b)
			}
		}
		if len(hashes) != len(bundles) {
			t.Errorf("%v: %v and %v", m["model_id"], hashes, bundles)
		}
		delete(m, "model_config_hashes")
		if h, _ := m["model_document_hash"].(string); len(h) != 64 {
			t.Errorf("%v has a document of the hash %q", m["model_id"], h)
		}
		delete(m, "model_document_hash")
		// The reference writes the document anew; this one sends the file. Both say the same.
		ours, _, err := catalog.ParseModel("ours", []byte(m["raw_yaml"].(string)))
		if err != nil {
			t.Fatal(err)
		}
		theirs, _, err := catalog.ParseModel("theirs", []byte(list[i].(map[string]any)["raw_yaml"].(string)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(ours.Document(), theirs.Document()) {
			t.Errorf("%v: another document", m["model_id"])
		}
		m["raw_yaml"] = list[i].(map[string]any)["raw_yaml"]
	}
}

// A server without content is alive and not ready; content may be replaced while it serves.
func TestReadiness(t *testing.T) {
	s, ask := serve(t, configd.Tokens{})
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/v1/configs/epoch": 503,
		"/v1/configs/export": 503} {
		if got, _, body := ask("GET", path, "", ""); got != want {
			t.Errorf("%s: %d %s, want %d", path, got, body, want)
		}
	}
	load(t, s)
	if got, _, body := ask("GET", "/readyz", "", ""); got != 200 {
		t.Errorf("%d %s", got, body)
	}
	_, _, before := ask("GET", "/v1/configs/epoch", "", "")
	c, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	b, err := catalog.BuiltinBundles()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set(c, b); err != nil {
		t.Fatal(err)
	}
	if files, routable := s.Content().Models(); files != len(c.Models()) || routable != c.Len() {
		t.Errorf("%d files and %d ids of %d and %d", files, routable, len(c.Models()), c.Len())
	}
	if _, _, after := ask("GET", "/v1/configs/epoch", "", ""); bytes.Equal(before, after) {
		t.Error("another catalog has the same hashes")
	}
	for model, want := range map[string]string{
		`"urchade/gliner_small-v2.1"`:                       `"default"`,
		`"urchade/gliner_small-v2.1","bundle":"gliner"`:     `"gliner"`,
		`"gliner:/knowledgator/gliclass-small-v1.0"`:        `"gliner"`,
		`"BAAI/bge-small-en-v1.5:candle","bundle":"gliner"`: `"compatible_bundles":["default","candle"]`,
	} {
		_, _, body := ask("POST", "/v1/configs/resolve", "", `{"model":`+model+`}`)
		if !bytes.Contains(body, []byte(want)) {
			t.Errorf("%s: %s, want %s", model, body, want)
		}
	}
}

// Who may read and who may write, for each set of tokens.
func TestTokens(t *testing.T) {
	const export, epoch = "GET /v1/configs/export", "GET /v1/configs/epoch"
	const write = "DELETE /v1/configs/models/org/plain"
	for _, c := range []struct {
		name   string
		tokens configd.Tokens
		want   map[string]int // by request and token
	}{
		{"open", configd.Tokens{}, map[string]int{export: 200, epoch: 200, write: 409}},
		{"production", configd.Tokens{Production: true}, map[string]int{export: 403, epoch: 403, write: 403,
			epoch + " x": 403}},
		{"read", configd.Tokens{Read: "r"}, map[string]int{export: 401, epoch: 401, write: 403,
			export + " r": 200, epoch + " r": 200, write + " r": 403, epoch + " rr": 403, epoch + " R": 403}},
		{"inference", configd.Tokens{Inference: "i, j"}, map[string]int{export + " i": 403, epoch + " i": 200,
			epoch + " j": 200, epoch + " i,": 403, write + " i": 403}},
		{"all", configd.Tokens{Read: "r", Inference: "i", Admin: "a", Production: true}, map[string]int{
			export + " a": 200, export + " r": 200, export + " i": 403, write + " a": 409, write + " r": 403,
			write: 401, epoch + " a": 200, epoch + " x": 403}},
	} {
		s, ask := serve(t, c.tokens)
		load(t, s)
		for q, want := range c.want {
			part := strings.Split(q+" ", " ")
			auth := ""
			if part[2] != "" {
				auth = "Bearer " + part[2]
			}
			if got, _, body := ask(part[0], part[1], auth, ""); got != want {
				t.Errorf("%s, %s: %d %.100s, want %d", c.name, q, got, body, want)
			}
		}
	}
}

// Without tokens sie-config keeps to what a gateway with keys says its caller may do.
// With tokens it alone decides.
func TestTheRightsOfAGatewaysCaller(t *testing.T) {
	for _, c := range []struct {
		rights               string
		epoch, export, write int
	}{
		{"", 200, 200, 201}, {"admin", 200, 200, 201}, {"read", 200, 403, 403}, {"none", 403, 403, 403},
		{"on", 403, 403, 403}, {"Admin", 403, 403, 403},
	} {
		for want, tokens := range map[int]configd.Tokens{0: {}, 401: {Admin: "a"}} {
			s, ask := serveWith(t, configd.Options{Tokens: tokens})
			load(t, s)
			for q, open := range map[string]int{"GET /v1/configs/epoch": c.epoch,
				"GET /v1/configs/export": c.export, "POST " + modelsPath: c.write} {
				method, path, _ := strings.Cut(q, " ")
				head := map[string]string{"X-SIE-Gateway-Auth": c.rights}
				a := ask(method, path, head, document("new/a", 8))
				if a.status != cmp.Or(want, open) {
					t.Errorf("%s with %q: %d %s, want %d", q, c.rights, a.status, a.body, cmp.Or(want, open))
				}
			}
		}
	}
}

// Hostile bodies are refused.
func TestHostileBodies(t *testing.T) {
	s, ask := serve(t, configd.Tokens{})
	load(t, s)
	for body, want := range map[string]int{
		"x": 400, "[]": 400, `{"model":1}`: 400, `{"model":"a","bundle":2}`: 400, "\xff": 400,
		`{"model":` + strings.Repeat("[", 1_000_00): 400, strings.Repeat(" ", 1<<20+1): 413,
		`{"model":"org/plain","bundle":null}`: 200, `{"model":"Org/Plain","bundle":"DEFAULT"}`: 200,
		`{"model":"` + strings.Repeat("a", 1<<18) + `"}`: 404,
	} {
		if got, _, answer := ask("POST", "/v1/configs/resolve", "", body); got != want {
			t.Errorf("%.40q: %d %.200s, want %d", body, got, answer, want)
		}
	}
	if got, _, _ := ask("GET", "/v1/configs/resolve", "", ""); got != 405 {
		t.Errorf("GET of a POST route: %d", got)
	}
}
