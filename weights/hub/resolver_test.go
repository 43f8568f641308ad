package hub

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/weights/hub/hubtest"
)

const modelID = "sie-test/tiny-bert"

// modelFiles returns the files of a small sentence-transformers repository, including files that
// must not be downloaded.
func modelFiles() map[string][]byte {
	content := make([]byte, 100_000)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(content)
	return map[string][]byte{
		"config.json":    []byte(`{"model_type":"bert"}`),
		"tokenizer.json": []byte(`{"version":"1.0"}`),
		"modules.json": []byte(
			`[{"path":"","type":"sentence_transformers.models.Transformer"},{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]`),
		"1_Pooling/config.json": []byte(`{}`),
		"model.safetensors":     content,
		"empty.txt":             {},
		"pytorch_model.bin":     content[:1000],
		"onnx/model.onnx":       content[:1000],
		"onnx/config.json":      []byte(`{}`),
		"README.md":             []byte("# tiny"),
		".gitattributes":        []byte("*.bin lfs"),
	}
}

var wantedFiles = []string{
	"1_Pooling/config.json", "config.json", "empty.txt", "model.safetensors", "modules.json",
	"tokenizer.json",
}

// harness is a hub, a cache directory and resolvers that do not wait between tries.
type harness struct {
	*testing.T
	hub   *hubtest.Server
	model *hubtest.Model
	cache string

	mu    sync.Mutex
	waits []time.Duration
}

func newHarness(t *testing.T) *harness {
	server := hubtest.New(t)
	return &harness{
		T:     t,
		hub:   server,
		model: server.Add(modelID, modelFiles()),
		cache: filepath.Join(t.TempDir(), "cache"),
	}
}

func (h *harness) resolver(change ...func(*Options)) *Resolver {
	h.Helper()
	o := Options{CacheDir: h.cache, Endpoint: h.hub.URL, Token: "hf_secret", StallTimeout: 10 * time.Second,
		Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	r, err := New(o)
	if err != nil {
		h.Fatal(err)
	}
	quick := func(ctx context.Context, d time.Duration) error {
		h.mu.Lock()
		h.waits = append(h.waits, d)
		h.mu.Unlock()
		return context.Cause(ctx)
	}
	for _, s := range r.sources {
		switch s := s.(type) {
		case *hubSource:
			s.retry.sleep = quick
		case *bucketSource:
			s.retry.sleep = quick
		}
	}
	if r.uploads != nil {
		r.uploads.retry.sleep = quick
	}
	h.Cleanup(r.Close)
	return r
}

func (h *harness) resolve(change ...func(*Options)) (Resolved, error) {
	h.Helper()
	return h.resolver(change...).Resolve(context.Background(), modelID, "")
}

func (h *harness) repo() repoCache {
	return repoCache{filepath.Join(h.cache, "models--sie-test--tiny-bert")}
}

func (h *harness) blobOf(name string) string {
	h.Helper()
	l := h.listing()
	i := slices.IndexFunc(l.files, func(f remoteFile) bool { return f.name == name })
	return h.repo().blob(l.files[i].hash)
}

func (h *harness) listing() *listing {
	h.Helper()
	ref, err := parseRef(modelID, "")
	if err != nil {
		h.Fatal(err)
	}
	r := h.resolver()
	l, err := r.sources[len(r.sources)-1].(*hubSource).describeAll(context.Background(), ref,
		retrier{attempts: 1, sleep: sleep})
	if err != nil {
		h.Fatal(err)
	}
	h.hub.Requests()
	return l
}

// wantWhole checks that the directory holds exactly the wanted files with the right content.
func (h *harness) wantWhole(dir string) {
	h.Helper()
	var got []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			got = append(got, name)
			data, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(data, h.model.Files[name]) {
				h.Errorf("%s: %d bytes, %v; want the %d of the hub",
					name, len(data), err, len(h.model.Files[name]))
			}
		}
		return err
	})
	if slices.Sort(got); err != nil || !slices.Equal(got, wantedFiles) {
		h.Errorf("files %q, %v; want %q", got, err, wantedFiles)
	}
}

