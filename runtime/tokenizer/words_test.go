package tokenizer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const wordsDir = "../../testdata/golden/word-tokens"

// wordMarkers are the tokens that tools/golden/word_tokens.py adds to each vocabulary.
var wordMarkers = []string{"[FLERT]", "<<ENT>>", "<<SEP>>"}

// loadMarked opens a golden tokenizer with markers, and returns their ids.
func loadMarked(t testing.TB, kind string) (*Tokenizer, []int32) {
	t.Helper()
	dir := filepath.Join(goldenDir, kind)
	load(t, kind) // skips the test without the library
	tok, err := LoadExtra(dir, wordMarkers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tok.Close() })
	var ids []int32
	for _, marker := range wordMarkers {
		id, ok := tok.TokenToID(marker)
		if !ok || !tok.IsSpecial(id) {
			t.Fatalf("%s: no special token %s", kind, marker)
		}
		ids = append(ids, id)
	}
	return tok, ids
}

// wordItems returns the items of the golden data; their markers are given by id.
func wordItems(markers []int32) []Words {
	var raw []struct {
		Words []string
		Marks []int
	}
	mustJSON(filepath.Join(wordsDir, "items.json"), &raw)
	var out []Words
	for _, r := range raw {
		item := Words{Texts: r.Words, Marks: make([]int32, len(r.Words))}
		for i := range item.Marks {
			item.Marks[i] = -1
		}
		for _, i := range r.Marks {
			item.Marks[i] = markers[slices.Index(wordMarkers, r.Words[i])]
		}
		out = append(out, item)
	}
	return out
}

// Items split into words have the ids and the word numbers of the library, whole and cut.
func TestWordsEqualPython(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			tok, markers := loadMarked(t, k.name)
			var g struct {
				Extra []int32
				Rows  []struct {
					IDs, Words []int32
					Plain      int
					Cut        [][]int32
				}
			}
			mustJSON(filepath.Join(wordsDir, k.name+".json"), &g)
			if !slices.Equal(markers, g.Extra) {
				t.Fatalf("markers have the ids %v, want %v", markers, g.Extra)
			}
			items := wordItems(markers)
			if len(items) != len(g.Rows) || len(items) < 40 {
				t.Fatalf("%d items and %d rows", len(items), len(g.Rows))
			}
			var b WordBatch
			encode := func(opt WordOptions) {
				t.Helper()
				opt.Reserved = markers
				if err := tok.EncodeWords(context.Background(), &b, items, opt); err != nil {
					t.Fatal(err)
				}
			}
			encode(WordOptions{})
			for i, row := range g.Rows {
				ids, words := b.Item(i)
				if !slices.Equal(ids, row.IDs) || !slices.Equal(words, row.Words) || b.Truncated[i] {
					t.Errorf("item %d: ids %v of words %v, want %v of %v", i, clip(ids), clip(words),
						clip(row.IDs), clip(row.Words))
				}
			}
			encode(WordOptions{NoSpecial: true})
			for i, row := range g.Rows {
				if ids, words := b.Item(i); len(ids) != row.Plain || slices.Contains(words, -1) {
					t.Errorf("item %d: %d ids without special tokens, want %d", i, len(ids), row.Plain)
				}
			}
			for c, limit := range []int{6, 17} {
				encode(WordOptions{MaxTokens: limit})
				for i, row := range g.Rows {
					if ids, _ := b.Item(i); !slices.Equal(ids, row.Cut[c]) ||
						b.Truncated[i] != (len(row.IDs) > limit) {
						t.Errorf("item %d: %d tokens: ids %v, want %v", i, limit, ids, row.Cut[c])
					}
				}
			}
		})
	}
}

