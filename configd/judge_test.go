package configd_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd"
	"github.com/sie-engine/sie/configd/ledger"
	"github.com/sie-engine/sie/weights/bucket/buckettest"
)

// judged is one request of judge.json.gz, with the reference's answers to it.
type judged struct {
	Method, Path, Body, Who, Key string
	Spaces                       int    // the body is as many spaces
	Ours                         int    // the status of this project, where it answers otherwise
	Why                          string // it does
	Answers                      []struct {
		Modes  []string
		Status int
		Type   string
		Answer any
	}
}

func (q *judged) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %.120q %s %s", q.Method, q.Path, q.Body, q.Who, q.Key))
}

// Every answer to the requests of judge.py is the reference's, in every mode, apart from what
// judge.py lists with a reason and what settle leaves out.
func TestTheJudgeAgrees(t *testing.T) {
	file, err := os.Open("testdata/judge.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []judged
	if err := json.NewDecoder(text).Decode(&all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 150 {
		t.Fatalf("%d requests", len(all))
	}
	for _, auth := range []string{"open", "auth"} {
		for _, store := range []string{"none", "file", "s3"} {
			t.Run(auth+"-"+store, func(t *testing.T) {
				tokens := configd.Tokens{}
				if auth == "auth" {
					tokens = configd.Tokens{Read: "reader", Inference: "caller", Admin: "admin"}
				}
				judge(t, all, auth+"-"+store, judgePlace(t, store), tokens)
			})
		}
	}
}

// judgePlace returns a new place for a ledger.
func judgePlace(t *testing.T, store string) ledger.Place {
	setting := filepath.Join(t.TempDir(), "store")
	switch store {
	case "none":
		return ledger.Memory()
	case "s3":
		url, _, _ := buckettest.S3(t)
		setting = url + "/config"
	}
	place, err := ledger.OpenPlace(setting, ledger.NewWriter("judge"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = place.Close() })
	return place
}

func judge(t *testing.T, all []judged, mode string, place ledger.Place, tokens configd.Tokens) {
	quiet := slog.New(slog.DiscardHandler)
	l, err := ledger.Open(context.Background(), place, ledger.NewWriter("judge"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	s, ask := serveWith(t, configd.Options{Tokens: tokens, Ledger: l})
	load(t, s)
	for i := range all {
		q := &all[i]
		body := q.Body
		if q.Spaces > 0 {
			body = strings.Repeat(" ", q.Spaces)
		}
		headers := map[string]string{"Idempotency-Key": q.Key}
		if q.Who != "" {
			headers["Authorization"] = "Bearer " + q.Who
		}
		got := ask(q.Method, q.Path, headers, body)
		if q.Why != "" {
			if got.status != q.Ours {
				t.Errorf("%d: %s: %d %s, want %d: %s", i, q, got.status, got.body, q.Ours, q.Why)
			}
			continue
		}
		for _, want := range q.Answers {
			if !slices.Contains(want.Modes, mode) {
				continue
			}
			ours, theirs := settle(t, q, mode, got.value(t)), settle(t, q, mode, copied(t, want.Answer))
			if got.status != want.Status || got.kind != want.Type || !reflect.DeepEqual(ours, theirs) {
				g, _ := json.Marshal(ours)
				w, _ := json.Marshal(theirs)
				at := 0
				for at < min(len(g), len(w)) && g[at] == w[at] {
					at++
				}
				at = max(0, at-200) // the answers are alike before it
				t.Errorf("%d: %s:\n got %d %s …%.600s\nwant %d %s …%.600s", i, q,
					got.status, got.kind, g[at:], want.Status, want.Type, w[at:])
			}
		}
	}
}

// copied returns a copy of an answer, which settle changes.
func copied(t *testing.T, v any) (out any) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// settle returns an answer without what both may write in another way, or this project adds:
// documents are compared by content; of what is wrong with a body, the kind of error; without a
// store, the reference counts no epochs and calls added models built in.
func settle(t *testing.T, q *judged, mode string, v any) any {
	if text, ok := v.(string); ok && strings.Contains(q.Path, "/models/") && text != "" {
		if strings.HasSuffix(mode, "none") {
			return "a document" // the reference makes one up
		}
		m, err := catalog.Document{Name: "document", Source: []byte(text)}.Content()
		if err != nil {
			return text
		}
		return m
	}
	o, ok := v.(map[string]any)
	if !ok {
		return v
	}
	if strings.HasSuffix(mode, "none") { // its epoch stays 0
		delete(o, "epoch")
	}
	if q.Method != "GET" && !strings.HasSuffix(q.Path, "/resolve") && o["deleted"] == nil {
		delete(o, "epoch") // of ours alone
	}
	if detail, ok := o["detail"].(map[string]any); ok {
		switch detail["error"] {
		case "parse_error", "validation_error": // in other words
			delete(detail, "message")
			delete(detail, "details")
		}
	}
	models, _ := o["models"].([]any)
	var kept []any
	for _, x := range models {
		m := x.(map[string]any)
		delete(m, "raw_yaml")
		delete(m, "model_config_hashes")
		delete(m, "model_document_hash")
		if strings.HasSuffix(mode, "none") {
			delete(m, "source")
		}
		if m["model_id"] != "org/onlycandle" || !strings.HasSuffix(q.Path, "/models") {
			kept = append(kept, m) // its only profile is its default
		}
	}
	if models != nil {
		o["models"] = kept
	}
	delete(o, "generated_at")
	delete(o, "models_hash") // of ours alone
	return o
}

// answered is an answer.
type answered struct {
	status int
	kind   string
	body   []byte
}

// value returns a new copy of the body's content.
func (a *answered) value(t *testing.T) (v any) {
	if a.kind != "application/json" {
		return string(a.body)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return v
}

// answerOf reads an answer.
func answerOf(t *testing.T, resp *http.Response) *answered {
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return &answered{resp.StatusCode, kind, body}
}