// wantInvisible checks that no part of the model can be found.
func (h *harness) wantInvisible() {
	h.Helper()
	for _, sub := range []string{"snapshots", "refs"} {
		if entries, _ := os.ReadDir(filepath.Join(h.repo().dir, sub)); len(entries) > 0 {
			h.Errorf("%s holds %v", sub, entries)
		}
	}
	if _, err := h.resolve(func(o *Options) { o.Offline = true }); ClassOf(err) != ClassNotFound {
		h.Errorf("offline: %v, want NOT_FOUND", err)
	}
}

func wantClass(t *testing.T, err error, class Class, texts ...string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Class != class {
		t.Errorf("error is %v, want class %s", err, class)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("message %q does not say %q", err, text)
		}
	}
	if strings.Contains(err.Error(), "hf_secret") || strings.Contains(err.Error(), "signature") {
		t.Errorf("message %q gives a secret away", err)
	}
}

func TestDownload(t *testing.T) {
	h := newHarness(t)
	var last Progress
	var calls int
	found, err := h.resolve(func(o *Options) { o.Progress = func(p Progress) { last = p; calls++ } })
	if err != nil {
		t.Fatal(err)
	}
	if found.Commit != h.model.Commit || found.Source != SourceHub ||
		found.Dir != h.repo().snapshot(h.model.Commit) {
		t.Errorf("found %+v", found)
	}
	h.wantWhole(found.Dir)
	if last.Stage != StageDone || last.Bytes != last.Total || last.Files != last.Of ||
		last.Of == 0 || calls < 2 {
		t.Errorf("last of %d progress calls: %+v", calls, last)
	}
	storage := 0
	for _, r := range h.hub.Requests() {
		if r.Storage {
			storage++
		}
		if r.Storage != (r.Authorization == "") {
			t.Errorf("the token must go to the hub and nowhere else: %+v", r)
		}
		if strings.Contains(r.Path, ".md") || strings.Contains(r.Path, "onnx") ||
			strings.Contains(r.Path, ".bin") {
			t.Errorf("asked for %s", r.Path)
		}
	}
	if storage != 1 {
		t.Errorf("%d requests to the storage, want 1", storage)
	}

	// The layout is that of the Python tools.
	if ref, _ := os.ReadFile(h.repo().ref("main")); string(ref) != h.model.Commit {
		t.Errorf("refs/main holds %q", ref)
	}
	link, err := os.Readlink(filepath.Join(found.Dir, "1_Pooling", "config.json"))
	if err != nil || !strings.HasPrefix(link, "../../../blobs/") {
		t.Errorf("link %q, %v", link, err)
	}
	if partial, _ := filepath.Glob(h.repo().blob("*.incomplete")); len(partial) > 0 {
		t.Errorf("left %q", partial)
	}

	// From now on nothing asks the hub: neither a branch, nor a commit, nor an offline resolver.
	for _, revision := range []string{"", "main", h.model.Commit, strings.ToUpper(h.model.Commit)} {
		again, err := h.resolver().Resolve(context.Background(), modelID, revision)
		if err != nil || again.Dir != found.Dir || again.Source != SourceCache {
			t.Errorf("revision %q again: %+v, %v", revision, again, err)
		}
	}
	if again, err := h.resolve(func(o *Options) { o.Offline = true }); err != nil || again.Dir != found.Dir {
		t.Errorf("offline: %+v, %v", again, err)
	}
	if r := h.hub.Requests(); len(r) > 0 {
		t.Errorf("a cached model asked %+v", r)
	}
}

