package hub

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const adapterBytes = 1 << 20

func adapterOf(id string) Adapter { return Adapter{ID: id, MaxBytes: adapterBytes} }

// adapterAndModel returns the files of a repository that holds a model and an adapter.
func adapterAndModel() map[string][]byte {
	files := modelFiles()
	files["adapter_config.json"] = []byte(`{"peft_type":"LORA"}`)
	files["adapter_model.safetensors"] = []byte("tensors")
	return files
}

func in(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// fetched returns the files requested since the last call, without listings.
func (h *harness) fetched() (names []string) {
	for _, r := range h.hub.Requests() {
		if _, name, ok := strings.Cut(r.Path, "/resolve/"); ok && !r.Storage {
			names = append(names, name[strings.IndexByte(name, '/')+1:])
		}
	}
	slices.Sort(names)
	return names
}

// TestOnlyAdaptersAreFetchedAsAdapters: a repository is listed first, and refused if it is no
// adapter or too large.
func TestOnlyAdaptersAreFetchedAsAdapters(t *testing.T) {
	for _, listed := range []bool{true, false} {
		h := newHarness(t)
		large := map[string][]byte{
			"adapter_config.json": []byte("{}"), "adapter_model.safetensors": make([]byte, adapterBytes+1),
		}
		alone := map[string][]byte{"adapter_config.json": []byte("{}"), "README.md": []byte("lost")}
		for id, want := range map[string]struct {
			files map[string][]byte
			says  string
		}{
			"t/model": {modelFiles(), "has no adapter_config.json: it is no LoRA adapter"},
			"t/large": {large, "more than 1 MiB"},
			"t/alone": {alone, "has no adapter_model.safetensors and adapter_model.bin"},
			"t/tensors": {map[string][]byte{"adapter_model.safetensors": nil, "adapter_model.bin": nil},
				"has no adapter_config.json"},
			"t/empty": {map[string][]byte{"README.md": nil}, "has no adapter_config.json"},
		} {
			h.hub.Add(id, want.files).NoChecksums = !listed
			h.hub.Requests()
			_, err := h.resolver().ResolveAdapter(t.Context(), adapterOf(id))
			wantClass(t, err, ClassConfig, want.says)
			if !strings.Contains(err.Error(), id) {
				t.Errorf("%v: does not name %s", err, id)
			}
			for _, r := range h.hub.Requests() {
				if r.Storage && r.Method != "HEAD" {
					t.Errorf("%s, sizes listed %v: fetched %s", id, listed, r.Path)
				}
			}
			if blobs, _ := filepath.Glob(filepath.Join(h.cache, "models--*", "blobs", "*")); len(blobs) > 0 {
				t.Errorf("%s: in the cache are %v", id, blobs)
			}
		}
	}
}

// TestAnAdapterIsFetchedAlone: no other file of the repository is downloaded. A later request for
// the model downloads the rest, and one snapshot then serves both.
func TestAnAdapterIsFetchedAlone(t *testing.T) {
	h := newHarness(t)
	h.hub.Add("t/both", adapterAndModel())
	r := h.resolver()
	if _, ok, err := r.FindAdapter(t.Context(), adapterOf("t/both")); ok || err != nil {
		t.Errorf("found in an empty cache: %v, %v", ok, err)
	}
	h.fetched()
	found, err := r.ResolveAdapter(t.Context(), adapterOf("t/both"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"adapter_config.json", "adapter_model.safetensors"}
	if got := in(t, found.Dir); !slices.Equal(got, want) || found.Source != SourceHub {
		t.Errorf("%v from %s, want %v", got, found.Source, want)
	}
	if got := slices.Compact(h.fetched()); !slices.Equal(got, want) {
		t.Errorf("fetched %v, want %v", got, want)
	}
	found.Release()
	again, ok, err := r.FindAdapter(t.Context(), adapterOf("t/both"))
	if !ok || err != nil || again.Dir != found.Dir {
		t.Errorf("%+v, %v, %v", again, ok, err)
	}
	again.Release()

	offline := h.resolver(func(o *Options) { o.Offline = true })
	if again, err := offline.ResolveAdapter(t.Context(), adapterOf("t/both")); err != nil {
		t.Error(err)
	} else {
		again.Release()
	}
	_, err = offline.Resolve(t.Context(), "t/both", "")
	wantClass(t, err, ClassNotFound, "only a part")
	if _, ok, err := r.Find(t.Context(), "t/both", ""); ok || err != nil {
		t.Errorf("the model was found: %v, %v", ok, err)
	}
	whole, err := r.Resolve(t.Context(), "t/both", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := in(t, whole.Dir); !slices.Contains(got, "model.safetensors") ||
		!slices.Contains(got, "1_Pooling") {
		t.Errorf("the model is %v", got)
	}
	whole.Release()
	h.fetched()
	for _, find := range []func() (Resolved, bool, error){
		func() (Resolved, bool, error) { return r.Find(t.Context(), "t/both", "") },
		func() (Resolved, bool, error) { return r.FindAdapter(t.Context(), adapterOf("t/both")) },
	} {
		if found, ok, err := find(); !ok || err != nil || found.Dir != whole.Dir {
			t.Errorf("%+v, %v, %v", found, ok, err)
		} else {
			found.Release()
		}
	}
}

// TestAdapterBesideOtherWeights: adapter_model.bin holds the adapter's tensors, even where the
// safetensors of a model lie beside it.
func TestAdapterBesideOtherWeights(t *testing.T) {
	h := newHarness(t)
	files := adapterAndModel()
	delete(files, "adapter_model.safetensors")
	files["adapter_model.bin"] = []byte("pickle")
	h.hub.Add("t/old", files)
	found, err := h.resolver().ResolveAdapter(t.Context(), adapterOf("t/old"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := in(t, found.Dir), []string{"adapter_config.json", "adapter_model.bin"}; !slices.Equal(got,
		want) {
		t.Errorf("%v, want %v", got, want)
	}
	found.Release()
}

// TestWhoMayNameADirectory: an id names a directory only when the caller sets Directories.
func TestWhoMayNameADirectory(t *testing.T) {
	h := newHarness(t)
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("home/secret", 0o755); err != nil {
		t.Fatal(err)
	}
	r := h.resolver(func(o *Options) { o.Offline = true })
	for _, id := range []string{"home/secret", "./home/secret", "home", "..", "/etc"} {
		a := adapterOf(id)
		found, err := r.ResolveAdapter(t.Context(), a)
		if err == nil || found.Dir != "" {
			t.Errorf("%s: %+v, %v", id, found, err)
		}
		if found, ok, _ := r.FindAdapter(t.Context(), a); ok || found.Dir != "" {
			t.Errorf("%s: found %+v", id, found)
		}
		a.Directories = true
		if found, ok, err := r.FindAdapter(t.Context(), a); !ok || err != nil || found.Source != SourceLocal {
			t.Errorf("%s of the operator: %+v, %v, %v", id, found, ok, err)
		}
	}
}

// TestAdapterOfAnotherTool: a snapshot without a manifest counts when both of an adapter's files
// are there.
func TestAdapterOfAnotherTool(t *testing.T) {
	h := newHarness(t)
	commit := strings.Repeat("d", 40)
	cache := repoCache{filepath.Join(h.cache, "models--t--theirs")}
	for name, data := range maps.All(map[string]string{
		cache.ref("main"): commit, filepath.Join(cache.snapshot(commit), "adapter_config.json"): "{}",
	}) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := h.resolver(func(o *Options) { o.Offline = true })
	_, err := r.ResolveAdapter(t.Context(), adapterOf("t/theirs"))
	wantClass(t, err, ClassNotFound, "lacks adapter_model.safetensors")
	if err := os.WriteFile(filepath.Join(cache.snapshot(commit), "adapter_model.safetensors"), nil,
		0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(cache.snapshot(commit), "adapter_config.json")
	if err := os.Rename(config, filepath.Join(cache.snapshot(commit), "adapter_model.bin")); err != nil {
		t.Fatal(err)
	}
	_, err = r.ResolveAdapter(t.Context(), adapterOf("t/theirs"))
	wantClass(t, err, ClassNotFound, "lacks adapter_config.json")
	if err := os.Rename(filepath.Join(cache.snapshot(commit), "adapter_model.bin"), config); err != nil {
		t.Fatal(err)
	}
	found, err := r.ResolveAdapter(t.Context(), adapterOf("t/theirs"))
	if err != nil {
		t.Fatal(err)
	}
	found.Release()
}
