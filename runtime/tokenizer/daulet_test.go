//go:build native

package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"github.com/daulet/tokenizers"
)

// The library keeps daulet's C API: its Go package links against it and agrees, where its C strings
// let it see the whole text.
func TestDauletLinksToTheSameLibrary(t *testing.T) {
	their, err := tokenizers.FromFile(goldenDir + "/cased/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	defer their.Close()
	tok := load(t, "cased")
	var b Batch
	must(tok.Encode(&b, texts(), Options{}))
	compared := 0
	for i, s := range texts() {
		if s == "" || strings.Contains(s, "\x00") {
			continue
		}
		ids, _ := their.Encode(s, true)
		if !slices.EqualFunc(ids, b.Text(i), func(a uint32, b int32) bool { return int32(a) == b }) {
			t.Errorf("text %d: daulet gives %v, we %v", i, ids, b.Text(i))
		}
		compared++
	}
	if compared < 300 {
		t.Errorf("only %d texts compared", compared)
	}
}
