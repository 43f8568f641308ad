package tokenizer

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/testrig"
)

const filesDir = "../../testdata/golden/tokenizer-files"

// familyGolden is what transformers makes of the files of a family, by
// tools/golden/tokenizer_files.py.
type familyGolden struct {
	Files    map[string]json.RawMessage // the configuration files
	Length   int
	Pipeline map[string]any
	Special  []string // texts with special tokens written out
	IDs      []string // number and checksum, of the corpus and of those
	Places   []string
	Pairs    [][]any
}

func gunzip(path string) []byte {
	data, err := os.ReadFile(path)
	must(err)
	r, err := gzip.NewReader(bytes.NewReader(data))
	must(err)
	out, err := io.ReadAll(r)
	must(err)
	return out
}

// kept returns what a family's folder holds of a file, or nil. Models of SentencePiece and
// tokenizer.json come from an archive of golden files; other files are compressed.
func kept(family, name string) []byte {
	path := filepath.Join(filesDir, family, name)
	if data, err := os.ReadFile(path); err == nil {
		return data
	}
	if _, err := os.Stat(path + ".gz"); err != nil {
		return nil
	}
	return gunzip(path + ".gz")
}

// moreTexts returns the texts of the corpus and those that only these tests use.
var moreTexts = sync.OnceValue(func() []string {
	var list []json.RawMessage
	must(json.Unmarshal(gunzip(filepath.Join(filesDir, "more.json.gz")), &list))
	all := slices.Clone(texts())
	for _, raw := range list {
		all = append(all, expand(raw))
	}
	return all
})

// familyNames returns the names of the families, in order.
var familyNames = sync.OnceValue(func() (names []string) {
	folders, err := os.ReadDir(filesDir)
	must(err)
	for _, f := range folders {
		if f.IsDir() {
			names = append(names, f.Name())
		}
	}
	return names
})

// familyCases calls do for each family and configuration, with a model directory; in the short form
// for one configuration of each family.
func familyCases(t *testing.T, do func(t *testing.T, family, dir string, g *familyGolden)) {
	found, before := 0, ""
	cases, err := filepath.Glob(filepath.Join(filesDir, "*", "*.json.gz"))
	must(err)
	for _, path := range cases {
		family, name := filepath.Base(filepath.Dir(path)), strings.TrimSuffix(filepath.Base(path), ".json.gz")
		if name == "vocab" || name == "tokenizer" {
			continue
		}
		found++
		if testing.Short() && family == before {
			continue
		}
		before = family
		t.Run(family+"/"+name, func(t *testing.T) {
			t.Parallel()
			g := new(familyGolden)
			must(json.Unmarshal(gunzip(path), g))
			do(t, family, familyDir(t, family, g), g)
		})
	}
	if found < 26 {
		t.Fatalf("%d cases, want 26 and more", found)
	}
}

// familyDir makes a model directory of a family's vocabulary and the configuration files.
func familyDir(t *testing.T, family string, g *familyGolden) string {
	files := make(map[string]string)
	names := append([]string{"vocab.txt", "vocab.json", "merges.txt", "tokenizer.json"}, spmFiles...)
	for _, name := range names {
		if data := kept(family, name); data != nil {
			files[name] = string(data)
		}
	}
	if len(files) == 0 {
		t.Fatalf("no vocabulary of %s: run `make testdata`", family)
	}
	for name, content := range g.Files {
		files[name] = string(content)
	}
	return modelDir(t, files)
}

func shortIDs[T int32 | uint32](ids []T) string {
	sum := sha256.New()
	must(binary.Write(sum, binary.LittleEndian, ids))
	return fmt.Sprintf("%d:%s", len(ids), hex.EncodeToString(sum.Sum(nil))[:16])
}

func digest(rows []string) string {
	sum := sha256.Sum256([]byte(strings.Join(rows, "\n")))
	return hex.EncodeToString(sum[:])
}

// What is built of the files is, part by part, what transformers builds.
func TestFilesMakeTransformersPipeline(t *testing.T) {
	familyCases(t, func(t *testing.T, family, dir string, g *familyGolden) {
		set, err := readSettings(dir)
		must(err)
		_, data, err := fromFiles(dir, set)
		if _, isJSON := g.Files["tokenizer.json"]; family == "modernbert" || family == "llama3" || isJSON {
			data, err = os.ReadFile(filepath.Join(dir, "tokenizer.json"))
			must(err)
			data, err = set.patch("tokenizer.json", data)
		}
		must(err)
		if set.limit() != g.Length {
			t.Errorf("length %d, want %d", set.limit(), g.Length)
		}
		got := make(map[string]any)
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		must(d.Decode(&got))
		condense(got)
		want := g.Pipeline
		// Not in the class that makes them, or without meaning here.
		for _, part := range []map[string]any{got, want} {
			delete(part, "truncation")
			delete(part, "padding")
			delete(part, "decoder")
		}
		gotJSON, err := json.Marshal(got)
		must(err)
		got = nil
		must(json.Unmarshal(gotJSON, &got))
		tok := loadDir(t, dir)
		sortAdded(got, tok)
		for name := range want {
			if !reflect.DeepEqual(got[name], want[name]) {
				a, _ := json.Marshal(got[name])
				b, _ := json.Marshal(want[name])
				t.Errorf("%s is\n%s\nwant\n%s", name, a, b)
			}
		}
	})
}

