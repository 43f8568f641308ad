// Package tokenizer turns texts into packed token ids, the same ids as the Python tokenizers
// library. It reads a model's tokenizer.json, or the vocabulary files of the families in
// families.go: vocab.txt, vocab.json with merges.txt, or a SentencePiece model.
//
// Load reads a model directory. Encode and EncodePairs fill a Batch on the caller's goroutine;
// EncodeParallel and EncodePairsParallel spread the texts over the cores and can be cancelled. A
// Tokenizer is safe for concurrent use; all of them together run on at most GOMAXPROCS threads.
//
// Work stops at Options.MaxTokens, and memory is bounded whatever a text normalises to. BERT texts
// stream. Every other text goes through the library in pieces of at most 32 KiB; pieces are smaller
// where one byte may become more than 128 bytes (rust/src/bound.rs). A cut lies where no stage
// looks across it (rust/src/cut.rs), and a word that runs through a cut is tokenized as one word
// (rust/src/long.rs), so the ids are those of the whole text. Text without a place to cut is
// refused above MaxWholeBytes at the latest (ErrTooLong). A tokenizer with a stage that is not
// known to be local takes whole texts up to that bound.
//
// Each invalid sequence of UTF-8, taken as long as possible, counts as one U+FFFD, as in Python's
// and the web's decoders. Whether such a text is refused is decided earlier, in the API. NUL is a
// character.
//
// A Rust library behind cgo (build tag "native") does the work. Without the tag every Load returns
// ErrNotBuilt. The package does not pad, does not add prompts or templates, and does not log.
package tokenizer

import (
	"errors"
	"fmt"
	"sync"
)

// MaxWholeBytes bounds the bytes of a text without a place to cut. The bound is lower where the
// text may grow when it is normalised. BERT tokenizers have no such bound. The general pipeline
// needs about sixty bytes of memory for each byte of normalised text.
const MaxWholeBytes = 256 << 10

var (
	// ErrNotBuilt is returned by Load in a binary built without the tokenizer library.
	ErrNotBuilt = errors.New("tokenizer: built without the tokenizer library; run `make build` (tag native)")
	// ErrClosed is returned by every method that needs the library after Close.
	ErrClosed = errors.New("tokenizer: closed")
	// ErrTooLong is wrapped by the TextError of a text that must be cut and has no place for it.
	ErrTooLong = errors.New("the text has no place where it could be cut")
	// ErrNoRoom is wrapped when Options.MaxTokens is below the number of special tokens.
	ErrNoRoom = errors.New("max tokens is below the number of special tokens")
)

// TextError is the failure of one text. It fails the whole call.
type TextError struct {
	Index int // of the text or pair in the call
	Err   error
}

func (e *TextError) Error() string { return fmt.Sprintf("tokenizer: text %d: %v", e.Index, e.Err) }
func (e *TextError) Unwrap() error { return e.Err }

// Options configures one call.
type Options struct {
	// MaxTokens is the number of tokens kept per text or pair, special tokens included; 0 or less
	// keeps all. The longer text of a pair is cut first, unless OnlySecond or OnlyFirst says else.
	MaxTokens int
	// Left keeps the end of a text that is too long, not its start. A tokenizer whose files say
	// that it cuts at the left always does.
	Left bool
	// OnlySecond cuts only the second text of a pair. A first text that leaves it no token is an
	// error.
	OnlySecond bool
	// OnlyFirst cuts only the first text of a pair, as long as the second leaves it a token.
	OnlyFirst bool
	// NoSpecial leaves out the special tokens.
	NoSpecial bool

	// For tests, which compare the paths: general always uses the library's pipeline, whole forbids
	// cuts, and piece (if not 0) cuts after that many bytes.
	general, whole bool
	piece          int
}

// Batch is the packed result of a call. The slices belong to the caller, who may reuse the Batch: a
// call overwrites it and keeps its memory. After an error the Batch is empty.
type Batch struct {
	IDs       []int32 // all texts, end to end
	Ends      []int32 // Ends[i] is where text i ends in IDs
	TypeIDs   []int32 // like IDs: 0 for the first text of a pair, 1 for the second; empty without pairs
	Truncated []bool  // Truncated[i]: MaxTokens removed tokens of text i
}

