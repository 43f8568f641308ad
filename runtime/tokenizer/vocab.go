package tokenizer

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// fromVocab builds the tokenizer.json that transformers' converter makes of a BERT vocab.txt. That
// file has one token per line; the line's number, from 0, is the id.
func fromVocab(dir string, set *settings) ([]byte, error) {
	path := filepath.Join(dir, "vocab.txt")
	data, err := read(path, maxConfigBytes)
	if err != nil {
		return nil, err
	}
	if !set.knownClass() {
		return nil, fmt.Errorf(
			"tokenizer: %s has no tokenizer.json and its tokenizer_class %q cannot be built from vocab.txt: "+
				"save it with AutoTokenizer.from_pretrained(...).save_pretrained", dir, set.Class)
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("tokenizer: %s is not UTF-8", path)
	}
	text := strings.TrimSuffix(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	vocab := make(map[string]int)
	for i, line := range strings.Split(text, "\n") {
		vocab[line] = i
	}

	name := func(s specialToken, usual string) string {
		if s == "" {
			return usual
		}
		return string(s)
	}
	cls, sep, unk := name(set.CLS, "[CLS]"), name(set.SEP, "[SEP]"), name(set.UNK, "[UNK]")
	for _, s := range []string{cls, sep, unk} {
		if _, ok := vocab[s]; !ok {
			return nil, fmt.Errorf(
				"tokenizer: %s lacks the special token %q: is it the vocabulary of a BERT model?", path, s)
		}
	}
	var added []addedToken
	for _, s := range []string{name(set.PAD, "[PAD]"), unk, cls, sep, name(set.MASK, "[MASK]")} {
		if id, ok := vocab[s]; ok {
			added = append(added, addedToken{ID: id, Content: s, Special: true})
		}
	}
	flags := (&settings{
		Class: "BertTokenizer", Lowercase: set.Lowercase, Chinese: set.Chinese,
		StripAccents: set.StripAccents,
	}).bertFlags()

	type m = map[string]any
	special := func(token string, kind int) m { return m{"SpecialToken": m{"id": token, "type_id": kind}} }
	sequence := func(id string, kind int) m { return m{"Sequence": m{"id": id, "type_id": kind}} }
	single := []m{special(cls, 0), sequence("A", 0), special(sep, 0)}
	use := func(token string) m {
		return m{"id": token, "ids": []int{vocab[token]}, "tokens": []string{token}}
	}
	return json.Marshal(m{
		"version":      "1.0",
		"added_tokens": added,
		"normalizer": m{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": flags.chinese,
			"strip_accents": flags.stripAccents, "lowercase": flags.lowercase},
		"pre_tokenizer": m{"type": "BertPreTokenizer"},
		"post_processor": m{"type": "TemplateProcessing", "single": single,
			"pair":           append(single[:3:3], sequence("B", 1), special(sep, 1)),
			"special_tokens": m{cls: use(cls), sep: use(sep)}},
		"decoder": m{"type": "WordPiece", "prefix": "##", "cleanup": true},
		"model": m{"type": "WordPiece", "unk_token": unk, "continuing_subword_prefix": "##",
			"max_input_chars_per_word": 100, "vocab": vocab},
	})
}
