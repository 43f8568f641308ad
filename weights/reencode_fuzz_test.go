package weights_test

import (
	"bytes"
	"maps"
	"os"
	"testing"

	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// FuzzReencode: the tensors of a file that opens, written again, open to the same tensors, and a
// second write gives the same bytes. A canonical file therefore re-encodes to itself
// (TestReencodeIsIdentical has one from the Python library).
func FuzzReencode(f *testing.F) {
	seed, err := os.ReadFile(golden)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(weightstest.File(
		`{"b":{"shape":[1],"dtype":"U8","data_offsets":[1,2]},"a":{"dtype":"I8","shape":[],"data_offsets":[0,1]}}`,
		[]byte{1, 2}))
	f.Fuzz(func(t *testing.T, file []byte) {
		dir := t.TempDir()
		first, err := weights.OpenFile(weightstest.WriteFile(t, dir, "1", file))
		if err != nil {
			return
		}
		defer first.Close()
		again := weightstest.Encode(first.Metadata(), all(first)...)
		second, err := weights.OpenFile(weightstest.WriteFile(t, dir, "2", again))
		if err != nil {
			t.Fatalf("the re-encoded file does not open: %v", err)
		}
		defer second.Close()
		if !maps.Equal(first.Metadata(), second.Metadata()) ||
			!bytes.Equal(weightstest.Encode(second.Metadata(), all(second)...), again) {
			t.Errorf("%q re-encodes to %q, which re-encodes to something else", file, again)
		}
	})
}
