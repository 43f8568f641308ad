package words

import (
	"fmt"
	"iter"
)

// block is how many words are tokenized in one call at least.
const block = 64

// Window is a part of an item that a model reads on its own. Its offsets are the item's.
type Window struct {
	Words  []Word
	IDs    []int32 // tokens of all words, end to end
	Ends   []int   // where the tokens of each word end in IDs
	Shared int     // the first words, which the window before has, too
	First  bool    // it is the item's first

	// Code points of the item: where the window begins, and where its last word ends. They are
	// what spans.Merge wants. The first window begins at 0; an item without words ends at its end.
	Start, ReadEnd int
}

// Tokens returns the tokens of word i, which are none when the tokenizer drops it.
func (w *Window) Tokens(i int) []int32 {
	from := 0
	if i > 0 {
		from = w.Ends[i-1]
	}
	return w.IDs[from:w.Ends[i]]
}

// Fresh returns the subtokens that the window before does not have. They are what an item is
// charged for; the first window counts its special tokens besides.
func (w *Window) Fresh() int {
	if w.Shared == 0 {
		return len(w.IDs)
	}
	return len(w.IDs) - w.Ends[w.Shared-1]
}

// Tokenize appends the tokens of each word to ids, each word on its own without special tokens, and
// for each where they end in ids. words is reused after it returns.
type Tokenize func(words []string, ids []int32, ends []int) ([]int32, []int, error)

// Windows splits an item's text and gathers its words into windows as the published server does. A
// text that fits is one window. Otherwise each window has as many words as the limits let it, and
// begins with the last words of the one before: Overlap of them, or half of its words if they are
// fewer. A text of more windows than MaxWindows is a *BoundError, found without reading on; one
// without a word has one window without words.
//
// A word longer than MaxWordChars is read in pieces, each a word of its own; a window that begins
// with a piece is split as if the text began there. The result has at most MaxWindows · MaxWords
// words and MaxWindows · MaxSubtokens ids, and each window owns its memory.
func Windows(text string, l Limits, tokenize Tokenize) ([]Window, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	r := &reader{text: text, limits: l, tokenize: tokenize}
	defer func() { r.stop() }()
	r.rewind(Word{})
	var windows []Window
	first, shared := 0, 0
	for {
		end, more, err := r.window(first)
		if err != nil {
			return nil, err
		}
		windows = append(windows, r.make(first, end, shared, len(windows) == 0))
		if !more {
			return windows, nil
		}
		if len(windows) >= l.MaxWindows {
			return nil, tooManyWindows(l.MaxWindows)
		}
		shared = min(l.Overlap, (end-first)/2)
		first = end - shared
		if err := r.restart(first); err != nil {
			return nil, err
		}
	}
}

func tooManyWindows(most int) error {
	return &BoundError{"text", "max_windows", most, fmt.Sprintf(
		"the text takes more than %d windows of words (max_windows); split it into shorter items", most)}
}

// reader has the pieces of a text that were read so far, with their tokens.
type reader struct {
	text     string
	limits   Limits
	tokenize Tokenize

	pieces []piece
	ids    []int32
	next   func() (piece, bool)
	stop   func()
	ended  bool

	words []string // of the call of tokenize
	ends  []int
}

// rewind lets the reader go on behind a word, as if the text began there.
func (r *reader) rewind(at Word) {
	if r.stop != nil {
		r.stop()
	}
	r.next, r.stop = iter.Pull(pieces(r.text, at, r.limits.MaxWordChars))
	r.ended = false
}

// restart makes piece i the first of a window. When it begins inside a word with a hyphen, the
// words from there on are others: a hyphen joins word characters, and it has none before it now.
func (r *reader) restart(i int) error {
	if err := r.fill(i + 1); err != nil {
		return err
	}
	p := r.pieces[i]
	if !p.inner || r.text[p.From] != '-' {
		return nil
	}
	r.pieces = r.pieces[:i]
	r.rewind(Word{End: p.Start, To: p.From})
	return r.fill(i + 1)
}

// fill reads on until there are n pieces or the text ends.
func (r *reader) fill(n int) error {
	if len(r.pieces) >= n || r.ended {
		return nil
	}
	n = max(n, len(r.pieces)+block)
	from := len(r.pieces)
	r.words, r.ends = r.words[:0], r.ends[:0]
	for len(r.pieces) < n {
		p, ok := r.next()
		if !ok {
			r.ended = true
			break
		}
		r.pieces = append(r.pieces, p)
		r.words = append(r.words, p.In(r.text))
	}
	if len(r.words) == 0 {
		return nil
	}
	at := len(r.ids)
	var err error
	if r.ids, r.ends, err = r.tokenize(r.words, r.ids, r.ends); err != nil {
		return err
	}
	if len(r.ends) != len(r.words) {
		panic("words: Tokenize gave ends for another number of words")
	}
	for i, end := range r.ends {
		r.pieces[from+i].ids = span{at, end}
		at = end
	}
	return nil
}

// window returns the end of the window whose first piece is given, and whether pieces follow it.
func (r *reader) window(first int) (end int, more bool, err error) {
	end = first
	for subtokens := 0; ; end++ {
		if err := r.fill(end + 1); err != nil {
			return 0, false, err
		}
		if end == len(r.pieces) {
			return end, false, nil
		}
		ids := r.pieces[end].ids
		subtokens += ids.to - ids.from
		if end-first == r.limits.MaxWords || end > first && subtokens > r.limits.MaxSubtokens {
			return end, true, nil
		}
	}
}

// make returns the window of pieces [first, end).
func (r *reader) make(first, end, shared int, isFirst bool) Window {
	w := Window{Words: make([]Word, end-first), Ends: make([]int, end-first), Shared: shared, First: isFirst}
	for i, p := range r.pieces[first:end] {
		w.Words[i] = p.Word
		w.IDs = append(w.IDs, r.ids[p.ids.from:p.ids.to]...)
		w.Ends[i] = len(w.IDs)
	}
	switch {
	case end > first:
		w.ReadEnd = w.Words[end-first-1].End
	default:
		w.ReadEnd = points(r.text)
	}
	if !isFirst {
		w.Start = w.Words[0].Start
	}
	return w
}

func points(text string) int {
	n := 0
	for range text {
		n++
	}
	return n
}
