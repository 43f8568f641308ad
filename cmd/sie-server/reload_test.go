//go:build native

package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/bucket/buckettest"
)

// told stands for a worker. It notes the catalogs that it is given.
type told struct {
	mu   sync.Mutex
	last *catalog.Catalog
	n    int
	hash string
}

func (w *told) SetCatalog(c *catalog.Catalog) (model.Changes, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.n = c, w.n+1
	return model.Changes{}, nil
}

func (w *told) SetBundleHash(hash string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hash = hash
}

// models returns the ids and widths of the last catalog that the worker was given.
func (w *told) models() (string, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return "", 0
	}
	var out []string
	for _, m := range w.last.List() {
		out = append(out, fmt.Sprintf("%s %d", m.ID, m.Dims["dense"]))
	}
	return strings.Join(out, ", "), w.n
}

type reloadRig struct {
	*testing.T
	dir string
	to  *told
	log *testrig.Log
}

func (r *reloadRig) write(file, id string, dim int) {
	r.Helper()
	text := strings.ReplaceAll(strings.ReplaceAll(modelYAML, "%", id), "dim: 8", fmt.Sprint("dim: ", dim))
	if err := os.WriteFile(filepath.Join(r.dir, file), []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
}

func (r *reloadRig) want(models string) {
	r.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got, _ := r.to.models()
		if got == models {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("the worker has %q, want %q", got, models)
		}
	}
}

func startReloader(t *testing.T, flags sourceFlags) *reloadRig {
	t.Helper()
	r := &reloadRig{T: t, dir: flags.ModelsDir, to: &told{}, log: &testrig.Log{}}
	all, err := flags.files()
	if err != nil {
		t.Fatal(err)
	}
	reload := newReloader(&flags, all, r.to, r.to, slog.New(slog.NewTextHandler(r.log, nil)))
	t.Cleanup(reload.close)
	return r
}

func TestHotReload(t *testing.T) {
	dir := t.TempDir()
	(&reloadRig{T: t, dir: dir}).write("whatever.yaml", "a", 8)
	r := startReloader(t, sourceFlags{ModelsDir: dir})
	r.want("acme/a 8")
	r.write("b.yaml", "b", 8)
	r.want("acme/a 8, acme/b 8")
	r.write("whatever.yaml", "a", 16)
	r.want("acme/a 16, acme/b 8")

	// A broken file is reported, its model stays, and other changes count.
	if err := os.WriteFile(filepath.Join(dir, "whatever.yaml"), []byte("sie_id: acme/a\nnonsense: 1\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	r.write("c.yaml", "c", 8)
	r.want("acme/a 16, acme/b 8, acme/c 8")
	if !strings.Contains(r.log.String(), "whatever.yaml") || !strings.Contains(r.log.String(), "nonsense") {
		t.Errorf("the log says nothing of the broken file: %s", r.log.String())
	}
	r.write("whatever.yaml", "a", 4)
	r.want("acme/a 4, acme/b 8, acme/c 8")

	// A renamed file keeps its id. Two files with one id change nothing. Deleting a file removes
	// its model.
	if err := os.Rename(filepath.Join(dir, "whatever.yaml"), filepath.Join(dir, "z.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	r.want("acme/a 4, acme/c 8")
	r.write("twice.yaml", "a", 2)
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(r.log.String(),
		"already defined"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("two files with one id are not reported")
		}
	}
	r.want("acme/a 4, acme/c 8")
}

// A models directory that disappears keeps its models, and is watched again when it is back.
func TestReplacedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "models")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	(&reloadRig{T: t, dir: dir}).write("a.yaml", "a", 8)
	r := startReloader(t, sourceFlags{ModelsDir: dir})
	r.want("acme/a 8")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	time.Sleep(reloadPause + 500*time.Millisecond)
	r.want("acme/a 8")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.write("b.yaml", "b", 8)
	r.want("acme/b 8")
	r.write("c.yaml", "c", 8)
	r.want("acme/b 8, acme/c 8")
}

func TestReloadOfABundle(t *testing.T) {
	dir := t.TempDir()
	(&reloadRig{T: t, dir: dir}).write("a.yaml", "a", 8)
	r := startReloader(t, sourceFlags{ModelsDir: dir, Bundle: "default"})
	hash := func() string { r.to.mu.Lock(); defer r.to.mu.Unlock(); return r.to.hash }
	r.want("acme/a 8")
	before := hash()
	r.write("b.yaml", "b", 8)
	r.want("acme/a 8, acme/b 8")
	for deadline := time.Now().Add(2 * time.Minute); hash() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the hash of the bundle is still %q", before)
		}
	}
}

func TestReloadOnHangUp(t *testing.T) {
	raw, _, _ := buckettest.S3(t)
	b, err := openBucket("", raw)
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, text string) {
		if _, err := b.Put(t.Context(), key, strings.NewReader(text), int64(len(text)),
			bucket.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	put("a.yaml", strings.ReplaceAll(modelYAML, "%", "a"))
	r := startReloader(t, sourceFlags{ModelsDir: raw, Models: []string{"acme/a", "acme/b", "acme/c"}})
	put("a.yaml", "nonsense: 1")
	put("b.yaml", strings.ReplaceAll(modelYAML, "%", "b"))
	put("d.yaml", strings.ReplaceAll(modelYAML, "%", "d"))
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	r.want("acme/a 8, acme/b 8, acme/c 0") // c is an id of the hub; d is not among the wanted models
	if !slices.Contains(strings.Fields(r.log.String()), "broken") &&
		!strings.Contains(r.log.String(), "nonsense") {
		t.Errorf("the log says nothing of the broken file: %s", r.log.String())
	}
}
