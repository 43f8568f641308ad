//go:build !native

package tokenizer

import "errors"

// LibSum returns "", because no library is linked.
func LibSum() string { return "" }

var errTooMany = errors.New("too many tokens in one call")

// library replaces the Rust object and is never open.
type library struct{}

func (library) open() bool                           { return false }
func (library) free()                                {}
func (library) tokenID(string) (int32, bool)         { return 0, false }
func (library) decode([]int32, bool) (string, error) { return "", ErrNotBuilt }

func newLibrary([]byte, *bertFlags) (library, info, error) { return library{}, info{}, ErrNotBuilt }
func (library) refine([]byte, refinement) error            { return ErrNotBuilt }

func (t *Tokenizer) encode(*Batch, input, int, int, Options, *uint32) error { return ErrNotBuilt }

func (t *Tokenizer) words(*WordBatch, []Words, wordChunk, WordOptions, *uint32) error {
	return ErrNotBuilt
}

func (t *Tokenizer) encodeSpans(string, Options, *uint32) ([]TokenSpan, bool, error) {
	return nil, false, ErrNotBuilt
}
