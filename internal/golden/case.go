package golden

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
)

// Case is a folder of testdata/golden whose files match its manifest.
type Case struct {
	Dir   string
	Notes map[string]any // of the manifest

	t      testing.TB
	header map[string]entry
	data   []byte
}

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// Root returns the folder testdata/golden of this source tree, or the folder that SIE_GOLDEN names,
// for tests that run elsewhere. A file that is only in an archive yet fails the test.
func Root(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("SIE_GOLDEN")
	if dir == "" {
		dir = filepath.Join(testrig.Root(t), "testdata", "golden")
	}
	if err := unpacked(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Open opens a case after it has checked that every file matches the manifest.
func Open(t testing.TB, name string) *Case {
	t.Helper()
	c := check(t, name)
	raw := c.read("golden.safetensors")
	size := binary.LittleEndian.Uint64(raw)
	header := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw[8:8+size], &header); err != nil {
		t.Fatalf("golden: %s: %v", name, err)
	}
	delete(header, "__metadata__")
	c.header, c.data = map[string]entry{}, raw[8+size:]
	for tensor, h := range header {
		var e entry
		if err := json.Unmarshal(h, &e); err != nil {
			t.Fatalf("golden: %s: %s: %v", name, tensor, err)
		}
		c.header[tensor] = e
	}
	return c
}

// check returns a case without tensors after it has checked that every file matches the manifest.
func check(t testing.TB, name string) *Case {
	t.Helper()
	c := &Case{Dir: filepath.Join(Root(t), name), t: t}
	var manifest struct {
		Command string            `json:"command"`
		Notes   map[string]any    `json:"notes"`
		SHA256  map[string]string `json:"sha256"`
	}
	if err := json.Unmarshal(c.read("MANIFEST.json"), &manifest); err != nil {
		t.Fatalf("golden: %s: %v", name, err)
	}
	if len(manifest.SHA256) == 0 {
		t.Fatalf("golden: %s: the manifest lists no files", name)
	}
	for file, want := range manifest.SHA256 {
		sum := sha256.Sum256(c.read(file))
		if hex.EncodeToString(sum[:]) != want {
			t.Fatalf("golden: %s/%s differs from its manifest: restore it, or make the case again with `%s`",
				name, file, manifest.Command)
		}
	}
	c.Notes = manifest.Notes
	return c
}

// JSON returns the document of a file of a case, which needs no tensors, after it has checked that
// every file of the case matches the manifest.
func JSON[T any](t testing.TB, name, file string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(check(t, name).read(file), &v); err != nil {
		t.Fatalf("golden: %s/%s: %v", name, file, err)
	}
	return v
}

func (c *Case) read(name string) []byte {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		c.t.Fatalf("golden: %v", err)
	}
	return data
}

// Has reports whether the case has a tensor of that name.
func (c *Case) Has(name string) bool {
	_, ok := c.header[name]
	return ok
}

// Float32 returns an F32 tensor and its shape.
func (c *Case) Float32(name string) ([]float32, []int) {
	c.t.Helper()
	bytes, e := c.tensor(name, "F32")
	out := make([]float32, len(bytes)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
	return out, e.Shape
}

// Int32 returns an I32 or U16 tensor.
func (c *Case) Int32(name string) []int32 {
	c.t.Helper()
	bytes, e := c.tensor(name, "I32", "U16")
	if e.DType == "U16" {
		out := make([]int32, len(bytes)/2)
		for i := range out {
			out[i] = int32(binary.LittleEndian.Uint16(bytes[2*i:]))
		}
		return out
	}
	out := make([]int32, len(bytes)/4)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
	return out
}

func (c *Case) tensor(name string, dtypes ...string) ([]byte, entry) {
	c.t.Helper()
	e, ok := c.header[name]
	if !ok {
		c.t.Fatalf("golden: %s has no tensor %s", c.Dir, name)
	}
	for _, d := range dtypes {
		if e.DType == d {
			return c.data[e.Offsets[0]:e.Offsets[1]], e
		}
	}
	c.t.Fatalf("golden: %s: %s has dtype %s, not %v", c.Dir, name, e.DType, dtypes)
	return nil, e
}
