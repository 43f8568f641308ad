package hub

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/hub/hubtest"
)

// previewed returns the content of a preview by file.
func previewed(h *harness, r *Resolver, id string) (files map[string]string, remove func()) {
	h.Helper()
	dir, drop, err := r.Preview(h.Context(), id, "", "config.json", "modules.json", "absent.json")
	if err != nil {
		h.Fatal(err)
	}
	files = map[string]string{}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(content)
		return err
	})
	if err != nil {
		h.Fatal(err)
	}
	return files, func() {
		drop()
		if _, err := os.Stat(dir); os.IsNotExist(err) != strings.Contains(dir, "sie-sketch-") {
			h.Errorf("%s after its removal: %v", dir, err)
		}
	}
}

// A preview has the named files and the names of the others, and makes no request for the others. A
// later download reuses the files.
func TestPreview(t *testing.T) {
	h := newHarness(t)
	r := h.resolver()
	files, remove := previewed(h, r, modelID)
	for _, name := range wantedFiles {
		want := ""
		if name == "config.json" || name == "modules.json" {
			want = string(modelFiles()[name])
		}
		if got, ok := files[name]; !ok || got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if len(files) != len(wantedFiles) {
		t.Errorf("%v", files)
	}
	remove()
	for _, q := range h.hub.Requests() {
		if q.Storage || strings.Contains(q.Path, "tokenizer") {
			t.Errorf("asked for %s", q.Path)
		}
	}
	if _, err := h.resolver(func(o *Options) { o.Offline = true }).Resolve(t.Context(), modelID,
		""); err == nil {
		t.Error("a sketch counts as a model")
	}
	if _, err := r.Resolve(t.Context(), modelID, ""); err != nil {
		t.Fatal(err)
	}
	for _, q := range h.hub.Requests() {
		if strings.HasSuffix(q.Path, "/config.json") && !strings.Contains(q.Path, "1_Pooling") {
			t.Errorf("asked for %s again", q.Path)
		}
	}
	files, remove = previewed(h, r, modelID) // the snapshot itself
	if len(files["model.safetensors"]) != 100_000 || len(h.hub.Requests()) > 0 {
		t.Error("a cached model is not shown as it is")
	}
	remove()
	if _, err := os.Stat(filepath.Join(h.cache, "models--sie-test--tiny-bert")); err != nil {
		t.Errorf("removing the sketch removed the model: %v", err)
	}
}

// Preview refuses everything that Resolve refuses, and leaves nothing behind.
func TestPreviewRefused(t *testing.T) {
	h := newHarness(t)
	t.Setenv("TMPDIR", t.TempDir())
	for id, c := range map[string]struct {
		change func(*Options)
		fault  func(http.ResponseWriter, *http.Request, bool) bool
		class  Class
	}{
		"sie-test/none": {nil, nil, ClassNotFound},
		"./none":        {nil, nil, ClassNotFound},
		"no id":         {nil, nil, ClassConfig},
		modelID:         {func(o *Options) { o.Offline = true }, nil, ClassNotFound},
		modelID + "-away": {nil,
			func(w http.ResponseWriter, _ *http.Request, _ bool) bool { w.WriteHeader(503); return true },
			ClassNetwork},
	} {
		h.hub.Fault(c.fault)
		r := h.resolver()
		if c.change != nil {
			r = h.resolver(c.change)
		}
		dir, remove, err := r.Preview(t.Context(), id, "", "config.json")
		if ClassOf(err) != c.class || dir != "" || remove != nil {
			t.Errorf("%s: %q, %v of class %s, want %s", id, dir, err, ClassOf(err), c.class)
		}
	}
	// the list arrives, the file does not
	h.hub.Fault(func(w http.ResponseWriter, r *http.Request, _ bool) bool {
		if strings.HasSuffix(r.URL.Path, "config.json") {
			hubtest.Refuse(w, http.StatusForbidden, "", "no")
			return true
		}
		return false
	})
	if _, _, err := h.resolver().Preview(t.Context(), modelID, "", "config.json"); err == nil {
		t.Error("a sketch without its file")
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A preview comes from a bucket without a hub, and from the hub when the bucket does not have the
// model.
func TestPreviewFromABucket(t *testing.T) {
	c := newCluster(t)
	c.fill()
	c.machine()
	files, remove := previewed(c.harness, c.resolver(c.shared, noHub), modelID)
	if files["config.json"] != string(modelFiles()["config.json"]) || files["model.safetensors"] != "" ||
		len(files) != len(wantedFiles) {
		t.Errorf("%v", files)
	}
	remove()
	if asked := c.hub.Requests(); len(asked) > 0 {
		t.Errorf("the hub was asked: %v", asked)
	}
	c.hub.Add("sie-test/other", modelFiles())
	if _, _, err := c.resolver(c.shared, noHub).Preview(t.Context(), "sie-test/other",
		""); ClassOf(err) != ClassNotFound {
		t.Errorf("in no bucket, without a hub: %v", err)
	}
	files, remove = previewed(c.harness, c.resolver(c.shared), "sie-test/other")
	if files["config.json"] == "" {
		t.Errorf("%v", files)
	}
	remove()
}

// A program that loads an adapter alone, as PEFT does, leaves two files of its repository. They do
// not pass for all of it: what stands beside them decides how the adapter's vectors are made.
func TestPreviewOfAnAdapterThatAnotherToolFetched(t *testing.T) {
	const id = "sie-test/adapter"
	h := newHarness(t)
	files := map[string][]byte{
		"adapter_config.json": []byte(`{}`), "adapter_model.safetensors": []byte("tensors"),
		"modules.json": []byte(`[]`), "1_Pooling/config.json": []byte(`{}`), "tokenizer.json": []byte(`{}`),
	}
	model := h.hub.Add(id, files)
	repo := repoCache{filepath.Join(h.cache, "models--sie-test--adapter")}
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		if err := repo.write(filepath.Join(repo.snapshot(model.Commit), name), files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := repo.write(repo.ref("main"), []byte(model.Commit)); err != nil {
		t.Fatal(err)
	}
	r := h.resolver()
	shown, remove := previewed(h, r, id)
	if shown["modules.json"] != "[]" || len(shown) != len(files) {
		t.Errorf("the preview has %q", shown)
	}
	remove()
	offline := h.resolver(func(o *Options) { o.Offline = true })
	shown, remove = previewed(h, offline, id) // what is there is all that can be seen
	if len(shown) != 2 {
		t.Errorf("with downloads off the preview has %q", shown)
	}
	remove()
	asked := Adapter{ID: id, MaxBytes: adapterBytes,
		Beside: []string{"config.json", "modules.json", "absent.json"}}
	if _, ok, err := offline.FindAdapter(t.Context(), asked); ok || err != nil {
		t.Errorf("what stands beside the adapter counts as known: %v", err)
	}
	alone, ok, err := offline.FindAdapter(t.Context(), Adapter{ID: id, MaxBytes: adapterBytes})
	if !ok || err != nil {
		t.Errorf("the adapter alone is not found: %v", err)
	}
	alone.Release()
	found, err := r.ResolveAdapter(t.Context(), asked)
	if err != nil || !exists(filepath.Join(found.Dir, "modules.json")) {
		t.Errorf("%+v, %v: not what stands beside the adapter", found, err)
	}
	found.Release()
	if shown, remove = previewed(h, offline, id); shown["modules.json"] != "[]" {
		t.Errorf("then with downloads off the preview has %q", shown)
	}
	remove()
	found, err = r.Resolve(t.Context(), id, "")
	if err != nil || !exists(filepath.Join(found.Dir, "1_Pooling/config.json")) {
		t.Errorf("%+v, %v: not the whole repository", found, err)
	}
	found.Release()
	h.hub.Requests()
	if shown, remove = previewed(h, r, id); len(shown) != len(files) || len(h.hub.Requests()) > 0 {
		t.Errorf("once whole, it has %q, and the hub was asked", shown)
	}
	remove()
}

// With downloads off the only snapshot of a repository is shown, whatever revision it was
// downloaded as: Resolve and FindAdapter find it, too.
func TestPreviewOfTheOnlySnapshot(t *testing.T) {
	const id = "sie-test/adapter"
	files := map[string][]byte{
		"adapter_config.json": []byte(`{}`), "adapter_model.safetensors": []byte("tensors"),
		"config.json": []byte(`{}`), "modules.json": []byte(`[]`), "model.safetensors": []byte("weights"),
		"tokenizer.json": []byte(`{}`),
	}
	besides := []string{"config.json", "modules.json", "absent.json"}
	for what, fill := range map[string]func(h *harness, commit string) (shown int, err error){
		"a model": func(h *harness, commit string) (int, error) {
			found, err := h.resolver().Resolve(t.Context(), id, commit)
			found.Release()
			return len(files), err
		},
		"an adapter": func(h *harness, commit string) (int, error) {
			found, err := h.resolver().ResolveAdapter(t.Context(),
				Adapter{ID: id, Revision: commit, MaxBytes: adapterBytes, Beside: besides})
			found.Release()
			return 4, err
		},
		"an adapter by PEFT": func(h *harness, commit string) (shown int, err error) {
			repo := repoCache{filepath.Join(h.cache, "models--sie-test--adapter")}
			for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
				err = errors.Join(err, repo.write(filepath.Join(repo.snapshot(commit), name), files[name]))
			}
			return 2, err
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHarness(t)
			want, err := fill(h, h.hub.Add(id, files).Commit)
			if err != nil {
				t.Fatal(err)
			}
			shown, remove := previewed(h, h.resolver(func(o *Options) { o.Offline = true }), id)
			if len(shown) != want || shown["adapter_config.json"] != "{}" {
				t.Errorf("the preview has %q, want %d files", shown, want)
			}
			remove()
			if _, _, err := h.resolver(func(o *Options) { o.Offline = true }).Preview(t.Context(), id,
				"v1"); ClassOf(err) != ClassNotFound {
				t.Errorf("another revision: %v", err)
			}
		})
	}
}

// Of a snapshot that may lack files its own commit is asked for, once, as Resolve asks: not the
// branch, which may have moved on, and not for long.
func TestPreviewOfASnapshotInDoubt(t *testing.T) {
	h := newHarness(t)
	old := h.model.Commit
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		err := h.repo().write(filepath.Join(h.repo().snapshot(old), name), h.model.Files[name])
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := h.repo().write(h.repo().ref("main"), []byte(old)); err != nil {
		t.Fatal(err)
	}
	newest := modelFiles()
	newest["modules.json"] = []byte(`[{}]`)
	h.hub.Add(modelID, newest)
	r := h.resolver()
	shown, remove := previewed(h, r, modelID)
	if asked := h.hub.Requests(); len(shown) != 3 || len(asked) != 1 ||
		!strings.Contains(asked[0].Path, old) {
		t.Errorf("the preview has %d files, asked %+v", len(shown), asked)
	}
	remove()
	h.hub.Fault(func(w http.ResponseWriter, _ *http.Request, _ bool) bool { w.WriteHeader(503); return true })
	if shown, remove = previewed(h, r, modelID); len(shown) != 3 || len(h.waits) > 0 {
		t.Errorf("with a hub that fails it has %d files, waits %v", len(shown), h.waits)
	}
	remove()
}

// A snapshot that lacks files is shown as a bucket that has all of its commit lists it.
func TestPreviewOfASnapshotInDoubtFromABucket(t *testing.T) {
	c := newCluster(t)
	c.fill()
	c.machine()
	dir := c.repo().snapshot(c.model.Commit)
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		if err := c.repo().write(filepath.Join(dir, name), c.model.Files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.repo().write(c.repo().ref("main"), []byte(c.model.Commit)); err != nil {
		t.Fatal(err)
	}
	main := bucketRepo{c.bucket, filepath.Base(c.repo().dir)}.ref("main") // has moved on
	newest := strings.NewReader(strings.Repeat("f", 40))
	if _, err := c.bucket.Put(t.Context(), main, newest, newest.Size(), bucket.Condition{}); err != nil {
		t.Fatal(err)
	}
	shown, remove := previewed(c.harness, c.resolver(c.shared, noHub), modelID)
	if len(shown) != len(wantedFiles) {
		t.Errorf("the preview has %q", shown)
	}
	remove()
}
