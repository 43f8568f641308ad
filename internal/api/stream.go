package api

import (
	"io"
	"iter"
)

// Sink takes an answer in pieces while it is being written. A large answer is thus never completely
// in memory. A nil *Sink takes nothing: the answer stays in one buffer. Unless keep is set, each
// entry of the answer's lists is cleared once it is written.
type Sink struct {
	limit int                     // a piece of this many bytes or more is handed on
	take  func(piece []byte) bool // false: the rest is not wanted
	keep  bool                    // written entries are not cleared
	off   bool                    // take has returned false
}

// flush hands dst on if it is long enough, and returns the buffer for what follows.
func (s *Sink) flush(dst []byte) []byte {
	if s == nil || len(dst) < s.limit {
		return dst
	}
	if !s.off && !s.take(dst) {
		s.off = true
	}
	return dst[:0]
}

// stopped reports whether the rest is not wanted; long loops then stop.
func (s *Sink) stopped() bool { return s != nil && s.off }

// clears reports whether written entries are cleared.
func (s *Sink) clears() bool { return s != nil && !s.keep }

// flushBytes is how many bytes of data or numbers are written between two calls of flush.
const flushBytes = 16 << 10

// Answer writes an answer: it appends to dst, hands pieces to out, and returns the rest of dst.
type Answer func(dst []byte, out *Sink) []byte

// Length returns the length of an answer in bytes. It writes the whole answer in pieces and throws
// them away.
func (a Answer) Length() (n int64) {
	out := &Sink{
		limit: pieceBytes, keep: true, take: func(piece []byte) bool { n += int64(len(piece)); return true },
	}
	return n + int64(len(a(nil, out)))
}

// Within appends an answer to buf, and stops if the answer has more than about limit bytes. It
// clears no entries, so that the answer can be written again.
func (a Answer) Within(buf []byte, limit int) (answer []byte, ok bool) {
	out := &Sink{limit: limit, keep: true, take: func([]byte) bool { return false }}
	answer = a(buf, out)
	return answer, !out.off
}

// Stream is a reader of an answer. Each piece is written when the piece before it has been read, on
// the reader's goroutine. Close must be called; pieces that were not read are not written.
type Stream struct {
	piece []byte // the unread rest of the current piece
	next  func() ([]byte, bool)
	stop  func()
}

// pieceBytes is the approximate length of a piece of a Stream.
const pieceBytes = 64 << 10

// NewStream returns a stream of an answer.
func NewStream(a Answer) *Stream {
	s := &Stream{}
	s.next, s.stop = iter.Pull(iter.Seq[[]byte](func(yield func([]byte) bool) {
		out := &Sink{limit: pieceBytes, take: yield}
		if last := a(make([]byte, 0, pieceBytes+flushBytes), out); !out.off {
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
