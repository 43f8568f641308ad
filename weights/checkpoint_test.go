package weights_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

func makeFIFO(path string) error { return unix.Mkfifo(path, 0o600) }

func float32s(t *testing.T, c *weights.Checkpoint, name string) []float32 {
	t.Helper()
	tensor, ok := c.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %q", name)
	}
	values, err := tensor.AppendFloat32(nil)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func TestSharded(t *testing.T) {
	dir := t.TempDir()
	weightstest.WriteSharded(t, dir, []weightstest.Tensor{
		weightstest.Float32("b", []int64{2}, 1, 2), weightstest.Float32("a", []int64{1}, 3),
	}, []weightstest.Tensor{weightstest.Float32("c", []int64{3}, 4, 5, 6)})
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.Names(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("names %q", got)
	}
	if c.Bytes() != 24 {
		t.Errorf("%d bytes, want 24", c.Bytes())
	}
	if got := float32s(t, c, "c"); !slices.Equal(got, []float32{4, 5, 6}) {
		t.Errorf("c = %v", got)
	}
	if got := float32s(t, c, "a"); !slices.Equal(got, []float32{3}) {
		t.Errorf("a = %v", got)
	}

	// A single file wins over an index beside it, as in the Python libraries.
	weightstest.WriteFile(t, dir, weights.SingleFile,
		weightstest.Encode(nil, weightstest.Float32("single", []int64{1}, 9)))
	single, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close()
	if got := single.Names(); !slices.Equal(got, []string{"single"}) {
		t.Errorf("names %q, want those of the single file", got)
	}
}

func TestIndexDecidesBetweenShards(t *testing.T) {
	dir := t.TempDir()
	weightstest.WriteFile(t, dir, "1.safetensors", weightstest.Encode(nil,
		weightstest.Float32("a", []int64{1}, 1), weightstest.Float32("x", []int64{1}, 0)))
	weightstest.WriteFile(t, dir, "2.safetensors", weightstest.Encode(nil,
		weightstest.Float32("a", []int64{1}, 2), weightstest.Float32("b", []int64{1}, 3)))
	weightstest.WriteFile(t, dir, weights.IndexFile,
		[]byte(`{"weight_map":{"a":"2.safetensors","b":"2.safetensors","x":"1.safetensors"}}`))
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := float32s(t, c, "a"); got[0] != 2 {
		t.Errorf("a = %v, want the copy of the shard the index names", got)
	}
}

