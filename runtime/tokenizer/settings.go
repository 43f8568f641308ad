package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// settings holds what tokenizer_config.json, special_tokens_map.json, added_tokens.json and
// config.json say about a tokenizer. All of them are optional.
type settings struct {
	Class          string  `json:"tokenizer_class"`
	MaxLength      float64 `json:"model_max_length"` // often 1e30
	MaxLen         float64 `json:"max_len"`          // its older name
	TruncationSide string  `json:"truncation_side"`
	// Inputs lists what a model gets of a text; nil: the class decides.
	Inputs []string `json:"model_input_names"`

	Lowercase    *bool `json:"do_lower_case"`
	Chinese      *bool `json:"tokenize_chinese_chars"`
	StripAccents *bool `json:"strip_accents"`
	KeepAccents  bool  `json:"keep_accents"`
	SplitByPunct bool  `json:"split_by_punct"`

	AddBOS      bool  `json:"add_bos_token"`
	AddEOS      bool  `json:"add_eos_token"`
	PrefixSpace *bool `json:"add_prefix_space"`
	TrimOffsets *bool `json:"trim_offsets"`
	Legacy      bool  `json:"legacy"`
	ExtraIDs    *int  `json:"extra_ids"`
	// SplitSpecial: a special token that is written in a text is text.
	SplitSpecial bool `json:"split_special_tokens"`
	Cleanup      bool `json:"clean_up_tokenization_spaces"`
	CleanupBPE   bool `json:"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"`

	named
	AutoMap    codeClasses           `json:"auto_map"`
	Extra      extraTokens           `json:"extra_special_tokens"`
	Additional extraTokens           `json:"additional_special_tokens"`
	Added      map[string]tokenValue `json:"added_tokens_decoder"`

	addedFile map[string]int // added_tokens.json: ids by token
	modelType string         // of config.json
	modelSays string         // tokenizer_class of config.json
}

// named holds the special tokens that have names, in the order in which transformers adds them.
type named struct {
	BOS  tokenValue `json:"bos_token"`
	EOS  tokenValue `json:"eos_token"`
	UNK  tokenValue `json:"unk_token"`
	SEP  tokenValue `json:"sep_token"`
	PAD  tokenValue `json:"pad_token"`
	CLS  tokenValue `json:"cls_token"`
	MASK tokenValue `json:"mask_token"`
}

func (n *named) all() [7]*tokenValue {
	return [7]*tokenValue{&n.BOS, &n.EOS, &n.UNK, &n.SEP, &n.PAD, &n.CLS, &n.MASK}
}

// tokenValue is a token in a configuration: a string, or an object with its content and its flags.
type tokenValue struct {
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized *bool  `json:"normalized"` // nil: true unless it is special
	Special    bool   `json:"special"`

	present bool // the file has it, as null at least
}

func (t *tokenValue) UnmarshalJSON(b []byte) error {
	*t = tokenValue{present: true}
	switch {
	case bytes.Equal(b, []byte("null")):
		return nil
	case len(b) > 0 && b[0] == '{':
		type plain tokenValue
		err := json.Unmarshal(b, (*plain)(t))
		t.present = true
		return err
	}
	t.Special, t.Normalized = true, new(bool)
	return json.Unmarshal(b, &t.Content)
}

// added returns the token as an entry of tokenizer.json.
func (t tokenValue) added(special bool) addedToken {
	special = special || t.Special
	normalized := !special
	if t.Normalized != nil {
		normalized = *t.Normalized
	}
	return addedToken{Content: t.Content, SingleWord: t.SingleWord, Lstrip: t.Lstrip, Rstrip: t.Rstrip,
		Normalized: normalized, Special: special}
}

// extraTokens is a list of tokens, or an object of tokens by name.
type extraTokens []tokenValue

func (e *extraTokens) UnmarshalJSON(b []byte) error {
	*e = nil
	if len(b) == 0 || b[0] != '{' {
		return json.Unmarshal(b, (*[]tokenValue)(e))
	}
	// Tokens by name are added in the order of the file.
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		if _, err := d.Token(); err != nil {
			return err
		}
		var t tokenValue
		if err := d.Decode(&t); err != nil {
			return err
		}
		*e = append(*e, t)
	}
	return nil
}

