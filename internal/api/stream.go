package api

import (
	"io"
	"iter"
)

// Sink takes an answer in pieces while it is being written, so that a large one is never in memory
// as a whole. The nil *Sink takes nothing: the answer stays in one buffer. What has been written is
// forgotten entry by entry: the lists of an answer are empty behind the place where it is.
type Sink struct {
	limit int                     // bytes from which a piece is handed on
	take  func(piece []byte) bool // false: nobody wants the rest
	keep  bool                    // entries are not forgotten
	off   bool                    // take has said false
}

// spill hands dst on once it is long enough, and returns the buffer to go on with.
func (s *Sink) spill(dst []byte) []byte {
	if s == nil || len(dst) < s.limit {
		return dst
	}
	if !s.off && !s.take(dst) {
		s.off = true
	}
	return dst[:0]
}

// ended reports whether nobody wants the rest: loops over what may be long then stop.
func (s *Sink) ended() bool { return s != nil && s.off }

// forgets reports whether entries that were written are to be dropped.
func (s *Sink) forgets() bool { return s != nil && !s.keep }

// slab is how many bytes of data or numbers are written between two chances to spill.
const slab = 16 << 10

// Answer writes an answer: it appends to dst, handing pieces to out, and returns what is left of
// dst.
type Answer func(dst []byte, out *Sink) []byte

// Length returns the bytes of an answer, which it writes for that in pieces and throws away.
func (a Answer) Length() (n int64) {
	out := &Sink{limit: pieceBytes, keep: true, take: func(piece []byte) bool { n += int64(len(piece)); return true }}
	return n + int64(len(a(nil, out)))
}

// Within appends an answer to buf, or stops where it would have more than about limit bytes. It
// forgets nothing, so that the answer can be written again.
func (a Answer) Within(buf []byte, limit int) (answer []byte, ok bool) {
	out := &Sink{limit: limit, keep: true, take: func([]byte) bool { return false }}
	answer = a(buf, out)
	return answer, !out.off
}

// Stream is an answer to be read in pieces, each written when the last was read, by the reader's
// goroutine. Close must be called; what was not read is not written.
type Stream struct {
	piece []byte // what is left of the current one
	next  func() ([]byte, bool)
	stop  func()
}

// pieceBytes is about how long a piece of a Stream is.
const pieceBytes = 64 << 10

// NewStream returns a stream of an answer.
func NewStream(a Answer) *Stream {
	s := &Stream{}
	s.next, s.stop = iter.Pull(iter.Seq[[]byte](func(yield func([]byte) bool) {
		out := &Sink{limit: pieceBytes, take: yield}
		if last := a(make([]byte, 0, pieceBytes+slab), out); !out.off {
			yield(last)
		}
	}))
	return s
}

// Read implements io.Reader.
func (s *Stream) Read(p []byte) (n int, err error) {
	for len(s.piece) == 0 {
		var ok bool
		if s.piece, ok = s.next(); !ok {
			return 0, io.EOF
		}
	}
	n = copy(p, s.piece)
	s.piece = s.piece[n:]
	return n, nil
}

// WriteTo implements io.WriterTo.
func (s *Stream) WriteTo(w io.Writer) (n int64, err error) {
	for ok := true; ok; s.piece, ok = s.next() {
		if len(s.piece) == 0 {
			continue
		}
		k, err := w.Write(s.piece)
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close implements io.Closer.
func (s *Stream) Close() error {
	s.stop()
	s.piece = nil
	return nil
}
