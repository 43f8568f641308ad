package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/sie-engine/sie/internal/files"
)

const (
	maxTokenizerBytes = 256 << 20 // the largest published files have about 35 MB
	maxConfigBytes    = 16 << 20
	maxModelLength    = 1 << 24 // above this, model_max_length means "no limit"
)

// settings holds tokenizer_config.json and special_tokens_map.json; both are optional.
type settings struct {
	Class          string       `json:"tokenizer_class"`
	MaxLength      float64      `json:"model_max_length"` // often 1e30
	TruncationSide string       `json:"truncation_side"`
	Lowercase      *bool        `json:"do_lower_case"`
	Chinese        *bool        `json:"tokenize_chinese_chars"`
	StripAccents   *bool        `json:"strip_accents"`
	CLS            specialToken `json:"cls_token"`
	SEP            specialToken `json:"sep_token"`
	PAD            specialToken `json:"pad_token"`
	UNK            specialToken `json:"unk_token"`
	MASK           specialToken `json:"mask_token"`
}

// specialToken is a string in the file, or an object with its content; null leaves it empty.
type specialToken string

func (s *specialToken) UnmarshalJSON(b []byte) error {
	var object struct {
		Content string `json:"content"`
	}
	if len(b) > 0 && b[0] == '{' {
		err := json.Unmarshal(b, &object)
		*s = specialToken(object.Content)
		return err
	}
	return json.Unmarshal(b, (*string)(s))
}

// bertFlags replaces the flags of the BertNormalizer in tokenizer.json.
type bertFlags struct {
	lowercase, chinese bool
	stripAccents       *bool // nil: as lowercase
}

// Load reads the tokenizer of a model directory. It reads tokenizer.json, or vocab.txt if a BERT
// model has only that. tokenizer_config.json and special_tokens_map.json refine it. Truncation and
// padding in tokenizer.json are ignored; Options sets limits. Errors name the file.
func Load(dir string) (*Tokenizer, error) {
	var set settings
	// The later file wins, as in transformers. It holds only special tokens.
	for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		if err := readJSON(filepath.Join(dir, name), &set); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, "tokenizer.json")
	data, err := read(path, maxTokenizerBytes)
	flags := set.bertFlags()
	if errors.Is(err, fs.ErrNotExist) {
		path = filepath.Join(dir, "vocab.txt")
		data, err = fromVocab(dir, &set)
		flags = nil
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf(
				"tokenizer: %s has no tokenizer.json (nor the vocab.txt of a BERT model): "+
					"download the model again with its tokenizer files, or save them there with AutoTokenizer.from_pretrained(...).save_pretrained",
				dir)
		}
	}
	if err != nil {
		return nil, err
	}
	lib, info, err := newLibrary(data, flags)
	if err != nil {
		if errors.Is(err, ErrNotBuilt) {
			return nil, err
		}
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	t := &Tokenizer{lib: lib, info: info, left: set.TruncationSide == "left"}
	if set.MaxLength > 0 && set.MaxLength <= maxModelLength {
		t.maxLength = int(set.MaxLength)
	}
	t.special, err = t.specialIDs(&set)
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	return t, nil
}

// specialIDs looks up the named tokens. Where the settings name none, it looks for the usual names:
// BERT's when the tokenizer adds one of BERT's tokens to an empty text, else RoBERTa's.
func (t *Tokenizer) specialIDs(set *settings) (SpecialIDs, error) {
	id := func(named specialToken, usual string) int32 {
		if named != "" {
			usual = string(named)
		}
		if id, ok := t.lib.tokenID(usual); ok {
			return id
		}
		return -1
	}
	var frame Batch
	if err := t.Encode(&frame, []string{""}, Options{}); err != nil {
		return SpecialIDs{}, err
	}
	usual := [5]string{"<s>", "</s>", "<pad>", "<unk>", "<mask>"}
	if slices.Contains(frame.IDs, id("", "[CLS]")) || slices.Contains(frame.IDs, id("", "[SEP]")) {
		usual = [5]string{"[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"}
	}
	return SpecialIDs{
		CLS:  id(set.CLS, usual[0]),
		SEP:  id(set.SEP, usual[1]),
		PAD:  id(set.PAD, usual[2]),
		UNK:  id(set.UNK, usual[3]),
		MASK: id(set.MASK, usual[4]),
	}, nil
}

// bertClasses lists transformers' BERT tokenizer and the classes that derive from it unchanged.
var bertClasses = []string{"BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer",
	"DistilBertTokenizerFast", "ElectraTokenizer", "ElectraTokenizerFast"}

// bertFlags returns the normalizer flags that transformers' BERT tokenizer takes from its
// configuration, whatever tokenizer.json says; nil for other classes.
func (s *settings) bertFlags() *bertFlags {
	if !slices.Contains(bertClasses, s.Class) {
		return nil
	}
	or := func(b *bool, unset bool) bool {
		if b == nil {
			return unset
		}
		return *b
	}
	return &bertFlags{or(s.Lowercase, true), or(s.Chinese, true), s.StripAccents}
}

// readJSON decodes a file into v. A missing file changes nothing.
func readJSON(path string, v any) error {
	data, err := read(path, maxConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	return nil
}

// read reads a regular file of at most limit bytes.
func read(path string, limit int64) ([]byte, error) {
	data, err := files.Read(path, limit)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return data, nil
}

// knownClass reports whether a vocab.txt under these settings is a BERT WordPiece vocabulary.
func (s *settings) knownClass() bool {
	return s.Class == "" || slices.Contains(bertClasses, s.Class)
}
