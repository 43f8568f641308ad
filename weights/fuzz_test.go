package weights

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// FuzzParse checks the guarantees of a parsed header: every tensor lies inside the data, none
// overlaps another, together they cover the data, each has the size of its shape, and no two share
// a name. A header that does not parse gives no result at all.
func FuzzParse(f *testing.F) {
	golden, err := os.ReadFile("testdata/dtypes.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	seeds := [][]byte{
		golden,
		append([]byte{2, 0, 0, 0, 0, 0, 0, 0}, "{}"...),
		append([]byte{59, 0, 0, 0, 0, 0, 0, 0},
			`{"\u00e9":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]}}xy`...),
		append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "{}"...),
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := readHeader(bytes.NewReader(file), int64(len(file)), "fuzz")
		if err != nil {
			if h != nil {
				t.Error("a header came with the error")
			}
			return
		}
		covered := make([]bool, int64(len(file))-h.dataStart)
		names := make(map[string]bool)
		for _, e := range h.entries {
			if names[e.name] {
				t.Errorf("name %q twice", e.name)
			}
			names[e.name] = true
			if e.begin < 0 || e.begin > e.end || e.end > int64(len(covered)) {
				t.Fatalf("tensor %q spans [%d, %d) of %d bytes", e.name, e.begin, e.end, len(covered))
			}
			if size, ok := tensorBytes(e.dtype, e.shape); !ok || size != e.end-e.begin {
				t.Errorf("tensor %q: %d bytes for shape %v of %s", e.name, e.end-e.begin, e.shape, e.dtype)
			}
			for i := e.begin; i < e.end; i++ {
				if covered[i] {
					t.Fatalf("byte %d belongs to %q and to another tensor", i, e.name)
				}
				covered[i] = true
			}
		}
		if slices.Contains(covered, false) {
			t.Error("a byte belongs to no tensor")
		}
	})
}

// FuzzParseIndex: a parsed index names only plain files, uses all of them, and gives every tensor a
// file.
func FuzzParseIndex(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"total_size":4},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`,
		`{"weight_map":{}}`, `{"weight_map":{"a":"../x.safetensors"}}`,
		`{"x":[1,{"y":null}],"weight_map":{"\ud83d\ude00":"s.safetensors"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		ix, err := parseIndex(raw, ".safetensors")
		if err != nil {
			if ix != nil {
				t.Error("an index came with the error")
			}
			return
		}
		used := make([]bool, len(ix.shards))
		for name, at := range ix.shardOf {
			if at < 0 || at >= len(ix.shards) {
				t.Fatalf("tensor %q is in shard %d of %d", name, at, len(ix.shards))
			}
			used[at] = true
		}
		for i, shard := range ix.shards {
			if strings.ContainsAny(shard, "/\\\x00") || strings.HasPrefix(shard, ".") || !used[i] {
				t.Errorf("shard %q, used %v", shard, used[i])
			}
		}
	})
}