// Len returns the number of texts (or pairs).
func (b *Batch) Len() int { return len(b.Ends) }

// Text returns the ids of text i, a view of IDs.
func (b *Batch) Text(i int) []int32 {
	from := int32(0)
	if i > 0 {
		from = b.Ends[i-1]
	}
	return b.IDs[from:b.Ends[i]:b.Ends[i]]
}

func (b *Batch) reset() {
	b.IDs, b.Ends, b.TypeIDs, b.Truncated = b.IDs[:0], b.Ends[:0], b.TypeIDs[:0], b.Truncated[:0]
}

// SpecialIDs holds the ids of the named special tokens; -1 where the model has none.
type SpecialIDs struct {
	CLS, SEP, PAD, UNK, MASK int32
}

// Tokenizer is one loaded tokenizer.
type Tokenizer struct {
	mu  sync.RWMutex // held for reading during each call of the library; Close takes it
	lib library      // zero after Close

	info      info
	maxLength int
	left      bool
	types     bool // GivesTypes
	literal   bool // special tokens in a text are text, which the fast BERT pass does not know
	cleanup   bool // of decoded texts
	special   SpecialIDs
	specials  map[int32]bool // IsSpecial
}

// info describes a loaded library object.
type info struct {
	vocabSize    int
	specials     int
	pairSpecials int
	streaming    bool // the fast BERT pass applies
	cuttable     bool // the general pipeline can stop at a limit
}

// VocabSize returns the largest id plus one.
func (t *Tokenizer) VocabSize() int { return t.info.vocabSize }

// MaxLength returns model_max_length of tokenizer_config.json, or 0 if there is no limit.
func (t *Tokenizer) MaxLength() int { return t.maxLength }

// CountSpecial returns the number of special tokens added to one text, or to a pair.
func (t *Tokenizer) CountSpecial(pair bool) int {
	if pair {
		return t.info.pairSpecials
	}
	return t.info.specials
}

// Special returns the ids of the named special tokens.
func (t *Tokenizer) Special() SpecialIDs { return t.special }

// IsSpecial reports whether id is of a token that has a name in the settings, as in Special, or is
// one of their extra special tokens: one of transformers' all_special_ids.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.specials[id] }

// GivesTypes reports whether the model gets Batch.TypeIDs. Where its files leave them out, all its
// tokens have the type 0.
func (t *Tokenizer) GivesTypes() bool { return t.types }

// CheckIDs reports the first id outside the vocabulary.
func (t *Tokenizer) CheckIDs(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= t.info.vocabSize {
			return fmt.Errorf("tokenizer: id %d at position %d is outside the vocabulary (0 to %d)",
				id, i, t.info.vocabSize-1)
		}
	}
	return nil
}

// TokenToID returns the id of a token given by its exact text. It returns false if the token is
// unknown or the tokenizer is closed.
func (t *Tokenizer) TokenToID(token string) (int32, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.lib.open() {
		return 0, false
	}
	return t.lib.tokenID(token)
}

// Decode returns the text of ids without special tokens. It fails for ids outside the vocabulary.
func (t *Tokenizer) Decode(ids []int32) (string, error) { return t.decode(ids, true) }

// DecodeAll returns the text of ids with the special tokens. It fails as Decode does.
func (t *Tokenizer) DecodeAll(ids []int32) (string, error) { return t.decode(ids, false) }

func (t *Tokenizer) decode(ids []int32, skipSpecial bool) (string, error) {
	if err := t.CheckIDs(ids); err != nil {
		return "", err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.lib.open() {
		return "", ErrClosed
	}
	text, err := t.lib.decode(ids, skipSpecial)
	if err == nil && t.cleanup {
		text = cleanUp(text)
	}
	return text, err
}

// Close waits for running calls of the library and frees the tokenizer. Later calls return
// ErrClosed; closing twice does nothing.
func (t *Tokenizer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lib.open() {
		t.lib.free()
		t.lib = library{}
	}
	return nil
}
