package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
)

type object = map[string]any

// variant writes the golden tokenizer of a kind with other stages and more added tokens.
func variant(t testing.TB, kind string, change func(file object)) *Tokenizer {
	t.Helper()
	var file object
	mustJSON(filepath.Join(goldenDir, kind, "tokenizer.json"), &file)
	change(file)
	data, err := json.Marshal(file)
	must(err)
	dir := t.TempDir()
	must(os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o644))
	return loadDir(t, dir)
}

func sequence(parts ...object) object {
	return object{"type": "Sequence", "normalizers": parts}
}

// charsmap compiles a character map as SentencePiece does: a trie in a double array, where each
// node has its own block, and the texts after it.
func charsmap(texts map[string]string) string {
	type node struct {
		next map[byte]*node
		text *string // the replacement of the key that ends here
		base uint32
	}
	root, blocks, all := &node{next: map[byte]*node{}}, uint32(0), ""
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		n := root
		for i := range len(key) {
			if n.next[key[i]] == nil {
				n.next[key[i]] = &node{next: map[byte]*node{}}
			}
			n = n.next[key[i]]
		}
		text := texts[key]
		n.text = &text
	}
	units := make([]uint32, 256)
	var place func(n *node, at uint32, label byte)
	place = func(n *node, at uint32, label byte) {
		blocks++
		n.base = blocks * 256
		units = append(units, make([]uint32, 256)...)
		units[at] = (at^n.base)<<10 | uint32(label)
		if n.text != nil {
			units[at] |= 1 << 8
			units[n.base] = 1<<31 | uint32(len(all))
			all += *n.text + "\x00"
		}
		for c, child := range n.next {
			place(child, n.base^uint32(c), c)
		}
	}
	place(root, 0, 0)
	out := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		out = binary.LittleEndian.AppendUint32(out, u)
	}
	return base64.StdEncoding.EncodeToString(append(out, all...))
}

func add(file object, content string, flags ...string) {
	token := object{
		"id":          len(file["added_tokens"].([]any)) + 900_000,
		"content":     content,
		"single_word": false,
		"lstrip":      false,
		"rstrip":      false,
		"normalized":  false,
		"special":     false,
	}
	for _, f := range flags {
		token[f] = true
	}
	file["added_tokens"] = append(file["added_tokens"].([]any), token)
}