// readSettings reads the configuration files of a model directory. Errors name the file and, where
// a value has the wrong type, the field.
func readSettings(dir string) (*settings, error) {
	set := new(settings)
	if err := readJSON(filepath.Join(dir, "tokenizer_config.json"), set); err != nil {
		return nil, err
	}
	for id := range set.Added {
		if n, err := strconv.Atoi(id); err != nil || n < 0 {
			return nil, fmt.Errorf("tokenizer: %s: added_tokens_decoder: %q is not a token id",
				filepath.Join(dir, "tokenizer_config.json"), id)
		}
	}
	if set.ExtraIDs != nil && (*set.ExtraIDs < 0 || *set.ExtraIDs > maxAdded) {
		return nil, fmt.Errorf("tokenizer: %s: extra_ids is %d, want 0 to %d",
			filepath.Join(dir, "tokenizer_config.json"), *set.ExtraIDs, maxAdded)
	}
	if set.Added == nil {
		// As in transformers, these files count only where the configuration lists no tokens, and
		// the later file wins.
		var special struct {
			named
			Extra      extraTokens `json:"extra_special_tokens"`
			Additional extraTokens `json:"additional_special_tokens"`
		}
		if err := readJSON(filepath.Join(dir, "special_tokens_map.json"), &special); err != nil {
			return nil, err
		}
		for i, t := range special.all() {
			if t.present {
				t.Special = true
				*set.named.all()[i] = *t
			}
		}
		if special.Additional != nil {
			set.Additional = special.Additional
		}
		set.Extra = append(set.Extra, special.Extra...)
		if err := readJSON(filepath.Join(dir, "added_tokens.json"), &set.addedFile); err != nil {
			return nil, err
		}
	}
	var model struct {
		Type  string `json:"model_type"`
		Class string `json:"tokenizer_class"`
	}
	if err := readJSON(filepath.Join(dir, "config.json"), &model); err != nil {
		return nil, err
	}
	set.modelType, set.modelSays = model.Type, strings.TrimSuffix(model.Class, "Fast")
	return set, nil
}

// class returns the name of the tokenizer class without its ending "Fast"; "" where no file names
// one that says anything.
func (s *settings) class() string {
	for _, class := range []string{strings.TrimSuffix(s.Class, "Fast"), s.modelSays} {
		if class != "" && !slices.Contains(generic, class) {
			return class
		}
	}
	return ""
}

// givesTypes reports whether a model gets the types of a pair's tokens. The one class that is named
// here came with a release of transformers in which classes give none unless they say so; in those
// before it they do.
func (s *settings) givesTypes() bool {
	if s.Inputs == nil {
		return s.Class != "TokenizersBackend"
	}
	return slices.Contains(s.Inputs, "token_type_ids")
}

// reader returns the class with which transformers reads a tokenizer.json: the first that a file
// names, though it be generic, or else that of the model's type. "": none.
func (s *settings) reader() string {
	class := strings.TrimSuffix(s.Class, "Fast")
	if class == "" {
		class = s.modelSays
	}
	if class == "" {
		class = classOfModel(s.modelType)
	}
	return class
}

// generic lists the classes that take whatever tokenizer.json says.
var generic = []string{"PreTrainedTokenizer", "TokenizersBackend", "PythonBackend"}

// limit returns the model's length, or 0 if there is none.
func (s *settings) limit() int {
	n := s.MaxLength
	if n == 0 {
		n = s.MaxLen
	}
	if n < 1 || n > maxModelLength {
		return 0
	}
	return int(n)
}

// extra returns the tokens that are special and have no name.
func (s *settings) extra() []tokenValue {
	if len(s.Extra) > 0 {
		return s.Extra
	}
	return s.Additional
}

// or returns *b, or unset if there is none.
func or[T any](b *T, unset T) T {
	if b == nil {
		return unset
	}
	return *b
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