// sortAdded gives the added tokens the ids that the library gave them, and sorts them.
func sortAdded(doc map[string]any, tok *Tokenizer) {
	added, _ := doc["added_tokens"].([]any)
	for _, a := range added {
		id, ok := tok.TokenToID(a.(map[string]any)["content"].(string))
		if !ok {
			panic("an added token without an id")
		}
		a.(map[string]any)["id"] = float64(id)
	}
	slices.SortFunc(added, func(a, b any) int {
		return int(a.(map[string]any)["id"].(float64) - b.(map[string]any)["id"].(float64))
	})
}

// condense replaces vocabulary, merges and character map by checksums, as in the golden data.
func condense(doc map[string]any) {
	model := doc["model"].(map[string]any)
	var rows []string
	switch vocab := model["vocab"].(type) {
	case []any:
		for _, v := range vocab {
			var bits [8]byte
			score, err := v.([]any)[1].(json.Number).Float64()
			must(err)
			binary.LittleEndian.PutUint64(bits[:], math.Float64bits(score))
			rows = append(rows, v.([]any)[0].(string)+" "+hex.EncodeToString(bits[:]))
		}
	case map[string]any:
		byID := make([]string, 0, len(vocab))
		for token := range vocab {
			byID = append(byID, token)
		}
		id := func(token string) int64 { n, _ := vocab[token].(json.Number).Int64(); return n }
		slices.SortFunc(byID, func(a, b string) int { return int(id(a) - id(b)) })
		for _, token := range byID {
			rows = append(rows, fmt.Sprintf("%s %d", token, id(token)))
		}
	}
	model["vocab"] = digest(rows)
	if merges, ok := model["merges"].([]any); ok {
		rows = nil
		for _, p := range merges {
			rows = append(rows, p.([]any)[0].(string)+" "+p.([]any)[1].(string))
		}
		model["merges"] = digest(rows)
	}
	charsmaps(doc)
}

func charsmaps(v any) {
	switch v := v.(type) {
	case map[string]any:
		if s, ok := v["precompiled_charsmap"].(string); ok {
			v["precompiled_charsmap"] = digest([]string{s})
		}
		for _, x := range v {
			charsmaps(x)
		}
	case []any:
		for _, x := range v {
			charsmaps(x)
		}
	}
}

// Ids of every text, special tokens written out included, and pairs under a limit.
func TestFilesGiveTransformersIDs(t *testing.T) {
	familyCases(t, func(t *testing.T, family, dir string, g *familyGolden) {
		tok := loadDir(t, dir)
		all := append(slices.Clone(moreTexts()), g.Special...)
		if len(all) != len(g.IDs) {
			t.Fatalf("%d texts, %d golden lists of ids", len(all), len(g.IDs))
		}
		// One configuration of each family has the texts of a megabyte. With a number in
		// SIE_TEST_TURN each of them is of one turn of 24, and one of 10 kB and more of eight.
		one := slices.Contains([]string{"plain", "added", "bos"}, filepath.Base(t.Name()))
		number := slices.Index(familyNames(), family)
		of8, of24 := testrig.Part(t, 8), testrig.Part(t, 24)
		var b Batch
		for i, text := range all {
			switch {
			case len(text) > 200<<10 && (testing.Short() || !one || !of24(7*number+i)):
				continue
			case len(text) > 10<<10 && len(text) <= 200<<10 && !of8(number+i):
				continue
			}
			if err := tok.Encode(&b, []string{text}, Options{}); err != nil {
				if stuck(family, text) && errors.Is(err, ErrTooLong) {
					continue
				}
				t.Errorf("text %d (%.40q, %d bytes): %v", i, text, len(text), err)
			} else if got := shortIDs(b.IDs); got != g.IDs[i] {
				t.Errorf("text %d (%.60q): %s %v, want %s", i, text, got, clip(b.IDs), g.IDs[i])
			}
		}
		for _, p := range g.Pairs {
			text := func(i int) string { return runes(texts()[int(p[i].(float64))], 200) }
			opt := Options{MaxTokens: int(p[2].(float64)), OnlySecond: p[3] == "only_second"}
			err := tok.EncodePairs(&b, []string{text(0)}, []string{text(1)}, opt)
			switch {
			case p[4] == nil:
				if err == nil || !strings.Contains(err.Error(), "only the second is cut") {
					t.Errorf("pair %v: %v, want an error", p, err)
				}
			case err != nil:
				t.Errorf("pair %v: %v", p, err)
			case shortIDs(b.IDs) != p[4] || shortIDs(b.TypeIDs) != p[5]:
				t.Errorf("pair %v: ids %s types %s", p, shortIDs(b.IDs), shortIDs(b.TypeIDs))
			}
		}
	})
}