// variants returns tokenizers with every stage that counts as local, and with added tokens that
// look at their neighbours.
func variants(t testing.TB) map[string]*Tokenizer {
	metaspace := func(scheme string) object {
		return object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true}
	}
	normal := func(parts ...object) func(object) {
		return func(file object) { file["normalizer"] = sequence(parts...) }
	}
	kind := func(k string) object { return object{"type": k} }
	replace := func(from, to string) object {
		return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
	}
	spaces := object{"type": "Replace", "pattern": object{"Regex": " {2,}"}, "content": " "}
	all := map[string]*Tokenizer{
		"unigram nfkd stripped lower": variant(t, "xlmr", normal(replace("``", "\""), replace("''", "\""),
			kind("NFKD"), kind("StripAccents"), kind("Lowercase"), spaces)),
		"unigram precompiled": variant(t, "xlmr",
			normal(object{"type": "Precompiled", "precompiled_charsmap": charsmap(map[string]string{
				"ﷺ": "صلى الله عليه وسلم", "ﬁ": "fi", "①": "1", "\t": " ", "\n": " ", "\u00a0": " ",
				"\u3000": " ", "\u200b": "", "\u0301": "", "e\u0301": "é", "е": "'s", "ß": "ss", "中": "word ",
				"か": " the", "カ": "", "B": "the", "ﾞ": "x", "京人": "never",
			})}, spaces)),
		"unigram nfd": variant(t, "xlmr", normal(kind("NFD"))),
		"unigram nfc strip": variant(t, "xlmr",
			normal(kind("NFC"), object{"type": "Strip", "strip_left": true, "strip_right": true})),
		"unigram metaspace first": variant(t, "xlmr",
			func(f object) { f["pre_tokenizer"] = metaspace("first") }),
		"unigram metaspace never": variant(t, "xlmr",
			func(f object) { f["pre_tokenizer"] = metaspace("never") }),
		"unigram white space split": variant(t, "xlmr", func(f object) {
			f["pre_tokenizer"] = object{
				"type": "Sequence", "pretokenizers": []object{kind("WhitespaceSplit"), metaspace("always")},
			}
		}),
		"unigram unsplit": variant(t, "xlmr", func(f object) {
			m := metaspace("always")
			m["split"] = false
			f["pre_tokenizer"] = m
		}),
		"unigram added": variant(t, "xlmr", func(f object) {
			add(f, "word", "single_word")
			add(f, "the", "rstrip")
			add(f, "ing", "lstrip")
			add(f, "Über", "normalized")
			add(f, "北京")
		}),
		"unigram added normalized": variant(t, "xlmr", func(f object) {
			normal(kind("NFKC"), kind("Lowercase"))(f)
			add(f, "WORD", "normalized", "single_word")
			add(f, "a the", "normalized")
		}),
		"roberta nfkc": variant(t, "roberta", normal(kind("NFKC"))),
		"roberta lower, prefix": variant(t, "roberta", func(f object) {
			f["normalizer"] = kind("Lowercase")
			f["pre_tokenizer"].(object)["add_prefix_space"] = true
		}),
		"roberta added": variant(t, "roberta", func(f object) {
			add(f, "word", "single_word", "rstrip")
			add(f, "e the", "lstrip")
		}),
		"word pieces, white space": variant(t, "cased",
			func(f object) { f["pre_tokenizer"] = kind("Whitespace") }),
		"word pieces, digits": variant(t, "cased", func(f object) {
			f["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": []object{
				kind("WhitespaceSplit"), {"type": "Digits", "individual_digits": true},
				{"type": "Punctuation", "behavior": "Isolated"},
			}}
		}),
		"whole text": variant(t, "sentencepiece",
			func(f object) { f["normalizer"] = sequence(kind("NFKC"), replace(" ", "▁")) }),
	}
	for _, k := range kinds {
		all[k.name] = load(t, k.name)
	}
	return all
}

// longText returns long words, runs of one script without spaces, and characters that normalise to
// many.
func longText(r *rand.Rand, bytes int) string {
	letters := []rune("aeinstAEé中国北京人ßйпривет가한ひらがなカタカナﷺﬁ①กขคनमस्ते\u0301\u0327ſΣİŉㄱㅏㄳ\uff9e")
	marks := []rune("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \u0338\ufe0f\u20e3")
	var b strings.Builder
	for b.Len() < bytes {
		switch r.IntN(6) {
		case 5:
			for range r.IntN(30) {
				fmt.Fprintf(&b, "%d%c", r.IntN(12345), marks[r.IntN(len(marks))])
			}
		case 0:
			b.WriteString(randomText(r))
		case 1, 2:
			for range r.IntN(60) {
				b.WriteRune(letters[r.IntN(len(letters))])
			}
		case 3:
			b.WriteString(strings.Repeat(string(letters[r.IntN(len(letters))]), r.IntN(50)))
		case 4:
			b.WriteString([]string{
				" word ", "theword", "it'sstuff we'really don'ted", " the  Über", "ingword the\n",
				"wordthe thea the",
			}[r.IntN(6)])
		}
	}
	return b.String()
}