func TestRevisions(t *testing.T) {
	h := newHarness(t)
	h.model.Branch = "refs/pr/7"
	found, err := h.resolver().Resolve(context.Background(), modelID, "refs/pr/7")
	if err != nil {
		t.Fatal(err)
	}
	h.wantWhole(found.Dir)
	if ref, _ := os.ReadFile(h.repo().ref("refs/pr/7")); string(ref) != h.model.Commit {
		t.Errorf("the ref holds %q", ref)
	}
	if _, err := h.resolver().Resolve(context.Background(), modelID, "v9"); err != nil {
		wantClass(t, err, ClassNotFound, `no revision "v9"`)
	} else {
		t.Error("an unknown revision resolved")
	}
	// A new commit of a branch is downloaded when the branch is not cached. Unchanged files are not
	// downloaded again.
	files := modelFiles()
	files["config.json"] = []byte(`{"model_type":"bert","new":true}`)
	h.model = h.hub.Add(modelID, files)
	h.hub.Requests()
	if found, err = h.resolve(); err != nil || found.Commit != h.model.Commit {
		t.Fatalf("%+v, %v", found, err)
	}
	h.wantWhole(found.Dir)
	for _, r := range h.hub.Requests() {
		if r.Storage {
			t.Errorf("the unchanged weights were fetched again: %+v", r)
		}
	}
}

func TestConcurrentCallersShareOneDownload(t *testing.T) {
	h := newHarness(t)
	var waited sync.Map
	h.hub.Fault(func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		if storage { // the winner holds the lock until the others wait for it
			for range 200 {
				n := 0
				waited.Range(func(any, any) bool { n++; return true })
				if n == 7 {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		return false
	})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			found, err := h.resolve(func(o *Options) {
				o.Progress = func(p Progress) {
					if p.Stage == StageWaiting {
						waited.Store(i, true)
					}
				}
			})
			if err != nil || found.Commit != h.model.Commit {
				t.Errorf("caller %d: %+v, %v", i, found, err)
			}
		})
	}
	group.Wait()
	asked := map[string]int{}
	for _, r := range h.hub.Requests() {
		asked[r.Path]++
	}
	for path, n := range asked {
		if n != 1 {
			t.Errorf("%s was asked for %d times", path, n)
		}
	}
	if len(asked) < len(wantedFiles) {
		t.Errorf("only %d paths were asked for", len(asked))
	}
}

// TestNothingVisibleBeforeAllIsVerified looks at the cache from inside every request, and after
// each failure.
func TestNothingVisibleBeforeAllIsVerified(t *testing.T) {
	for _, broken := range wantedFiles {
		if broken == "empty.txt" { // has no bytes to download
			continue
		}
		t.Run(broken, func(t *testing.T) {
			h := newHarness(t)
			h.hub.Fault(func(w http.ResponseWriter, r *http.Request, storage bool) bool {
				if entries, _ := os.ReadDir(filepath.Join(h.repo().dir, "snapshots")); len(entries) > 0 {
					t.Errorf("at %s the cache shows %v", r.URL.Path, entries)
				}
				if strings.HasSuffix(r.URL.Path, "/resolve/"+h.model.Commit+"/"+broken) {
					hubtest.Refuse(w, http.StatusNotFound, "EntryNotFound", "gone")
					return true
				}
				return false
			})
			_, err := h.resolve()
			wantClass(t, err, ClassNotFound, "file "+broken)
			h.wantInvisible()
			h.hub.Fault(nil)
			found, err := h.resolve()
			if err != nil {
				t.Fatal(err)
			}
			h.wantWhole(found.Dir)
		})
	}
}