// stuck says which texts have no place to cut: ALBERT's normalizers may make so much of a byte that
// its texts must be cut within 10 kB, and these come without letters.
func stuck(family, text string) bool {
	return family == "albert" && len(text) > 10<<10 && strings.ContainsAny(text, " \n\x00")
}

func TestFilesGiveTransformersPlaces(t *testing.T) {
	familyCases(t, func(t *testing.T, family, dir string, g *familyGolden) {
		tok := loadDir(t, dir)
		some := slices.Clone(texts()[:len(g.Places)-min(40, len(g.Special))])
		some = append(some, g.Special[:min(40, len(g.Special))]...)
		for i, text := range some {
			spans, err := tok.EncodeSpans(t.Context(), []string{text}, Options{})
			must(err)
			var got []int32
			for _, s := range spans[0].Tokens {
				if s.Special() {
					got = append(got, s.ID, 0, 0)
					continue
				}
				a := utf8.RuneCountInString(text[:s.Start])
				got = append(got, s.ID, int32(a), int32(a+utf8.RuneCountInString(text[s.Start:s.End])))
			}
			if shortIDs(got) != g.Places[i] {
				t.Errorf("text %d (%.60q): %v", i, text, got)
			}
		}
	})
}

// Pieces of any size give the ids of the whole text, for every family. With a number in
// SIE_TEST_TURN a text is cut in one of six ways; six turns in a row have all.
func TestFilesInPieces(t *testing.T) {
	familyCases(t, func(t *testing.T, family, dir string, g *familyGolden) {
		tok := loadDir(t, dir)
		var whole, pieces Batch
		tried, equal, stuck := 0, 0, 0
		mine := testrig.Part(t, 6)
		some := append(slices.Clone(moreTexts()), g.Special...)
		for i, text := range some {
			text = runes(strings.Repeat(text+" ", 3), 1500)
			err := tok.Encode(&whole, []string{text}, Options{general: true, whole: true})
			if err != nil {
				t.Fatalf("text %d: %v", i, err)
			}
			for way, size := range []int{24, 100, 324, 24, 100, 324} {
				if !mine(i + way) {
					continue
				}
				tried++
				opt := Options{general: true, piece: size, Left: way < 3}
				switch err := tok.Encode(&pieces, []string{text}, opt); {
				case errors.Is(err, ErrTooLong):
					stuck++
				case err != nil:
					t.Errorf("text %d, pieces of %d: %v", i, size, err)
				case !slices.Equal(pieces.IDs, whole.IDs):
					t.Errorf("text %d (%.60q), pieces of %d: %v, want %v", i, text, size,
						clip(pieces.IDs), clip(whole.IDs))
				default:
					equal++
				}
			}
		}
		if tried < len(some) || equal < 2*tried/3 || stuck > equal/10 {
			t.Errorf("%d of %d are equal, %d could not be cut", equal, tried, stuck)
		}
	})
}

// A text is held up to 2 MiB where a pre-token has no boundary, and refused above.
func TestTextsWithoutACut(t *testing.T) {
	for _, family := range []string{"gpt2", "t5", "mistral"} {
		name := map[string]string{"gpt2": "bos"}[family]
		if name == "" {
			name = "plain"
		}
		g := new(familyGolden)
		must(json.Unmarshal(gunzip(filepath.Join(filesDir, family, name+".json.gz")), g))
		tok := loadDir(t, familyDir(t, family, g))
		var b Batch
		err := tok.Encode(&b, []string{strings.Repeat("the", 1<<20)}, Options{})
		if !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "2097152") {
			t.Errorf("%s: 3 MiB without a boundary: %v", family, err)
		}
		// A limit ends the work before the bound.
		must(tok.Encode(&b, []string{strings.Repeat("a b ", 1<<20)}, Options{MaxTokens: 512}))
		if len(b.IDs) != 512 || !b.Truncated[0] {
			t.Errorf("%s: %d ids", family, len(b.IDs))
		}
	}
}

// Bytes that are no UTF-8, lone surrogates among them, count as U+FFFD, for every family, as in
// Python's decoding with errors="replace".
func TestFilesOfInvalidUTF8(t *testing.T) {
	familyCases(t, func(t *testing.T, family, dir string, g *familyGolden) {
		tok := loadDir(t, dir)
		var got, want Batch
		for text, same := range map[string]string{
			"\xed\xa0\x80":               "\ufffd\ufffd\ufffd",
			"a\xed\xb0\x80b \xed\xa0x":   "a\ufffd\ufffd\ufffdb \ufffd\ufffdx",
			"\xed\xa0\xbd\xed\xb8\x80 c": "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd c",
			"word\xff \xc3 é\xe4\xb8":    "word\ufffd \ufffd é\ufffd",
		} {
			must(tok.Encode(&got, []string{text}, Options{}))
			must(tok.Encode(&want, []string{same}, Options{}))
			if !slices.Equal(got.IDs, want.IDs) {
				t.Errorf("%q: %v, want those of %q: %v", text, got.IDs, same, want.IDs)
			}
		}
	})
}