// TestPiecesGiveTheIDsOfTheWhole checks that cutting a text changes neither its ids, nor those
// within a limit on either side, nor a token's span. The reference is the library's pipeline over
// the whole text. With a number in SIE_TEST_TURN each tokenizer cuts every fourth of its forty
// texts.
func TestPiecesGiveTheIDsOfTheWhole(t *testing.T) {
	for name, tok := range variants(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := testrig.Part(t, 4)
			if testing.Short() {
				mine = func(round int) bool { return round%4 == 0 }
			}
			tried, refused := 0, 0
			for round := range 40 {
				if !mine(round) {
					continue
				}
				tried++
				r := rand.New(rand.NewPCG(11+uint64(round), uint64(len(name))))
				text := strings.ToValidUTF8(longText(r, 200+r.IntN(3000)), "\ufffd")
				if !samePieces(t, tok, text, 24+r.IntN(300), 1+r.IntN(120)) {
					refused++
				}
			}
			if refused > tried/10 {
				t.Errorf("%d of %d texts were refused", refused, tried)
			}
		})
	}
}

// samePieces checks one text. It returns false if the text has no place to cut.
func samePieces(t *testing.T, tok *Tokenizer, text string, piece, limit int) bool {
	t.Helper()
	limit += tok.CountSpecial(false)
	for _, opt := range []Options{{}, {MaxTokens: limit}, {MaxTokens: limit, Left: true}} {
		whole, cut := opt, opt
		whole.general, whole.whole = true, true
		cut.general, cut.piece = true, piece
		var want, got Batch
		must(tok.Encode(&want, []string{text}, whole))
		err := tok.Encode(&got, []string{text}, cut)
		if errors.Is(err, ErrTooLong) {
			return false
		}
		if err != nil {
			t.Fatalf("%q, pieces of %d: %v", text, piece, err)
		}
		if !slices.Equal(got.IDs, want.IDs) || got.Truncated[0] != want.Truncated[0] {
			at := 0
			for at < min(len(got.IDs), len(want.IDs)) && got.IDs[at] == want.IDs[at] {
				at++
			}
			t.Fatalf("%q, pieces of %d, %+v: %d and %d ids differ from %d on:\n got %v\nwant %v",
				text, piece, opt, len(got.IDs), len(want.IDs), at, clip(got.IDs[max(0, at-2):]),
				clip(want.IDs[max(0, at-2):]))
		}
		placed, err := tok.EncodeSpans(t.Context(), []string{text}, whole)
		must(err)
		pieces, err := tok.EncodeSpans(t.Context(), []string{text}, cut)
		if errors.Is(err, ErrTooLong) {
			return false
		}
		must(err)
		if !slices.Equal(pieces[0].Tokens, placed[0].Tokens) || pieces[0].Truncated != placed[0].Truncated {
			t.Fatalf("%q, pieces of %d, %+v: other places\n got %v\nwant %v",
				text, piece, opt, pieces[0].Tokens, placed[0].Tokens)
		}
	}
	return true
}

func FuzzPieces(f *testing.F) {
	for i, s := range texts()[:41] {
		f.Add(s, uint8(i), uint8(i), uint8(i%len(kinds)))
	}
	f.Fuzz(func(t *testing.T, text string, piece, limit, kind uint8) {
		samePieces(t, fuzzed(t, kinds[int(kind)%len(kinds)].name), strings.ToValidUTF8(text, "\ufffd"),
			8+int(piece), 1+int(limit))
	})
}

// A tokenizer whose normalizer may make too much of a text is refused by Load, before it normalises
// anything.
func TestHostileNormalizerIsRefused(t *testing.T) {
	dir := t.TempDir()
	var file object
	mustJSON(filepath.Join(goldenDir, "xlmr", "tokenizer.json"), &file)
	var parts []object
	for range 4 {
		parts = append(parts,
			object{"type": "Replace", "pattern": object{"String": "a"}, "content": strings.Repeat("a", 100)})
	}
	file["normalizer"] = sequence(parts...)
	data, err := json.Marshal(file)
	must(err)
	must(os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o644))
	tok, err := Load(dir)
	if errors.Is(err, ErrNotBuilt) {
		t.Skip("the tokenizer library is not linked: run `make test`")
	}
	if err == nil {
		tok.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "16384") || !strings.Contains(err.Error(), "normalizer") {
		t.Errorf("got %v", err)
	}
}