func TestHostileIndexes(t *testing.T) {
	secret := weightstest.Encode(nil, weightstest.Float32("a", []int64{1}, 1))
	for name, c := range map[string]struct{ index, want string }{
		"empty":            {``, "want {"},
		"cut":              {`{"weight_map":{"a":"s.safetensors"`, "want }"},
		"array":            {`[]`, "want {"},
		"not UTF-8":        {"{\"\xff\":1}", "UTF-8"},
		"no weight_map":    {`{"metadata":{"total_size":4}}`, "weight_map: missing"},
		"weight_map twice": {`{"weight_map":{},"weight_map":{}}`, "occurs twice"},
		"weight_map array": {`{"weight_map":["s.safetensors"]}`, "want {"},
		"name twice":       {`{"weight_map":{"a":"s.safetensors","\u0061":"s.safetensors"}}`, "occurs twice"},
		"shard number":     {`{"weight_map":{"a":1}}`, "want a string"},
		"shard null":       {`{"weight_map":{"a":null}}`, "want a string"},
		"parent":           {`{"weight_map":{"a":"../s.safetensors"}}`, "plain name"},
		"absolute":         {`{"weight_map":{"a":"/s.safetensors"}}`, "plain name"},
		"subdirectory":     {`{"weight_map":{"a":"sub/s.safetensors"}}`, "plain name"},
		"same directory":   {`{"weight_map":{"a":"./s.safetensors"}}`, "plain name"},
		"backslash":        {`{"weight_map":{"a":"..\\s.safetensors"}}`, "plain name"},
		"NUL":              {`{"weight_map":{"a":"s.bin\u0000.safetensors"}}`, "plain name"},
		"empty shard name": {`{"weight_map":{"a":""}}`, "plain name"},
		"only the suffix":  {`{"weight_map":{"a":".safetensors"}}`, "plain name"},
		"hidden":           {`{"weight_map":{"a":".s.safetensors"}}`, "plain name"},
		"other type":       {`{"weight_map":{"a":"s.bin"}}`, "plain name"},
		"name of 300 bytes": {`{"weight_map":{"a":"` + strings.Repeat("s", 300) + `.safetensors"}}`,
			"plain name"},
		"missing shard": {`{"weight_map":{"a":"s.safetensors","b":"t.safetensors"}}`,
			"t.safetensors, which is missing"},
		"tensor not in shard": {`{"weight_map":{"a":"s.safetensors","z":"s.safetensors"}}`,
			`tensor "z": weight_map: the shard s.safetensors does not hold it`},
		"number twice": {`{"weight_map":{"a":"m-00001-of-00002.safetensors","b":"m-1-of-00002.safetensors"}}`,
			"names shard 1 twice, as m-00001-of-00002.safetensors and m-1-of-00002.safetensors"},
		"number too large": {`{"weight_map":{"a":"m-00003-of-00002.safetensors"}}`,
			"m-00003-of-00002.safetensors; there are 2"},
		"number 0": {`{"weight_map":{"a":"m-00000-of-00002.safetensors"}}`, "there are 2"},
		"two sets": {`{"weight_map":{"a":"m-00001-of-00002.safetensors","b":"m-00002-of-00003.safetensors"}}`,
			"m-00002-of-00003.safetensors beside a shard of 2"},
		"one file twice": {`{"weight_map":{"a":"s.safetensors","b":"link.safetensors"}}`,
			"one file twice, as the shards s.safetensors and link.safetensors"},
		"metadata too deep": {`{"metadata":` + strings.Repeat("[", 100_000) + `,"weight_map":{}}`,
			"nested deeper"},
		"metadata bad number":  {`{"metadata":-,"weight_map":{}}`, "bad number"},
		"metadata bare word":   {`{"metadata":nul,"weight_map":{}}`, "want a value"},
		"bytes after the end":  {`{"weight_map":{}}{}`, "want the end"},
		"too many shards":      {`{"weight_map":{` + manyShards(4097) + `}}`, "more than 4096 shards"},
		"damaged shard listed": {`{"weight_map":{"a":"bad.safetensors"}}`, "bad.safetensors: header length"},
	} {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "model")
			weightstest.WriteFile(t, outer, "s.safetensors", secret) // a path traversal would reach it
			weightstest.WriteFile(t, dir, "sub/s.safetensors", secret)
			weightstest.WriteFile(t, dir, "s.safetensors", secret)
			weightstest.WriteFile(t, dir, ".s.safetensors", secret)
			link := filepath.Join(dir, "link.safetensors")
			if err := os.Link(filepath.Join(dir, "s.safetensors"), link); err != nil {
				t.Fatal(err)
			}
			weightstest.WriteFile(t, dir, "bad.safetensors", []byte("\x00\x00\x00\x00\x00\x00\x00\x7f{}"))
			weightstest.WriteFile(t, dir, weights.IndexFile, []byte(c.index))
			_, err := weights.Open(dir)
			var fe *weights.FormatError
			if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want a *FormatError with %q", err, c.want)
			}
		})
	}
}

func manyShards(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		name := strings.Repeat("s", i%200+1) + strings.Repeat("t", i/200)
		b.WriteString(`"` + name + `":"` + name + `.safetensors"`)
	}
	return b.String()
}