// TestSnapshotOfAnotherTool completes a partial download of a Python program and leaves a complete
// one unchanged.
func TestSnapshotOfAnotherTool(t *testing.T) {
	place := func(h *harness, names ...string) {
		dir := h.repo().snapshot(h.model.Commit)
		for _, name := range names {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, h.model.Files[name], 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.repo().write(h.repo().ref("main"), []byte(h.model.Commit+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	whole := []string{
		"config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json", "model.safetensors",
	}
	h := newHarness(t)
	place(h, whole...)
	if found, err := h.resolve(); err != nil || found.Source != SourceCache {
		t.Errorf("whole snapshot: %+v, %v", found, err)
	}
	for i, missing := range whole {
		if missing == "modules.json" { // its absence cannot be seen without a manifest
			continue
		}
		t.Run(missing, func(t *testing.T) {
			h := newHarness(t)
			place(h, slices.Delete(slices.Clone(whole), i, i+1)...)
			_, err := h.resolve(func(o *Options) { o.Offline = true })
			if missing == "config.json" && err == nil { // modules.json is accepted in its place
				return
			}
			wantClass(t, err, ClassNotFound, "the cached snapshot lacks", "downloads are off")
			found, err := h.resolve()
			if err != nil || found.Source != SourceHub {
				t.Fatalf("%+v, %v", found, err)
			}
			h.wantWhole(found.Dir)
		})
	}
}

// TestSnapshotOfARouter: the weights of a Router's modules are in their folders. A snapshot that a
// Python tool made of one serves without the hub.
func TestSnapshotOfARouter(t *testing.T) {
	content := map[string]string{
		"modules.json": `[{"path":"","type":"sentence_transformers.base.modules.router.Router"}]`,
		"router_config.json": `{"types":{"query_0_SparseStaticEmbedding":"x.SparseStaticEmbedding",` +
			`"document_0_Transformer":"x.Transformer","document_1_SpladePooling":"x.SpladePooling"}}`,
		"document_0_Transformer/config.json":              `{}`,
		"document_0_Transformer/tokenizer.json":           `{}`,
		"document_0_Transformer/model.safetensors":        "weights",
		"document_1_SpladePooling/config.json":            `{}`,
		"query_0_SparseStaticEmbedding/config.json":       `{}`,
		"query_0_SparseStaticEmbedding/model.safetensors": "weights",
	}
	for missing, says := range map[string]string{
		"": "",
		"document_0_Transformer/model.safetensors":        "the weights of document_0_Transformer",
		"query_0_SparseStaticEmbedding/model.safetensors": "the weights of query_0_SparseStaticEmbedding",
		"document_0_Transformer/tokenizer.json":           "lacks the tokenizer",
	} {
		h := newHarness(t)
		for name, text := range content {
			if name == missing {
				continue
			}
			if err := h.repo().write(filepath.Join(h.repo().snapshot(h.model.Commit), name),
				[]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.repo().write(h.repo().ref("main"), []byte(h.model.Commit)); err != nil {
			t.Fatal(err)
		}
		found, err := h.resolve(func(o *Options) { o.Offline = true })
		if says != "" {
			wantClass(t, err, ClassNotFound, says)
		} else if err != nil || found.Source != SourceCache {
			t.Errorf("%+v, %v", found, err)
		}
	}
}

// TestUnverifiedSnapshot: a program that loads the bare transformer leaves no modules.json. The hub
// is asked once whether the file exists; without an answer the snapshot is used.
func TestUnverifiedSnapshot(t *testing.T) {
	bare := []string{"config.json", "tokenizer.json", "model.safetensors"}
	place := func(h *harness) string {
		dir := h.repo().snapshot(h.model.Commit)
		for _, name := range bare {
			if err := errors.Join(os.MkdirAll(dir, 0o755),
				os.WriteFile(filepath.Join(dir, name), h.model.Files[name], 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.repo().write(h.repo().ref("main"), []byte(h.model.Commit)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	t.Run("the hub has more", func(t *testing.T) {
		h := newHarness(t)
		dir := place(h)
		found, err := h.resolve()
		if err != nil || found.Source != SourceHub || found.Dir != dir {
			t.Fatalf("%+v, %v", found, err)
		}
		h.wantWhole(dir)
		for _, r := range h.hub.Requests() {
			if r.Storage {
				t.Error("the weights were fetched again")
			}
		}
	})
	t.Run("the hub has no more", func(t *testing.T) {
		h := newHarness(t)
		files := map[string][]byte{}
		for _, name := range bare {
			files[name] = modelFiles()[name]
		}
		h.model = h.hub.Add(modelID, files)
		place(h)
		for i := range 2 {
			if found, err := h.resolve(); err != nil || found.Source != SourceCache {
				t.Errorf("%+v, %v", found, err)
			}
			if r := h.hub.Requests(); len(r) != 1-i {
				t.Errorf("start %d asked %+v", i, r)
			}
		}
	})
	t.Run("a Python tool knows there is none", func(t *testing.T) {
		h := newHarness(t)
		place(h)
		if err := h.repo().write(filepath.Join(h.repo().dir, ".no_exist", h.model.Commit, "modules.json"),
			nil); err != nil {
			t.Fatal(err)
		}
		if found, err := h.resolve(); err != nil || found.Source != SourceCache || len(h.hub.Requests()) > 0 {
			t.Errorf("%+v, %v", found, err)
		}
	})
	for name, fault := range map[string]func(w http.ResponseWriter, r *http.Request, storage bool) bool{
		"the hub fails": func(w http.ResponseWriter, _ *http.Request, _ bool) bool {
			w.WriteHeader(500)
			return true
		},
		"the hub refuses": func(w http.ResponseWriter, _ *http.Request, _ bool) bool {
			hubtest.Refuse(w, 401, "GatedRepo", "")
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			dir := place(h)
			h.hub.Fault(fault)
			if found, err := h.resolve(); err != nil || found.Dir != dir || len(h.waits) > 0 {
				t.Errorf("%+v, %v, waits %v", found, err, h.waits)
			}
		})
	}
	t.Run("offline", func(t *testing.T) {
		h := newHarness(t)
		place(h)
		if _, err := h.resolve(func(o *Options) { o.Offline = true }); err != nil ||
			len(h.hub.Requests()) > 0 {
			t.Errorf("%v", err)
		}
	})
	t.Run("the cache cannot be locked", func(t *testing.T) {
		h := newHarness(t)
		dir := place(h)
		if err := os.WriteFile(filepath.Join(h.cache, ".locks"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if found, err := h.resolve(); err != nil || found.Dir != dir {
			t.Errorf("%+v, %v", found, err)
		}
	})
}

func TestShardsOfAnotherTool(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", "{}")
	write("vocab.txt", "a")
	write("model.safetensors.index.json",
		`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`)
	write("model-00001-of-00002.safetensors", "x")
	if got := missingEssential(dir); !strings.Contains(got, "model-00002-of-00002.safetensors") {
		t.Errorf("missing %q", got)
	}
	write("model-00002-of-00002.safetensors", "x")
	if got := missingEssential(dir); got != "" {
		t.Errorf("missing %q", got)
	}
}

// TestDamagedCache: a snapshot with a missing file, or one of the wrong size, is completed from the
// hub.
func TestDamagedCache(t *testing.T) {
	h := newHarness(t)
	found, err := h.resolve()
	if err != nil {
		t.Fatal(err)
	}
	blob, err := filepath.EvalSymlinks(filepath.Join(found.Dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range []func() error{
		func() error { return os.Remove(blob) },
		func() error { return os.Truncate(blob, 3) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := h.resolve(func(o *Options) { o.Offline = true }); err == nil {
			t.Error("a snapshot with a damaged file resolved")
		}
		if found, err = h.resolve(); err != nil {
			t.Fatal(err)
		}
		h.wantWhole(found.Dir)
	}
	// A ref that holds nonsense is not followed.
	if err := os.WriteFile(h.repo().ref("main"), []byte("../../../etc"), 0o644); err != nil {
		t.Fatal(err)
	}
	if found, err = h.resolve(); err != nil || found.Commit != h.model.Commit {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestLocalDirectories(t *testing.T) {
	h := newHarness(t)
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.MkdirAll(filepath.Join(dir, modelID), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{dir, "./" + modelID, modelID, "."} {
		found, err := h.resolver().Resolve(context.Background(), id, "")
		if err != nil || found != (Resolved{Dir: id, Source: SourceLocal}) {
			t.Errorf("%q: %+v, %v", id, found, err)
		}
	}
	t.Setenv("HOME", dir)
	if found, err := h.resolver().Resolve(context.Background(), "~/"+modelID, ""); err != nil ||
		found.Dir != filepath.Join(dir, modelID) {
		t.Errorf("home: %+v, %v", found, err)
	}
	for _, id := range []string{"./absent", "../absent", "/absent/model", "~/absent"} {
		_, err := h.resolver().Resolve(context.Background(), id, "")
		wantClass(t, err, ClassNotFound, "not a directory")
	}
	for _, id := range []string{"", "a b", "a/b/c", "a--b/c", "org/..", "org/name.git", "-x/y", "org/",
		"org/na\x00me", "org/na\nme", strings.Repeat("x", 300)} {
		_, err := h.resolver().Resolve(context.Background(), id, "")
		if class := ClassOf(err); err == nil || class != ClassConfig {
			t.Errorf("id %q: %v", id, err)
		}
	}
	for _, revision := range []string{
		"../main", "a/../b", "a//b", "/main", "-x", "a b", "a\x00", ".hidden", strings.Repeat("x", 300),
	} {
		_, err := h.resolver().Resolve(context.Background(), "org/name", revision)
		wantClass(t, err, ClassConfig, "revision")
	}
	if r := h.hub.Requests(); len(r) > 0 {
		t.Errorf("asked %+v", r)
	}
}

func TestOffline(t *testing.T) {
	h := newHarness(t)
	off := func(o *Options) { o.Offline = true }
	_, err := h.resolve(off)
	wantClass(t, err, ClassNotFound, `no revision "main"`, "downloads are off", "HF_HUB_OFFLINE")
	if entries, _ := os.ReadDir(h.cache); len(entries) > 0 {
		t.Errorf("an offline lookup wrote %v", entries)
	}
	// A snapshot that was downloaded by commit has no ref. If it is the only one, an id without a
	// revision means it.
	if _, err := h.resolver().Resolve(context.Background(), modelID, h.model.Commit); err != nil {
		t.Fatal(err)
	}
	if found, err := h.resolve(off); err != nil || found.Commit != h.model.Commit {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := h.resolver(off).Resolve(context.Background(), modelID, "main"); err == nil {
		t.Error("a named branch resolved without its ref")
	}
	h.hub.Requests()
	if err := os.Mkdir(h.repo().snapshot(strings.Repeat("0", 40)), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := h.resolve(off); err == nil {
		t.Error("an unrevised id resolved to one of two snapshots")
	}
	if r := h.hub.Requests(); len(r) > 0 {
		t.Errorf("asked %+v", r)
	}
}

// TestFind looks on this machine only. It makes no request to the hub, and its result is in use.
func TestFind(t *testing.T) {
	h := newHarness(t)
	r := h.resolver()
	if found, ok, err := r.Find(t.Context(), modelID, ""); ok || err != nil || found.Dir != "" {
		t.Errorf("an empty cache gives %+v, %v, %v", found, ok, err)
	}
	if _, err := os.Stat(filepath.Join(h.cache, ".locks")); err == nil {
		t.Error("a look left locks in an empty cache")
	}
	whole, err := r.Resolve(t.Context(), modelID, "")
	if err != nil {
		t.Fatal(err)
	}
	whole.Release()
	h.hub.Requests()
	found, ok, err := r.Find(t.Context(), modelID, "")
	if !ok || err != nil || found.Dir != whole.Dir || found.Source != SourceCache {
		t.Fatalf("%+v, %v, %v; want %s", found, ok, err, whole.Dir)
	}
	d := disk{dir: h.cache, locks: r.locks, log: slog.New(slog.DiscardHandler)}
	if removed, err := d.remove("models--sie-test--tiny-bert"); removed || err != nil {
		t.Errorf("removed while in use: %v, %v", removed, err)
	}
	found.Release()
	if got := h.hub.Requests(); len(got) != 0 {
		t.Errorf("asked the hub: %v", got)
	}
	if found, ok, err := r.Find(t.Context(), found.Dir, ""); !ok || err != nil ||
		found.Source != SourceLocal {
		t.Errorf("a directory: %+v, %v, %v", found, ok, err)
	}
	for _, id := range []string{"/nowhere", "a b"} {
		if _, ok, err := r.Find(t.Context(), id, ""); ok || err == nil || !strings.Contains(err.Error(), id) {
			t.Errorf("%q: %v, %v", id, ok, err)
		}
	}
}
