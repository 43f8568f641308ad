package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// serving runs sie-config with a store and returns its address.
func serving(t *testing.T) string {
	t.Helper()
	models := t.TempDir()
	write(t, filepath.Join(models, "base.yaml"), strings.ReplaceAll(model, "org/a", "org/base"))
	c := serveCmd{Host: "127.0.0.1", ModelsDir: models, Store: t.TempDir(), DrainTimeout: 5 * time.Second,
		MaxConns: 8}
	ctx, stop := context.WithCancel(t.Context())
	address := make(chan net.Addr, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- c.serve(ctx, make(chan os.Signal), slog.New(slog.DiscardHandler),
			func(a net.Addr) { address <- a })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-address:
		return "http://" + a.String()
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return ""
}

// A directory is applied, and applied again changes nothing; files that change, come and go are
// followed; what is built in stays.
func TestApplyConverges(t *testing.T) {
	at := remote{URL: serving(t)}
	dir := t.TempDir()
	a := write(t, filepath.Join(dir, "a.yaml"), model)
	b := write(t, filepath.Join(dir, "b.yaml"), strings.ReplaceAll(model, "org/a", "org/b"))
	step := func(prune, dry bool, want string) {
		t.Helper()
		var out bytes.Buffer
		c := applyCmd{remote: at, Dir: dir, Prune: prune, DryRun: dry}
		if err := c.apply(t.Context(), &out); err != nil || out.String() != want {
			t.Errorf("%v: %q, want %q", err, out.String(), want)
		}
	}
	step(true, true, "add      org/a\nadd      org/b\n")
	step(true, false, "add      org/a epoch 1\nadd      org/b epoch 2\n")
	step(true, false, "nothing to change\n")
	write(t, a, strings.Replace(model, "tokens: 8", "tokens: 9", 1))
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	d := diffCmd{remote: at, Dir: dir}
	if err := d.diff(t.Context(), &out); !errors.Is(err, errDiffers) ||
		out.String() != "replace  org/a\nremove   org/b\n" {
		t.Errorf("%v %q", err, out.String())
	}
	step(false, false, "replace  org/a epoch 3\n")
	step(true, false, "remove   org/b epoch 4\n")
	// a built-in model is replaced, and comes back when its file goes
	base := write(t, filepath.Join(dir, "base.yaml"),
		strings.Replace(strings.ReplaceAll(model, "org/a", "org/base"), "tokens: 8", "tokens: 7", 1))
	step(true, false, "replace  org/base epoch 5\n")
	if err := os.Remove(base); err != nil {
		t.Fatal(err)
	}
	step(true, false, "remove   org/base epoch 6\n")
	step(true, false, "nothing to change\n")
	if err := d.diff(t.Context(), &out); err != nil {
		t.Error(err)
	}
}

// A model that is refused holds up no other, and a sie-config that is away is an error.
func TestApplySaysWhatFailed(t *testing.T) {
	at := remote{URL: serving(t)}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), strings.ReplaceAll(
		strings.ReplaceAll(model, "org/a", "org/lost"), "bert_flash:A", "no_such:A"))
	write(t, filepath.Join(dir, "b.yaml"), model)
	var out bytes.Buffer
	c := applyCmd{remote: at, Dir: dir}
	err := c.apply(t.Context(), &out)
	if err == nil || !strings.Contains(err.Error(), "org/lost: status 422") ||
		!strings.Contains(out.String(), "org/a") {
		t.Errorf("%v %q", err, out.String())
	}
	c.URL = "http://127.0.0.1:1"
	if err := c.apply(t.Context(), &out); err == nil {
		t.Error("no error without sie-config")
	}
	c.remote, c.Dir, c.Prune = at, t.TempDir(), true
	err = c.apply(t.Context(), &out)
	if err == nil || !strings.Contains(err.Error(), "holds no model file") {
		t.Errorf("an empty directory removes all: %v", err)
	}
	c.Dir = t.TempDir() + "/none"
	if err := c.apply(t.Context(), &out); err == nil {
		t.Error("no error without a directory")
	}
}

// status --wait ends once the gateway has the epoch and every worker the model.
func TestStatusWaits(t *testing.T) {
	asked := 0
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/v1/configs/epoch" {
			_, _ = w.Write([]byte(`{"epoch":7}`))
			return
		}
		asked++
		bundle := map[string]any{"bundle_id": "default", "acked_workers": []string{"w"}}
		_ = json.NewEncoder(w).Encode(map[string]any{"config_epoch": 4 + asked,
			"all_bundles_acked": asked > 1, "bundles": []any{bundle}})
	}))
	defer gateway.Close()
	c := statusCmd{remote: remote{URL: gateway.URL}, Gateway: gateway.URL, Models: []string{"org/a"},
		Wait: true, Timeout: time.Minute}
	var out, progress bytes.Buffer
	if err := c.status(t.Context(), &out, &progress, time.Millisecond); err != nil || asked != 3 ||
		out.String() != "org/a default: 1 workers have it, 0 do not (epoch 7 of 7)\n" {
		t.Errorf("%v %q, asked %d times", err, out.String(), asked)
	}
	text := progress.String()
	if strings.Count(text, "waiting: ") != 2 || !strings.Contains(text, "epoch 5 of 7") {
		t.Errorf("%q", text)
	}
	asked = -100
	c.Timeout = time.Millisecond
	if err := c.status(t.Context(), &out, &progress, time.Second); err == nil {
		t.Error("no error although workers have it not")
	}
}

