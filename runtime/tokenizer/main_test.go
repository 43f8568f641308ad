package tokenizer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const goldenDir = "../../testdata/golden/tokenizer"

// kinds lists the folders of golden data. streaming and cuttable are the paths that each must take.
var kinds = []struct {
	name                string
	streaming, cuttable bool
}{
	{"minilm", true, true},
	{"roberta", false, true},
	{"llama", false, true},
	{"xlmr", false, true},
	{"cased", true, true},
	{"accents", true, true},
	{"added", false, true},
	{"sentencepiece", false, true},
}

// load opens a golden tokenizer until the end of the test. It skips the test if no library is
// linked.
func load(t testing.TB, kind string) *Tokenizer {
	t.Helper()
	return loadDir(t, filepath.Join(goldenDir, kind))
}

func loadDir(t testing.TB, dir string) *Tokenizer {
	t.Helper()
	tok, err := Load(dir)
	if errors.Is(err, ErrNotBuilt) {
		t.Skip("the tokenizer library is not linked: run `make test`")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tok.Close() })
	return tok
}

// texts returns the golden corpus.
var texts = sync.OnceValue(func() []string {
	var raw []json.RawMessage
	mustJSON(filepath.Join(goldenDir, "texts.json"), &raw)
	all := make([]string, len(raw))
	for i, r := range raw {
		all[i] = expand(r)
	}
	if len(all) < 400 {
		panic("the golden corpus is too small")
	}
	return all
})

// expand returns a text of the corpus: a string, or a unit and how often it is repeated.
func expand(raw json.RawMessage) string {
	var text string
	if raw[0] == '"' {
		must(json.Unmarshal(raw, &text))
		return text
	}
	var long struct {
		Repeat string
		Times  int
	}
	must(json.Unmarshal(raw, &long))
	return strings.Repeat(long.Repeat, long.Times)
}

func mustJSON(path string, v any) {
	data, err := os.ReadFile(path)
	must(err)
	must(json.Unmarshal(data, v))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// goldenIDs holds ids, or their count and hash when there are many; null was not computed.
type goldenIDs struct {
	IDs    []int32 `json:"ids"`
	Count  int     `json:"count"`
	SHA256 string  `json:"sha256"`
}

func (g *goldenIDs) check(t *testing.T, what string, got []int32) {
	t.Helper()
	if g.SHA256 == "" {
		if !slices.Equal(got, g.IDs) {
			t.Errorf("%s:\n got %v\nwant %v", what, clip(got), clip(g.IDs))
		}
		return
	}
	packed := make([]byte, 0, 4*len(got))
	for _, id := range got {
		packed = binary.LittleEndian.AppendUint32(packed, uint32(id))
	}
	if sum := sha256.Sum256(packed); len(got) != g.Count || hex.EncodeToString(sum[:]) != g.SHA256 {
		t.Errorf("%s: %d ids with another hash than the %d wanted", what, len(got), g.Count)
	}
}

func clip(ids []int32) []int32 { return ids[:min(len(ids), 64)] }

type goldenFile struct {
	Full    []goldenIDs             `json:"full"`
	Plain   []goldenIDs             `json:"plain"`
	Cut     map[string][]*goldenIDs `json:"cut"`
	Left    []goldenIDs             `json:"left"` // 16 tokens, truncated on the left
	Pairs   []goldenPair            `json:"pairs"`
	Decoded []struct {
		IDs       []int32
		Text, All string
	} `json:"decoded"`
}

// goldenPair is a pair of texts by number, cut to 150 and 150 + More code points, under a limit of
// Max tokens.
type goldenPair struct {
	First, Second, More, Max int
	IDs, Types               []int32
}

func golden(kind string) *goldenFile {
	var g goldenFile
	mustJSON(filepath.Join(goldenDir, kind, "golden.json"), &g)
	if len(g.Full) != len(texts()) || len(g.Cut) == 0 || len(g.Left) == 0 || len(g.Pairs) == 0 ||
		len(g.Decoded) == 0 {
		panic("golden data of " + kind + " is incomplete")
	}
	return &g
}
