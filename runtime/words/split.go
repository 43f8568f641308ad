package words

import (
	"iter"
	"strings"
	"unicode/utf8"
)

// Word is one word of a text, or a piece of a long one.
type Word struct {
	Start, End int // code points of the text, as the wire counts
	From, To   int // bytes of the text
}

// In returns the word's part of the text that it was read from.
func (w Word) In(text string) string { return text[w.From:w.To] }

// Split returns the words of a text in order: runs of word characters, which single hyphens may
// join, and every other character that is not a space. These are the matches of
// `\w+(?:[-_]\w+)*|\S` with the classes of Python 3.11. A byte that is not UTF-8 counts as the
// character U+FFFD.
func Split(text string) iter.Seq[Word] { return from(text, Word{}) }

// from splits a text from the end of a word on, as if the text began there.
func from(text string, at Word) iter.Seq[Word] {
	return func(yield func(Word) bool) {
		s := scanner{text: text, byte: at.To, point: at.End}
		for {
			w, ok := s.next()
			if !ok || !yield(w) {
				return
			}
		}
	}
}

// scanner is a place in a text.
type scanner struct {
	text        string
	byte, point int
}

// peek returns the character at the scanner and its bytes, which are 0 at the end of the text.
func (s *scanner) peek() (rune, int) {
	if s.byte < len(s.text) {
		if c := s.text[s.byte]; c < utf8.RuneSelf {
			return rune(c), 1
		}
	}
	r, n := utf8.DecodeRuneInString(s.text[s.byte:])
	return r, n
}

func (s *scanner) step(bytes int) {
	s.byte += bytes
	s.point++
}

// next returns the next word and moves behind it.
func (s *scanner) next() (Word, bool) {
	r, n := s.peek()
	for n > 0 && IsSpace(r) {
		s.step(n)
		r, n = s.peek()
	}
	w := Word{Start: s.point, From: s.byte}
	if n == 0 {
		return w, false
	}
	if !IsWord(r) {
		s.step(n)
		w.End, w.To = s.point, s.byte
		return w, true
	}
	for {
		for n > 0 && IsWord(r) {
			s.step(n)
			r, n = s.peek()
		}
		w.End, w.To = s.point, s.byte
		// A hyphen joins only when a word character follows. An underscore is one itself.
		if r != '-' || n == 0 {
			return w, true
		}
		hyphen := *s
		hyphen.step(n)
		if r, n = hyphen.peek(); n == 0 || !IsWord(r) {
			return w, true
		}
		*s = hyphen
	}
}

// LetterRuns returns the longest runs of letters of a text: of word characters that are neither
// decimal digits nor underscores.
func LetterRuns(text string) iter.Seq[Word] {
	return func(yield func(Word) bool) {
		s := scanner{text: text}
		for {
			r, n := s.peek()
			for n > 0 && !isLetter(r) {
				s.step(n)
				r, n = s.peek()
			}
			w := Word{Start: s.point, From: s.byte}
			if n == 0 {
				return
			}
			for n > 0 && isLetter(r) {
				s.step(n)
				r, n = s.peek()
			}
			w.End, w.To = s.point, s.byte
			if !yield(w) {
				return
			}
		}
	}
}

func isLetter(r rune) bool { return IsWord(r) && r != '_' && !IsDecimal(r) }

// IsBlank reports whether a text has spaces alone.
func IsBlank(text string) bool { return strings.TrimFunc(text, IsSpace) == "" }

// pieces splits a text from the end of a word on, and gives a word of more than most characters as
// consecutive pieces of at most that many.
func pieces(text string, at Word, most int) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for w := range from(text, at) {
			for first := true; ; first = false {
				p := piece{Word: w, inner: !first}
				last := w.End-w.Start <= most
				if !last {
					p.To = w.From
					for range most {
						_, n := utf8.DecodeRuneInString(text[p.To:])
						p.To += n
					}
					p.End = w.Start + most
				}
				if !yield(p) {
					return
				}
				if last {
					break
				}
				w.From, w.Start = p.To, p.End
			}
		}
	}
}

// piece is a word as a window has it.
type piece struct {
	Word
	inner bool // it begins inside a longer word
	ids   span // of its tokens
}

type span struct{ from, to int }
