package engine

import (
	"fmt"
	"time"
)

// Batch is one run of a program: the packed inputs, and the outputs it fills. T is the number of
// tokens, B the number of sequences. An input that the program does not read is ignored. A Batch
// may be reused after Run returns; its output buffers are then reused too.
type Batch struct {
	Program   *Program
	IDs       []int32 // [T]
	TypeIDs   []int32 // [T], nil for zeros
	CuSeqlens []int32 // [B+1], from 0, ascending, ends at T
	Keep      []uint8 // [T] 1 where KeepRows keeps the row, else 0; nil for all
	Adapter   []int32 // [B] for LinearLoRA, −1 for none; nil for none anywhere

	Queries   []float32 // [rows, C] for MaxSim
	CuQueries []int32   // [queries+1], from 0, ascending, ends at rows; nil without queries
	Partner   []int32   // [B] each sequence's query, −1 for none; nil for none anywhere

	// Prefix is the batch whose rows the sequences' prefixes are, of a program that writes a state;
	// nil: none has a prefix. It runs first, once, and gives nothing else. A sequence's prefix is
	// PrefixRows of its rows from row PrefixFirst on. The prefix and the sequence's own tokens
	// together have at most Caps.MaxLen tokens.
	Prefix                  *Batch
	PrefixFirst, PrefixRows []int32 // [B]; nil without prefixes

	// The rows of a program that declares them (Caps), by their places: words and markers among the
	// tokens of their sequence, spans among its words.
	Words, Markers, Spans Places

	// Items holds the items [B] of each output that takes them; nil for the others.
	Items [MaxOutputs][]OutItem

	// OutBytes says how many bytes of each output to copy out, 0 for an output that is not wanted.
	OutBytes [MaxOutputs]int64
	// Out receives the outputs, OutBytes long each, in Go memory that belongs to the caller.
	Out [MaxOutputs][]byte

	// NonFinite is set by Run: nil, or [B] with a 1 for each sequence whose outputs were made of a
	// row that holds a NaN or an infinity, else 0. It is nil where all would be 0.
	NonFinite []int32

	Started  time.Time     // when the Runner's owner took it
	Duration time.Duration // from then until its outputs were copied

	err  error
	done chan struct{}
}

// Places are the rows of a space that a batch lists. Row r is made of the rows First[r] to Last[r]
// of its own sequence, counted from 0. Markers have no Last.
type Places struct {
	Cu          []int32 // [B+1], from 0, ascending, ends at the number of rows; nil: no rows at all
	First, Last []int32
}

// check compares the lengths of the places of a space; C says which ones it needs.
func (p *Places) check(name string, seqs int) error {
	rows := 0
	switch n := len(p.Cu); {
	case n == seqs+1:
		rows = int(p.Cu[seqs])
	case n != 0:
		return invalid("slot load", fmt.Sprintf("cu of %s has %d entries for %d sequences", name, n, seqs))
	}
	for _, places := range [][]int32{p.First, p.Last} {
		if places != nil && len(places) != rows {
			return invalid("slot load",
				fmt.Sprintf("cu of %s ends at %d, but there are %d places", name, rows, len(places)))
		}
	}
	return nil
}

// checkLengths checks that the slices' lengths agree. C cannot check that, because it gets pointers
// and counts only; it checks what the slices contain.
func (b *Batch) checkLengths(p *Program, maxSeqs int) error {
	seqs := len(b.CuSeqlens) - 1
	wrong := func(format string, args ...any) error {
		return invalid("slot load", fmt.Sprintf(format, args...))
	}
	switch {
	case seqs < 1:
		return wrong("cu_seqlens needs at least two entries")
	case len(b.IDs) == 0 || int(b.CuSeqlens[seqs]) != len(b.IDs):
		return wrong("cu_seqlens ends at %d but there are %d ids", b.CuSeqlens[seqs], len(b.IDs))
	case b.TypeIDs != nil && len(b.TypeIDs) != len(b.IDs):
		return wrong("%d type ids for %d ids", len(b.TypeIDs), len(b.IDs))
	case b.Keep != nil && len(b.Keep) != len(b.IDs):
		return wrong("keep has %d entries for %d ids", len(b.Keep), len(b.IDs))
	case b.Adapter != nil && len(b.Adapter) != seqs:
		return wrong("%d adapters for %d sequences", len(b.Adapter), seqs)
	case b.Partner != nil && len(b.Partner) != seqs:
		return wrong("%d partners for %d sequences", len(b.Partner), seqs)
	case b.PrefixFirst != nil && len(b.PrefixFirst) != seqs, b.PrefixRows != nil && len(b.PrefixRows) != seqs:
		return wrong("%d and %d places of prefixes for %d sequences",
			len(b.PrefixFirst), len(b.PrefixRows), seqs)
	case seqs > maxSeqs:
		return wrong("%d sequences: the slot takes at most %d", seqs, maxSeqs)
	}
	if err := b.checkPlaces(p, seqs); err != nil {
		return err
	}
	for i, items := range b.Items {
		if items != nil && (len(items) != seqs || i >= p.outputs) {
			return wrong("%d items of output %d for %d sequences and %d outputs",
				len(items), i, seqs, p.outputs)
		}
	}
	if n := len(b.CuQueries); n > 0 && p.queryColumns > 0 {
		if c := p.queryColumns; int64(b.CuQueries[n-1])*c != int64(len(b.Queries)) {
			return wrong("cu_queries ends at %d rows of %d columns but queries has %d values",
				b.CuQueries[n-1], c, len(b.Queries))
		}
	}
	return nil
}

// checkPlaces checks the places of the spaces that the program declares.
func (b *Batch) checkPlaces(p *Program, seqs int) error {
	var err error
	if p.caps.MaxWords > 0 {
		err = b.Words.check("words", seqs)
	}
	if err == nil && p.caps.MaxMarkers > 0 {
		err = b.Markers.check("markers", seqs)
	}
	if err == nil && p.caps.MaxSpans > 0 {
		err = b.Spans.check("spans", seqs)
	}
	return err
}