// A marker is a token where it is given. Where a user writes one, alone or in a word, its
// characters are text.
func TestWrittenMarkersAreText(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			tok, markers := loadMarked(t, k.name)
			item := Words{Texts: []string{"<<ENT>>", "<<ENT>>", "x<<SEP>>y"},
				Marks: []int32{markers[1], -1, -1}}
			var b, plain WordBatch
			opt := WordOptions{NoSpecial: true, Reserved: markers}
			if err := tok.EncodeWords(context.Background(), &b, []Words{item}, opt); err != nil {
				t.Fatal(err)
			}
			if b.IDs[0] != markers[1] {
				t.Errorf("the first id is %d, want the marker %d", b.IDs[0], markers[1])
			}
			for i, id := range b.IDs[1:] {
				if slices.Contains(markers, id) {
					t.Errorf("token %d of a written word is the marker %d", i+1, id)
				}
			}
			// The text is the one that a tokenizer without the markers reads.
			bare := load(t, k.name)
			item.Marks = nil
			if err := bare.EncodeWords(context.Background(), &plain, []Words{item},
				WordOptions{NoSpecial: true}); err != nil {
				t.Fatal(err)
			}
			second := slices.Index(plain.Words, 1)
			if !slices.Equal(b.IDs[1:], plain.IDs[second:]) {
				t.Errorf("ids %v, want %v", b.IDs[1:], plain.IDs[second:])
			}
			// Without a list of reserved tokens the library's reading stands.
			if err := tok.EncodeWords(context.Background(), &b, []Words{item},
				WordOptions{NoSpecial: true}); err != nil {
				t.Fatal(err)
			}
			if b.IDs[0] != markers[1] || !slices.Contains(b.IDs, markers[2]) {
				t.Errorf("ids %v have no markers", b.IDs)
			}
		})
	}
}

// A word that is a reserved token in the vocabulary itself cannot be text: its item fails.
func TestReservedWordsOfTheVocabulary(t *testing.T) {
	tok := load(t, "minilm")
	the, ok := tok.TokenToID("the")
	if !ok {
		t.Fatal("no token")
	}
	items := []Words{{Texts: []string{"a"}}, {Texts: []string{"a", "the"}}}
	var b WordBatch
	var e *TextError
	err := tok.EncodeWords(context.Background(), &b, items, WordOptions{Reserved: []int32{the}})
	if !errors.As(err, &e) || e.Index != 1 || !strings.Contains(err.Error(), "word 1") || len(b.IDs) > 0 {
		t.Errorf("error %v, %d ids", err, len(b.IDs))
	}
}

// Large calls, in many chunks, give each item what it has alone, whatever room it needs.
func TestWordsOfManyItems(t *testing.T) {
	tok, markers := loadMarked(t, "xlmr")
	small := wordItems(markers)
	var items []Words
	for i := range 1500 {
		items = append(items, small[i%len(small)])
	}
	items = append(items, Words{Texts: []string{strings.Repeat("\u0301x", 3000)}}, Words{})
	var b, one WordBatch
	if err := tok.EncodeWords(context.Background(), &b, items, WordOptions{}); err != nil {
		t.Fatal(err)
	}
	if chunks := wordChunks(items); len(chunks) < 4 {
		t.Fatalf("%d chunks: the test proves little", len(chunks))
	}
	for i := len(items) - 60; i < len(items); i++ {
		if err := tok.EncodeWords(context.Background(), &one, items[i:i+1], WordOptions{}); err != nil {
			t.Fatal(err)
		}
		ids, words := b.Item(i)
		if !slices.Equal(ids, one.IDs) || !slices.Equal(words, one.Words) {
			t.Errorf("item %d has other tokens alone", i)
		}
	}
}

func TestWordTokens(t *testing.T) {
	tok := load(t, "minilm")
	encode := tok.WordTokens(context.Background(), nil)
	ids, ends, err := encode([]string{"tokenizer", "\u200b", "a"}, []int32{7}, []int{1})
	if err != nil {
		t.Fatal(err)
	}
	if len(ends) != 4 || ends[1] < 3 || ends[2] != ends[1] || ends[3] != ends[2]+1 || ends[3] != len(ids) ||
		ids[0] != 7 {
		t.Errorf("ids %v, ends %v", ids, ends)
	}
}

