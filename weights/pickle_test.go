package weights

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPicklesThatAreRefused(t *testing.T) {
	storage := "\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
	for name, c := range map[string]struct{ pickle, want string }{
		"empty":                  {"", "ends in the middle"},
		"no stop":                {"\x80\x02N", "ends in the middle"},
		"nothing left":           {"\x80\x02.", "more values than there are"},
		"protocol 0":             {"\x80\x00N.", "protocol 0"},
		"call of system":         {"\x80\x02cos\nsystem\n(X\x01\x00\x00\x00xtR.", `names "system" of "os"`},
		"call of builtins":       {"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.", `names "eval" of "builtins"`},
		"storage of elsewhere":   {"\x80\x02cevil\nFloatStorage\n.", `names "FloatStorage" of "evil"`},
		"name without an end":    {"\x80\x02ctorch\nFloat", "ends in the middle"},
		"old instance opcode":    {"\x80\x02(ios\nsystem\n.", "opcode 0x69"},
		"new object":             {"\x80\x02ccollections\nOrderedDict\n)\x81.", "opcode 0x81"},
		"extension":              {"\x80\x02\x82\x01.", "opcode 0x82"},
		"call of a string":       {"\x80\x02X\x01\x00\x00\x00x)R.", "calls what is not a function"},
		"call of a storage type": {"\x80\x02ctorch\nFloatStorage\n)R.", "not a function of tensors"},
		"ordered with arguments": {"\x80\x02ccollections\nOrderedDict\n(Nt\x85R.", "with arguments"},
		"long string":            {"\x80\x02X\xff\xff\xff\xffx.", "ends in the middle"},
		"long integer": {"\x80\x02\x8a\xff" + strings.Repeat("x", 255) + ".",
			"integer of 255 bytes"},
		"empty memo":         {"\x80\x02h\x07.", "memo 7 is empty"},
		"memo of nothing":    {"\x80\x02q\x00.", "more values than there are"},
		"mark missing":       {"\x80\x02NNt.", "mark that was not set"},
		"below a mark":       {"\x80\x02N(\x85.", "more values than there are"},
		"append to a number": {"\x80\x02K\x01(Ne.", "not a list"},
		"items of a number":  {"\x80\x02K\x01NNs.", "not a dictionary"},
		"odd items":          {"\x80\x02}(Nu.", "not a dictionary"},
		"too many marks":     {"\x80\x02" + strings.Repeat("(", 300) + ".", "nests more than 256"},
		"too many opcodes":   {"\x80\x02" + strings.Repeat("]0", maxPickleOps), "opcode 0x30"},
		"endless": {"\x80\x02" + strings.Repeat("N", maxPickleOps+1) + ".",
			"more than 2097152 opcodes"},
		"persistent id": {"\x80\x02X\x01\x00\x00\x00xQ.", "not a storage"},
		"storage of no type": {"\x80\x02(X\x07\x00\x00\x00storageNX\x01\x00\x00\x000NK\x04tQ.",
			"without element type"},
		"storage of -1": {strings.Replace(storage, "K\x04", "J\xff\xff\xff\xff", 1) + ".",
			"without element type"},
		"tensor without storage": {"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(NK\x00K\x01\x85K\x01\x85tR.",
			"is not what it should be"},
		"tensor of nothing": {"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "too few arguments"},
		"tensor of -1": {"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage[2:] +
			"K\x00J\xff\xff\xff\xff\x85K\x01\x85tR.", "is not what it should be"},
		"tensor of two strides": {"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage[2:] +
			"K\x00K\x01\x85K\x01K\x01\x86tR.", "1 dimensions with 2 strides"},
		"parameter of a number": {"\x80\x02ctorch._utils\n_rebuild_parameter\nK\x01\x85R.",
			"parameter without a tensor"},
	} {
		v, err := unpickle([]byte(c.pickle))
		if err == nil || !strings.Contains(err.Error(), c.want) || v != nil {
			t.Errorf("%s: %v, %v; want an error with %q", name, v, err, c.want)
		}
	}
}

// Reading ends for a dictionary that contains itself, and for one whose paths double at each level.
func TestEndlessDictionaries(t *testing.T) {
	for name, c := range map[string]struct{ pickle, want string }{
		"itself":  {"\x80\x02}q\x00X\x01\x00\x00\x00xh\x00s.", "more than 8 deep"},
		"no dict": {"\x80\x02]q\x00h\x00a.", "not a dictionary"},
		"long name": {"\x80\x02}X\x00\x20\x00\x00" + strings.Repeat("x", 8192) + "}s.",
			"name of more than 4096"},
	} {
		v, err := unpickle([]byte(c.pickle))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := tensorViews(v); err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
	inner := &dict{map[string]any{}}
	for i := range 64 {
		inner.entries[strings.Repeat("k", i)] = int64(1)
	}
	for range 7 {
		outer := &dict{map[string]any{}}
		for i := range 64 {
			outer.entries[strings.Repeat("k", i)] = inner
		}
		inner = outer
	}
	if _, err := tensorViews(inner); err == nil ||
		!strings.Contains(err.Error(), "more than 1048576 entries") {
		t.Errorf("64⁸ paths: %v", err)
	}
}

// Views are checked against 6 elements of storage, in all the ways they can leave it.
func TestViewsStayInTheirStorage(t *testing.T) {
	file := bytes.NewReader(stored(t, "data/0", make([]byte, 24)))
	members, err := readZip(file, file.Size())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		v    tensorView
		want string
	}{
		"offset past the end": {tensorView{offset: 6, shape: []int64{1}, stride: []int64{1}},
			"leaves the storage"},
		"one too long":    {tensorView{shape: []int64{7}, stride: []int64{1}}, "leaves the storage"},
		"stride too wide": {tensorView{shape: []int64{2, 2}, stride: []int64{5, 1}}, "leaves the storage"},
		"overflow": {tensorView{shape: []int64{3, 3}, stride: []int64{1 << 62, 1 << 62}},
			"leaves the storage"},
		"too large":     {tensorView{shape: []int64{1 << 40, 1 << 40}, stride: []int64{0, 0}}, "too large"},
		"repeated":      {tensorView{shape: []int64{1 << 20}, stride: []int64{0}}, "repeats elements"},
		"repeated rows": {tensorView{shape: []int64{4, 6}, stride: []int64{0, 1}}, "repeats elements"},
	} {
		c.v.storage = storageRef{F32, "0", 6}
		copies := int64(1000)
		_, err := c.v.entry(file, members, "", &copies)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
	two := tensorView{storage: storageRef{F32, "0", 6}, shape: []int64{2, 3}, stride: []int64{1, 2}}
	copies := int64(30)
	for i, fits := range []bool{true, false} {
		_, err := two.entry(file, members, "", &copies)
		if (err == nil) != fits {
			t.Errorf("copy %d of 24 bytes within 30: %v", i, err)
		}
	}
}

// A file cut at any length is an error. A file with any byte changed causes no panic and gives no
// tensor outside the file.
func TestDamagedTorchFiles(t *testing.T) {
	for _, name := range []string{"views.bin", "protocol4.bin"} {
		whole, err := os.ReadFile(filepath.Join("testdata/torch", name))
		if err != nil {
			t.Fatal(err)
		}
		for n := range whole {
			if _, err := readTorch(bytes.NewReader(whole[:n]), int64(n), "cut"); err == nil {
				t.Fatalf("the first %d of %d bytes are read as a whole file", n, len(whole))
			}
		}
		for i := range whole {
			for _, bit := range []byte{1, 0x40, 0x80, 0xff} {
				damaged := bytes.Clone(whole)
				damaged[i] ^= bit
				checkTorch(t, damaged)
			}
		}
	}
}

// checkTorch reads a file and checks the guarantees of FuzzTorch.
func checkTorch(t *testing.T, file []byte) {
	t.Helper()
	size := int64(len(file))
	entries, err := readTorch(bytes.NewReader(file), size, "fuzz")
	if err != nil && entries != nil {
		t.Error("tensors came with the error")
	}
	var copied int64
	for _, e := range entries {
		want, ok := tensorBytes(e.dtype, e.shape)
		switch {
		case !ok || e.begin < 0 || e.end-e.begin != want:
			t.Fatalf("%q: [%d, %d) for shape %v of %s", e.name, e.begin, e.end, e.shape, e.dtype)
		case e.data == nil && e.end > size:
			t.Fatalf("%q: [%d, %d) of %d bytes", e.name, e.begin, e.end, size)
		case e.data != nil && int64(len(e.data)) != want:
			t.Fatalf("%q: %d bytes copied, %d wanted", e.name, len(e.data), want)
		}
		copied += int64(len(e.data))
	}
	if copied > copyFactor*size {
		t.Errorf("%d bytes copied from a file of %d", copied, size)
	}
}

// FuzzTorch: a file that can be read gives tensors whose bytes lie in it, or copies of the right
// size. Any other file gives nothing.
func FuzzTorch(f *testing.F) {
	seeds, err := filepath.Glob("testdata/torch/*.bin")
	if err != nil || len(seeds) < 8 {
		f.Fatalf("%d seeds, %v", len(seeds), err)
	}
	for _, path := range seeds {
		seed, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(checkTorch)
}

// FuzzPickle: every pickle ends, with either a value or an error.
func FuzzPickle(f *testing.F) {
	for _, seed := range []string{
		"\x80\x02}q\x00X\x01\x00\x00\x00xh\x00s.",
		"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s.",
		"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00b\x8a\x01\xffu}b.",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, pickle []byte) {
		v, err := unpickle(pickle)
		if err != nil {
			if v != nil {
				t.Error("a value came with the error")
			}
			return
		}
		_, _ = tensorViews(v)
	})
}