func TestFreeFormIndexMetadata(t *testing.T) {
	dir := t.TempDir()
	weightstest.WriteFile(t, dir, "s.safetensors",
		weightstest.Encode(nil, weightstest.Float32("a", []int64{1}, 1)))
	weightstest.WriteFile(t, dir, weights.IndexFile, []byte(
		`{"metadata":{"total_size":-1.5e3,"x":[true,false,null,{"y":["z",[]]},{}]},"weight_map":{"a":"s.safetensors"},"more":"\n"}`))
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestNoWeights(t *testing.T) {
	dir := t.TempDir()
	_, err := weights.Open(dir)
	if !errors.Is(err, weights.ErrNoWeights) || !strings.Contains(err.Error(), weights.IndexFile) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("empty directory: %v", err)
	}
	weightstest.WriteFile(t, dir, "tf_model.h5", nil)
	_, err = weights.Open(dir)
	if !errors.Is(err, weights.ErrNoWeights) || !strings.Contains(err.Error(), weights.TorchFile) {
		t.Errorf("weights of another framework: %v", err)
	}
	_, err = weights.Open(filepath.Join(dir, "absent"))
	if !errors.Is(err, weights.ErrNoWeights) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if _, err = weights.OpenFile(filepath.Join(dir, "2_Dense", "model.safetensors")); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestClose(t *testing.T) {
	c, err := weights.OpenFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	tensor, _ := c.Tensor("scalar")
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := tensor.ReadAt(make([]byte, 4), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("ReadAt after Close: %v", err)
	}
	if err := c.Prefetch(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Prefetch after Close: %v", err)
	}
}

func TestCheckUnchanged(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 100) },
		"rewritten": func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := weightstest.WriteFile(t, t.TempDir(), "x.safetensors",
				weightstest.Encode(nil, weightstest.Float32("a", []int64{1}, 1)))
			c, err := weights.OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.CheckUnchanged(); err != nil {
				t.Fatalf("before the change: %v", err)
			}
			if err := change(path); err != nil {
				t.Fatal(err)
			}
			if err := c.CheckUnchanged(); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("after the change: %v", err)
			}
		})
	}
	// A file may be replaced by a rename, as caches do, without harm to the open checkpoint.
	dir := t.TempDir()
	path := weightstest.WriteFile(t, dir, "x.safetensors",
		weightstest.Encode(nil, weightstest.Float32("a", []int64{1}, 1)))
	c, err := weights.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := os.Rename(weightstest.WriteFile(t, dir, "y", nil), path); err != nil {
		t.Fatal(err)
	}
	if err := c.CheckUnchanged(); err != nil {
		t.Errorf("after a replacement: %v", err)
	}
	if got := float32s(t, c, "a"); got[0] != 1 {
		t.Errorf("a = %v after a replacement", got)
	}
}

// The pages of a tensor of a large checkpoint are given up when it is released, and the tensor can
// be read again; those of a small one stay, so that the model loads again fast.
func TestRelease(t *testing.T) {
	dir := t.TempDir()
	for name, shape := range map[string][]int64{"large": {1 << 20, 1 << 10}, "small": {1, 4}} {
		p := &weightstest.Published{Weights: []weightstest.PublishedFile{{File: name + "/model.safetensors",
			DType: weights.F32, Shards: 2, Tensors: map[string][]int64{"a": {2, 3}, "b": shape, "c": {7}}}}}
		p.Write(t, dir)
		c, err := weights.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Prefetch(); err != nil {
			t.Fatal(err)
		}
		released := 0
		weightstest.OnRelease(t, func(_ string, begin, end int64, did bool) {
			released++
			if did != (name == "large") || end-begin != 24 {
				t.Errorf("%s: bytes %d to %d released: %v", name, begin, end, did)
			}
		})
		a, _ := c.Tensor("a")
		for range 2 {
			if err := a.ReadAt(make([]byte, 24), 0); err != nil {
				t.Fatal(err)
			}
			a.Release()
		}
		if released != 2 {
			t.Errorf("%s: released %d times", name, released)
		}
	}
}
