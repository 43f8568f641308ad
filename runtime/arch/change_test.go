package arch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// A weights file that is cut short or written to during a load fails that load, before whichever
// read the change happens. Nothing is left on the device, and the directory loads once the file is
// whole again.
func TestWeightsThatChange(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	rewrite := func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		// NaN at the end of the last tensor: packing may fail before the load looks for a change.
		if _, err := f.WriteAt([]byte{0, 0, 0xc0, 0x7f}, info.Size()-4); err != nil {
			return err
		}
		return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))
	}
	for _, c := range []struct {
		model, file string
		task        Task
	}{
		{"st-mean", weights.SingleFile, Embed},
		{"st-mean-dense-tanh-normalize-prompts", "2_Dense/" + weights.SingleFile, Embed},
		{"st-xlmr-mean-torch", weights.TorchFile, Embed},
		{"colbert-dense", "1_Dense/" + weights.SingleFile, ColBERT},
		{"bge-m3", m3Vectors, BGEM3},
	} {
		from := golden.Open(t, c.model).Dir
		whole, err := os.ReadFile(filepath.Join(from, c.file))
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(path string) error{
			"cut short": func(path string) error { return os.Truncate(path, int64(len(whole)/3)) },
			"emptied":   func(path string) error { return os.Truncate(path, 0) },
			"rewritten": rewrite,
		} {
			t.Run(c.model+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, filepath.FromSlash(c.file))
				changed := 0
				for n := 0; ; n++ {
					write(t, path, whole)
					reads := 0
					weightstest.OnRead(t, func(at string, _ int64) {
						if at == path {
							if reads == n {
								if err := change(path); err != nil {
									t.Fatal(err)
								}
							}
							reads++
						}
					})
					m, err := Load(dir, dev, Options{Task: c.task})
					if reads <= n { // the load ended before the change
						if err != nil || n < 2 {
							t.Fatalf("unchanged, after %d reads: %v", reads, err)
						}
						m.Close()
						break
					}
					if err == nil || m != nil {
						t.Fatalf("a change before read %d went unnoticed", n)
					}
					if !strings.Contains(err.Error(), filepath.Base(c.file)) {
						t.Errorf("read %d: the error does not name the file: %v", n, err)
					}
					if errors.Is(err, weights.ErrChanged) {
						changed++
					}
					if info, err := dev.Info(); err != nil || info.MemoryWeights != 0 {
						t.Errorf("read %d: %d bytes of weights are left (%v)", n, info.MemoryWeights, err)
					}
				}
				if changed == 0 {
					t.Error("never told as a change")
				}
			})
		}
	}
}

// What was packed is released, tensor by tensor: a large checkpoint then leaves the page cache
// while the rest is packed.
func TestPackedTensorsAreReleased(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	dir := golden.Open(t, "st-qwen3-last").Dir
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var released int64
	weightstest.OnRelease(t, func(_ string, begin, end int64, _ bool) { released += end - begin })
	m, _ := load(t, dev, dir, Options{Task: Embed})
	if released != c.Bytes() || m.Bytes() == 0 {
		t.Errorf("%d of %d bytes are released", released, c.Bytes())
	}
}
