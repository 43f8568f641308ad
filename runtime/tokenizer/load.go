package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

const (
	maxTokenizerBytes = 256 << 20 // the largest published files have about 35 MB
	maxConfigBytes    = 16 << 20
	maxModelLength    = 1 << 24 // above this, model_max_length means "no limit"
	maxAdded          = 1 << 16 // tokens added to a vocabulary; published models have some hundreds
)

// bertFlags replaces the flags of the BertNormalizer in tokenizer.json.
type bertFlags struct {
	lowercase, chinese bool
	stripAccents       *bool // nil: as lowercase
}

// Load reads the tokenizer of a model directory as LoadExtra does, without more tokens.
func Load(dir string) (*Tokenizer, error) { return LoadExtra(dir, nil) }

// LoadExtra reads the tokenizer of a model directory. It reads tokenizer.json, or the vocabulary
// files of a family that is known (families.go). The configuration files refine it (settings.go).
// Of truncation and padding in tokenizer.json only the side is read that loses tokens; Options sets
// limits. Errors name the file.
//
// extra lists special tokens that the model was trained with and its files need not have, such as
// the markers of a prompt. Those that the files have keep their ids; the others get the next ones
// in the order given, as add_tokens of transformers gives them.
func LoadExtra(dir string, extra []string) (*Tokenizer, error) {
	set, err := readSettings(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "tokenizer.json")
	data, err := read(path, maxTokenizerBytes)
	flags, refine := set.bertFlags(), refinement{literal: set.SplitSpecial}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		flags, refine.exact = nil, true
		path, data, err = fromFiles(dir, set)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf(
				"tokenizer: %s has no tokenizer.json, no vocab.txt, no vocab.json with merges.txt and no "+
					"SentencePiece model (%s): download the model again with its tokenizer files, or save them "+
					"there with AutoTokenizer.from_pretrained(...).save_pretrained",
				dir, strings.Join(spmFiles, ", "))
		}
	case err == nil:
		data, err = set.patch(path, data)
		refine.exact = set.readsScores()
	}
	if err == nil && len(extra) > 0 {
		data, err = addSpecial(path, data, extra)
	}
	if err != nil {
		return nil, err
	}
	lib, info, err := newLibrary(data, flags)
	if err == nil {
		if err = lib.refine(data, refine); err != nil {
			lib.free()
		}
	}
	if err != nil {
		if errors.Is(err, ErrNotBuilt) {
			return nil, err
		}
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	t := &Tokenizer{lib: lib, info: info, left: set.cutsLeft(data), maxLength: set.limit(),
		cleanup: set.cleansUp(data), types: set.givesTypes(), literal: set.SplitSpecial}
	t.special, err = t.specialIDs(set)
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	t.specials = t.allSpecial(set)
	for _, token := range extra {
		if id, ok := t.TokenToID(token); ok {
			t.specials[id] = true
		}
	}
	return t, nil
}

// refinement is what a tokenizer.json does not say.
type refinement struct {
	literal bool // special tokens in a text are text
	exact   bool // the scores of a Unigram model are read exactly
}

// specialIDs looks up the named tokens. Where the settings name none, it looks for the usual names:
// BERT's when the tokenizer adds one of BERT's tokens to an empty text, else RoBERTa's.
func (t *Tokenizer) specialIDs(set *settings) (SpecialIDs, error) {
	id := func(named tokenValue, usual string) int32 {
		if named.Content != "" {
			usual = named.Content
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
	first, last := id(tokenValue{}, "[CLS]"), id(tokenValue{}, "[SEP]")
	if slices.Contains(frame.IDs, first) || slices.Contains(frame.IDs, last) {
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

// allSpecial looks up all special tokens.
func (t *Tokenizer) allSpecial(set *settings) map[int32]bool {
	s := t.special
	ids := map[int32]bool{s.CLS: true, s.SEP: true, s.PAD: true, s.UNK: true, s.MASK: true}
	tokens := set.extra()
	for _, named := range set.named.all() {
		tokens = append(tokens, *named)
	}
	for _, token := range tokens {
		if id, ok := t.lib.tokenID(token.Content); ok && token.Content != "" {
			ids[id] = true
		}
	}
	delete(ids, -1)
	return ids
}

// bertClasses lists the classes of transformers that set the flags of a BertNormalizer.
var bertClasses = append(slices.Clone(families[0].classes), families[1].classes...)

// bertFlags returns the normalizer flags that transformers' BERT tokenizer takes from its
// configuration, whatever tokenizer.json says; nil for other classes.
func (s *settings) bertFlags() *bertFlags {
	if !slices.Contains(bertClasses, s.reader()) {
		return nil
	}
	return &bertFlags{or(s.Lowercase, true), or(s.Chinese, true), s.StripAccents}
}

// read reads a regular file of at most limit bytes.
func read(path string, limit int64) ([]byte, error) {
	data, err := files.Read(path, limit)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return data, nil
}