// What waiting does not change ends the waiting: a model that sie-config has not, a refused token.
func TestStatusWaitsForNothingInVain(t *testing.T) {
	status := 404
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/v1/configs/epoch":
			_, _ = w.Write([]byte(`{"epoch":7}`))
		case "/v1/configs/export":
			_, _ = w.Write([]byte(`{"models":[{"model_id":"org/there"}]}`))
		default:
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"detail":"Invalid token"}`))
		}
	}))
	defer server.Close()
	var out bytes.Buffer
	for _, c := range []struct {
		id     string
		status int
		says   string
	}{
		{"org/a", 404, `sie-config has no model "org/a"`},
		{"org/a", 401, "status 401: Invalid token; --key or SIE_API_KEY says who asks"},
		{"org/there:fast", 404, "the gateway has not read it from sie-config yet"},
	} {
		status = c.status
		cmd := statusCmd{remote: remote{URL: server.URL}, Gateway: server.URL, Models: []string{c.id},
			Wait: true, Timeout: time.Hour}
		lasting := c.id == "org/a"
		cmd.Wait = lasting // or it would wait for what may come
		err := cmd.status(t.Context(), &out, &out, time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), c.says) || final(err) != lasting {
			t.Errorf("%s: %v, want %s", c.id, err, c.says)
		}
	}
}

// Errors say what sie-config says, and where to say something else.
func TestErrorsAreForPeople(t *testing.T) {
	texts := map[string]string{"plain": "plain", `{"x":1}`: `{"x":1}`}
	texts[`{"detail":"Missing Authorization header"}`] = "Missing Authorization header"
	texts[`{"detail":{"error":"e","message":"m"}}`] = "e: m"
	texts[`{"detail":{"error":"e","details":[{"message":"a"},{"message":"b"}]}}`] = "e: a: b"
	texts[`{"error":{"code":"c","message":"m"}}`] = "c: m"
	for body, want := range texts {
		if got := said(body); got != want {
			t.Errorf("%s says %q, want %q", body, got, want)
		}
	}
	r := remote{URL: "http://127.0.0.1:1"}
	if err := r.call(t.Context(), "GET", "/", nil, nil); err == nil ||
		!strings.Contains(err.Error(), "SIE_CONFIG_SERVICE_URL") {
		t.Errorf("%v", err)
	}
	for _, address := range []string{"", "127.0.0.1:1", "config:8080", "ftp://config", "http://"} {
		r.URL = address
		if err := r.call(t.Context(), "GET", "/", nil, nil); !errors.Is(err, errAddress) || !final(err) ||
			!strings.Contains(err.Error(), "--url") {
			t.Errorf("%q: %v", address, err)
		}
	}
	other := errors.New("x")
	got := []int{status("diff", errDiffers), status("diff", other), status("apply", other)}
	if !slices.Equal(got, []int{1, 2, 1}) {
		t.Errorf("exit statuses %d", got)
	}
	if got := some([]string{"c", "b", "a", "d", "f", "e"}); got != " [a b c d e …]" {
		t.Errorf("%q", got)
	}
}

// An answer that is longer than the longest is refused as what it is, and an error has the start of
// a long answer.
func TestLongAnswers(t *testing.T) {
	status, size, more := 0, 0, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"detail":"` + strings.Repeat("é", size/2) + `"` + more + `}`))
	}))
	defer server.Close()
	r := remote{URL: server.URL}
	for _, status = range []int{401, 403, 422} {
		size = 1 << 20
		err := r.call(t.Context(), "GET", "/x", nil, nil)
		var refused *statusError
		if !errors.As(err, &refused) || refused.status != status || len(err.Error()) > 2200 ||
			!strings.Contains(err.Error(), "é…") || !utf8.ValidString(err.Error()) {
			t.Errorf("status %d: an error of %d bytes: %.40q", status, len(fmt.Sprint(err)), err)
		}
	}
	const frame = len(`{"detail":""}`)
	status, size, more = 200, maxReply-frame-1, " "
	if err := r.call(t.Context(), "GET", "/x", nil, nil); err != nil {
		t.Error(err)
	}
	more += " "
	err := r.call(t.Context(), "GET", "/x", nil, nil)
	if !errors.Is(err, errLargeReply) || !strings.Contains(err.Error(), server.URL+"/x") {
		t.Errorf("one byte more: %v", err)
	}
}
