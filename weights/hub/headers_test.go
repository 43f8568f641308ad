package hub

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// headerFiles returns a repository with a checkpoint of 4 MB, a Dense module and a torch head.
func headerFiles() map[string][]byte {
	files := modelFiles()
	delete(files, "pytorch_model.bin")
	files["model.safetensors"] = weightstest.Encode(map[string]string{"format": "pt"},
		weightstest.Float32("embeddings.weight", []int64{1000, 1000}, make([]float32, 1_000_000)...),
		weightstest.Float32("norm.weight", []int64{3}, 1, 2, 3))
	files["2_Dense_1024/config.json"] = []byte(`{"in_features":3}`)
	files["2_Dense_1024/model.safetensors"] = weightstest.Encode(nil,
		weightstest.Float32("linear.weight", []int64{2}, 1, 2))
	files["sparse_linear.pt"] = weightstest.Torch(weightstest.Tensor{Name: "weight", Shape: []int64{1, 3}})
	return files
}

// Headers shows the tensors of a repository and asks for the ranges that hold them alone.
func TestHeaders(t *testing.T) {
	h := newHarness(t)
	h.hub.Add(modelID, headerFiles())
	dir, remove, err := h.resolver().Headers(t.Context(), modelID, "")
	if err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{
		"": "embeddings.weight norm.weight", "2_Dense_1024": "linear.weight"} {
		c, err := weights.Open(filepath.Join(dir, folder))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Names(), " "); got != want {
			t.Errorf("%s: %s", folder, got)
		}
		c.Close()
	}
	head, err := weights.OpenFile(filepath.Join(dir, "sparse_linear.pt"))
	if err != nil || len(head.Names()) != 1 {
		t.Errorf("the torch head: %v", err)
	} else {
		head.Close()
	}
	config, err := os.ReadFile(filepath.Join(dir, "2_Dense_1024", "config.json"))
	if err != nil || !bytes.Equal(config, headerFiles()["2_Dense_1024/config.json"]) {
		t.Errorf("%s, %v", config, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "tokenizer.json")); err != nil || info.Size() != 0 {
		t.Errorf("the tokenizer: %v, %v", info, err)
	}
	ranges := 0
	for _, q := range h.hub.Requests() {
		if q.Storage && strings.HasSuffix(q.Path, ".safetensors") && q.Range == "" {
			t.Errorf("asked for the whole of %s", q.Path)
		}
		if q.Storage && q.Range != "" {
			ranges++
		}
	}
	if ranges != 4 { // the length and the header of two files
		t.Errorf("%d ranges", ranges)
	}
	remove()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
	offline := h.resolver(func(o *Options) { o.Offline = true })
	if _, err := offline.Resolve(t.Context(), modelID, ""); err == nil {
		t.Error("headers count as a model")
	}
}

// Of a model on this machine, Headers shows the directory, which stays.
func TestHeadersOfAModelThatIsHere(t *testing.T) {
	h := newHarness(t)
	found, err := h.resolve()
	if err != nil {
		t.Fatal(err)
	}
	dir, remove, err := h.resolver(func(o *Options) { o.Offline = true }).Headers(t.Context(), modelID, "")
	if err != nil || dir != found.Dir {
		t.Fatalf("%s, %v; want %s", dir, err, found.Dir)
	}
	remove()
	if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Error(err)
	}
}

func TestHeadersRefused(t *testing.T) {
	h := newHarness(t)
	t.Setenv("TMPDIR", t.TempDir())
	torch := modelFiles()
	delete(torch, "model.safetensors")
	torch["pytorch_model.bin"] = make([]byte, maxPreviewBytes+1)
	huge := modelFiles()
	huge["model.safetensors"] = append([]byte{0, 0, 0, 0, 1}, make([]byte, 100)...)
	many := modelFiles()
	many["model.safetensors"] = append([]byte{100, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 100)...)
	many["other.safetensors"] = append([]byte{0, 0, 0, 4, 0, 0, 0, 0}, make([]byte, maxHeaders)...)
	for name, c := range map[string]struct {
		files map[string][]byte
		fault func(http.ResponseWriter, *http.Request, bool) bool
		class Class
		says  string
	}{
		"torch alone":     {torch, nil, ClassConfig, "pytorch_model.bin, of which only the whole says what is in it"},
		"a header's lies": {huge, nil, ClassConfig, "model.safetensors says that its header has 4294967296 bytes"},
		"many headers":    {many, nil, ClassConfig, "more than 67108864 bytes together, up to other.safetensors"},
		"no ranges": {headerFiles(), func(w http.ResponseWriter, r *http.Request, storage bool) bool {
			if r.Header.Get("Range") == "" {
				return false
			}
			r.Header.Del("Range")
			return false
		}, ClassNetwork, "whole where a part of it was asked for"},
	} {
		h.hub.Add(modelID, c.files)
		h.hub.Fault(c.fault)
		dir, remove, err := h.resolver().Headers(t.Context(), modelID, "")
		if ClassOf(err) != c.class || dir != "" || remove != nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v of class %s", name, dir, err, ClassOf(err))
		}
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
