package model

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/weights/hub"
	"github.com/sie-engine/sie/weights/hub/hubtest"
)

// onHub returns a rig whose models and adapters may come from a hub of the test.
func onHub(t *testing.T) (r *rig, s *hubtest.Server, cache string) {
	t.Helper()
	s, cache = hubtest.New(t), t.TempDir()
	m := loadtime(t, "lo", withTokenizer(t, "lora-bert", "st-mean", nil), "bert_flash",
		"tasks: {encode: {dense: {dim: 64}}}", "{}")
	r = start(t, func(o *Options) {
		var err error
		if o.Hub, err = hub.New(hub.Options{
			CacheDir: cache, Endpoint: s.URL, Transport: &http.Transport{DisableKeepAlives: true},
		}); err != nil {
			t.Fatal(err)
		}
	}, []string{mean}, m)
	return r, s, cache
}

func wants(lora string) *Request {
	return &Request{Model: "lo", Texts: []string{"the cat"}, Options: map[string]any{"lora_id": lora}}
}

// ask repeats the request until the adapter is loaded or refused.
func (r *rig) ask(t *testing.T, lora string) (*Result, error) {
	t.Helper()
	return untilLoaded(t, func() (*Result, error) { return r.Encode(t.Context(), wants(lora)) })
}

func rank4(t *testing.T) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	dir := filepath.Join(golden.Open(t, "lora-bert").Dir, "adapters", "rank4")
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	return files
}

// A request's lora_id fetches only an adapter's files from a repository. A repository without an
// adapter is an error of the client, and is not fetched again at once.
func TestARequestsAdapterIsAllThatIsFetched(t *testing.T) {
	r, s, cache := onHub(t)
	s.Add("somebody/model", map[string][]byte{
		"config.json": []byte("{}"), "model.safetensors": make([]byte, 4<<20), "tokenizer.json": []byte("{}"),
	})
	files := rank4(t)
	files["model.safetensors"] = make([]byte, 4<<20)
	s.Add("somebody/adapter", files)
	if _, err := r.ask(t, "somebody/adapter"); err != nil {
		t.Fatal(err)
	}
	refused := func(lora string, says ...string) {
		t.Helper()
		_, err := r.ask(t, lora)
		e := errs.As(err)
		if e == nil || e.Status != 400 || e.Param != "options.lora_id" {
			t.Fatalf("%s: %v", lora, err)
		}
		for _, part := range append(says, fmt.Sprintf("%q", lora)) {
			if !strings.Contains(e.Message, part) {
				t.Errorf("%s: %q does not say %q", lora, e.Message, part)
			}
		}
	}
	refused("somebody/model", "no adapter_config.json")
	refused("somebody/nobody", "does not exist")
	s.Requests()
	for range 20 {
		refused("somebody/model", "no adapter_config.json")
		refused("somebody/nobody", "does not exist")
	}
	if asked := s.Requests(); len(asked) != 0 {
		t.Errorf("during the cooldown the hub was asked %d times", len(asked))
	}
	var bytes int64
	must(t, filepath.WalkDir(cache, func(_ string, d os.DirEntry, err error) error {
		if i, e := d.Info(); err == nil && e == nil && i.Mode().IsRegular() {
			bytes += i.Size()
		}
		return err
	}))
	if bytes > 2<<20 {
		t.Errorf("%d bytes are in the cache", bytes)
	}
}