func TestWordsFail(t *testing.T) {
	tok := load(t, "minilm")
	var b WordBatch
	var e *TextError
	ctx := context.Background()
	item := []Words{{Texts: []string{"a"}}}
	if err := tok.EncodeWords(ctx, &b, item, WordOptions{MaxTokens: 1}); !errors.As(err, &e) ||
		!errors.Is(err, ErrNoRoom) {
		t.Errorf("no room: %v", err)
	}
	beyond := []Words{{}, {Texts: []string{"a"}, Marks: []int32{int32(tok.VocabSize())}}}
	if err := tok.EncodeWords(ctx, &b, beyond, WordOptions{}); !errors.As(err, &e) || e.Index != 1 {
		t.Errorf("a token outside the vocabulary: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := tok.EncodeWords(done, &b, item, WordOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := tok.EncodeWords(ctx, &b, nil, WordOptions{}); err != nil || len(b.Ends) != 0 {
		t.Errorf("no items: %v", err)
	}
	if err := tok.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tok.EncodeWords(ctx, &b, item, WordOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// The flag stops a call among its words.
func TestWordsStopInside(t *testing.T) {
	tok := load(t, "minilm")
	stop := uint32(1)
	item := []Words{{Texts: slices.Repeat([]string{"word"}, 1000)}}
	var b WordBatch
	err := tok.words(&b, item, wordChunk{0, 1, 1000, 4000}, WordOptions{}, &stop)
	if !errors.Is(err, errStopped) {
		t.Errorf("error %v", err)
	}
}

// Whatever the words are, ids and word numbers agree, ascend and respect the limit.
func FuzzWords(f *testing.F) {
	tok, markers := loadMarked(f, "llama")
	f.Add("a b <<ENT>> \xff", uint8(5))
	f.Add("", uint8(0))
	f.Fuzz(func(t *testing.T, text string, limit uint8) {
		var b WordBatch
		item := Words{Texts: strings.Split(text, " ")}
		opt := WordOptions{Reserved: markers, MaxTokens: int(limit)}
		if limit > 0 {
			opt.MaxTokens += tok.CountSpecial(false)
		}
		if err := tok.EncodeWords(context.Background(), &b, []Words{item}, opt); err != nil {
			t.Fatal(err)
		}
		last := int32(0)
		for i, w := range b.Words {
			if slices.Contains(markers, b.IDs[i]) {
				t.Fatalf("token %d is a marker", i)
			}
			if w >= 0 && (w < last || int(w) >= len(item.Texts)) {
				t.Fatalf("words %v", b.Words)
			}
			last = max(last, w)
		}
		if len(b.IDs) != len(b.Words) || opt.MaxTokens > 0 && len(b.IDs) > opt.MaxTokens {
			t.Fatalf("%d ids, %d words; at most %d", len(b.IDs), len(b.Words), opt.MaxTokens)
		}
	})
}

// added_tokens.json counts beside a tokenizer.json without those tokens, as in transformers: they
// get the next ids, whatever the file says.
func TestAddedTokensBesideTokenizer(t *testing.T) {
	base := load(t, "xlmr")
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join(goldenDir, "xlmr", "tokenizer.json"))
	must(err)
	must(os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o600))
	must(os.WriteFile(filepath.Join(dir, "added_tokens.json"),
		[]byte(`{"<<ENT>>": 90001, "<<SEP>>": 90002}`), 0o600))
	tok := loadDir(t, dir)
	for i, token := range []string{"<<ENT>>", "<<SEP>>"} {
		if id, ok := tok.TokenToID(token); !ok || int(id) != base.VocabSize()+i {
			t.Errorf("%s has the id %d, %v; want %d", token, id, ok, base.VocabSize()+i)
		}
	}
}
