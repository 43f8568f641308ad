package testmodels

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// Poisoned copies a golden model and changes one row of an embedding table (word, position), so
// that its sum is not finite. A SPLADE model needs a table other than word, because its last matrix
// also holds its words.
func Poisoned(t *testing.T, model, table string, row int) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, model).Dir)); err != nil {
		t.Fatal(err)
	}
	Poison(t, dir, table, row)
	return dir
}

// Poison changes one row of an embedding table. The weights stay finite, as they must, even in
// bf16; their sum does not.
func Poison(t *testing.T, dir, table string, at int) {
	t.Helper()
	path := filepath.Join(dir, "model.safetensors")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := int64(binary.LittleEndian.Uint64(data)) + 8
	var header map[string]struct {
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(data[8:n], &header); err != nil {
		t.Fatal(err)
	}
	found := false
	for name, words := range header {
		if !strings.HasSuffix(name, "embeddings."+table+"_embeddings.weight") {
			continue
		}
		found = true
		row := data[n+words.Offsets[0]+int64(4*at*words.Shape[1]):]
		for i := range words.Shape[1] {
			binary.LittleEndian.PutUint32(row[4*i:], math.Float32bits(0x1.fep127))
		}
	}
	if !found {
		t.Fatal("no embedding")
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TokenID returns the id of a token in the vocabulary of a model directory.
func TokenID(t *testing.T, dir, token string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Model struct{ Vocab map[string]int }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	id, ok := file.Model.Vocab[token]
	if !ok {
		t.Fatalf("the vocabulary has no %q", token)
	}
	return id
}