// An adapter that a request's lora_id brought is loaded without the hub where the catalog names it,
// too, although the files that may lie beside it were not asked for.
func TestAnAdaptersOwnFilesAreEnough(t *testing.T) {
	r, s, cache := onHub(t)
	s.Add("somebody/adapter", rank4(t))
	if _, err := r.ask(t, "somebody/adapter"); err != nil {
		t.Fatal(err)
	}
	offline, err := hub.New(hub.Options{CacheDir: cache, Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(offline.Close)
	adapters := r.copy("lo").adapters
	adapters.model.host.opt.Hub = offline
	found, err := adapters.find(LoRAKey{id: "somebody/adapter", operator: true})
	if err != nil || !strings.HasPrefix(found.Dir, cache) {
		t.Errorf("%s, %v", found.Dir, err)
	}
	found.Release()
	if found, err := adapters.find(LoRAKey{id: "somebody/other", operator: true}); err == nil {
		t.Errorf("another one is in %s", found.Dir)
	}
}

// A request's lora_id never names a directory, even if one of that name exists; one in the catalog
// may.
func TestARequestNamesNoDirectory(t *testing.T) {
	r, _, _ := onHub(t)
	if err := r.Preload(t.Context(), "lo"); err != nil {
		t.Fatal(err)
	}
	here := t.TempDir()
	for name, data := range rank4(t) {
		path := filepath.Join(here, "home", "secret", name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, data, 0o600))
	}
	t.Chdir(here)
	_, err := r.ask(t, "home/secret")
	if e := errs.As(err); e == nil || e.Status != 400 || e.Param != "options.lora_id" {
		t.Errorf("%v", err)
	}
	found, err := r.copy("lo").adapters.find(LoRAKey{id: "home/secret", operator: true})
	if err != nil || found.Source != hub.SourceLocal {
		t.Errorf("of the operator: %+v, %v", found, err)
	}
}

// Fetches of adapters share the limit with those of models; an adapter on the disk waits for no
// fetch.
func TestAdaptersShareTheFetches(t *testing.T) {
	r, s, _ := onHub(t)
	s.Add("somebody/adapter", rank4(t))
	if _, err := r.ask(t, "somebody/adapter"); err != nil {
		t.Fatal(err)
	}
	s.Add("somebody/other", rank4(t))
	open, taken := make(chan struct{}), make(chan struct{})
	pass := sync.OnceFunc(func() { close(open) })
	defer pass()
	done := make(chan error, 4)
	for range 4 {
		go func() {
			done <- r.models.Fetch(context.Background(),
				func(context.Context) error { taken <- struct{}{}; <-open; return nil })
		}()
		<-taken
	}
	asked := make(chan struct{}, 1)
	s.Fault(func(http.ResponseWriter, *http.Request, bool) bool {
		select {
		case asked <- struct{}{}:
		default:
		}
		return false
	})
	_, err := r.Encode(t.Context(), wants("somebody/other"))
	if e := errs.As(err); e == nil || e.Code != errs.LoRALoading {
		t.Fatal(err)
	}
	stacks := make([]byte, 4<<20)
	for waits := false; !waits; { // until the load waits for its turn
		select {
		case <-asked:
			t.Fatal("the hub was asked beside four fetches")
		default:
			waits = strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "registry.acquireToken")
		}
	}
	l := r.copy("lo").adapters
	if _, err := l.find(LoRAKey{id: "somebody/adapter"}); err != nil {
		t.Errorf("what is on the disk: %v", err)
	}
	pass()
	for range 4 {
		must(t, <-done)
	}
	<-asked
	if _, err := r.ask(t, "somebody/other"); err != nil {
		t.Error(err)
	}
}

// A bounded number of failures is remembered, each for a cooldown that doubles; an out-of-memory
// failure is returned once and forgotten.
func TestFailuresOfAdapters(t *testing.T) {
	s, _, m := adapterSet(t)
	key := LoRAKey{id: "org/a"}
	remember := func(k LoRAKey, err error) *registry.Failure {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rememberLocked(k, err)
		return s.failed[k]
	}
	refusal := func(k LoRAKey) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.refusalLocked(k, k.id, m)
	}
	if err := refusal(key); err != nil {
		t.Error(err)
	}
	bad := &hub.Error{Class: hub.ClassNotFound, Message: "gone"}
	var before time.Duration
	for i := range 4 {
		f := remember(key, bad)
		wait := time.Until(f.Until)
		if i > 0 && (wait < before*3/2 || wait > before*5/2) {
			t.Errorf("failure %d: %s after %s", i, wait, before)
		}
		before = wait
	}
	if e := errs.As(refusal(key)); e == nil || e.Status != 400 || !strings.Contains(e.Message, "gone") {
		t.Errorf("of a request: %v", e)
	}
	own := LoRAKey{id: "org/a", operator: true}
	remember(own, bad)
	if e := errs.As(refusal(own)); e == nil || e.Status != 500 {
		t.Errorf("of the operator: %v", e)
	}
	passing := LoRAKey{id: "org/b"}
	remember(passing, errors.New("the line is cut"))
	if e := errs.As(refusal(passing)); e == nil || e.Status != 500 {
		t.Errorf("one that may pass: %v", e)
	}
	s.failed[passing].Until = time.Now()
	if err := refusal(passing); err != nil {
		t.Errorf("after its cooldown: %v", err)
	}
	remember(passing, fmt.Errorf("packed: %w", engine.ErrNoMemory))
	if e := errs.As(refusal(passing)); e == nil || e.Code != errs.ResourceExhausted {
		t.Errorf("%v", e)
	}
	if err := refusal(passing); err != nil {
		t.Errorf("told twice: %v", err)
	}
	for i := range 2 * maxFailedAdapters {
		remember(LoRAKey{id: fmt.Sprint("org/", i)}, bad)
	}
	if n := len(s.failed); n != maxFailedAdapters {
		t.Errorf("%d failures are remembered, want %d", n, maxFailedAdapters)
	}
	if refusal(key) == nil {
		t.Error("the one with the longest cooldown was forgotten")
	}
}
