package httpd

import (
	"bytes"
	"io"
	"sync"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// The results of requests are in memory until their answers are written, and count towards the same
// bound as request bodies (Options.MaxHeldBytes). A request reserves room for its results before
// they are computed. A small answer is written whole; a large one is made in pieces as its client
// takes them.

const (
	// plainAnswer is the largest answer whose bytes are not counted while they are written.
	plainAnswer = 64 << 10
	// wholeAnswer is the largest answer that is written whole; its bytes count until it is written.
	wholeAnswer = 1 << 20
	// pieceRoom is the memory that an answer in pieces takes in addition to its results.
	pieceRoom = 3 * plainAnswer
)

// share is the part of the held bytes that one request's results take. It belongs to the request's
// goroutine, which also writes the answer.
type share struct {
	bodies *bodies
	body   int64  // of the request's body
	field  string // its client's name for the items
	held   int64
	lent   bool // to the writer of the answer, which gives it back
}

// hold reserves bytes more for the results. items is the number of the request's items whose
// results are then counted completely; the errors compute from it how many items would fit.
func (a *share) hold(bytes int64, items int) error {
	if a.bodies.reserve(bytes) {
		a.held += bytes
		return nil
	}
	need, most, others := a.held+bytes, a.bodies.maxHeld-a.body, a.bodies.held.Load()-a.held-a.body
	if need > most {
		return errs.AnswerTooLarge(a.field, need, a.bodies.maxHeld, fits(items, need, most))
	}
	return errs.FullQueueAnswer(a.bodies.held.Load(), bytes, a.bodies.maxHeld, fits(items, need, most-others))
}

// fits returns how many of items fit into room if all of them together take bytes.
func fits(items int, bytes, room int64) int {
	return int(float64(items) * float64(max(room, 0)) / float64(bytes))
}

// less gives bytes back.
func (a *share) less(bytes int64) {
	a.bodies.held.Add(-bytes)
	a.held -= bytes
}

// release gives all held bytes back.
func (a *share) release() {
	if a.held > 0 {
		a.less(a.held)
	}
}

// Reply makes a the response, whole or in pieces. The bytes that Hold reserved are held until it is
// written.
func (r *Request) Reply(f api.Format, a api.Answer) {
	r.SetContentType(f.ContentType())
	own := &r.results
	if own.bodies == nil { // not within Do
		own.bodies = &r.server.bodies
	}
	likely, limit := int(min(own.held, wholeAnswer)), plainAnswer
	if f == api.JSON {
		likely = min(6*likely, wholeAnswer) // a float32 of four bytes takes up to 24 in JSON
	}
	if likely > plainAnswer && own.bodies.reserve(wholeAnswer) {
		own.held += wholeAnswer
		limit = wholeAnswer
	}
	whole, ok := a.Within(make([]byte, 0, min(likely, limit)), limit)
	if ok && limit == plainAnswer {
		r.Response.SetBodyRaw(whole)
		return
	}
	w := &writing{share: own}
	own.lent, r.writing = true, w
	length := int64(len(whole))
	switch {
	case ok:
		own.less(wholeAnswer - length)
		w.answer = &wholeBody{*bytes.NewReader(whole)}
	case r.Request.Header.IsHTTP11():
		own.less(max(0, int64(limit)-plainAnswer-pieceRoom))
		w.answer, length = api.NewStream(a), -1
		if w.pieces, _ = r.Conn().(gatherer); w.pieces != nil {
			w.pieces.gather()
		}
	default: // HTTP/1.0 has no chunks
		own.less(max(0, int64(limit)-plainAnswer-pieceRoom))
		length = a.Length()
		w.answer = api.NewStream(a)
	}
	r.Response.SetBodyStream(w, int(length))
}

// wholeBody is an answer that is completely in memory.
type wholeBody struct{ bytes.Reader }

// Close implements io.Closer.
func (*wholeBody) Close() error { return nil }

// gatherer is a connection that combines small writes into large ones between gather and scatter.
type gatherer interface {
	gather()
	scatter()
}

// writing is an answer while it is sent to its client.
type writing struct {
	answer interface {
		io.ReadCloser
		io.WriterTo
	}
	share  *share
	pieces gatherer
	bytes  int64
	done   func(bytes int64) // nil: no one needs the count
	once   sync.Once
}

// Read implements io.Reader.
func (w *writing) Read(p []byte) (int, error) {
	n, err := w.answer.Read(p)
	w.bytes += int64(n)
	return n, err
}

// WriteTo implements io.WriterTo, for answers of known length.
func (w *writing) WriteTo(to io.Writer) (int64, error) {
	n, err := w.answer.WriteTo(to)
	w.bytes += n
	return n, err
}

// Close implements io.Closer. fasthttp calls it when the answer is written, or when writing failed.
func (w *writing) Close() error {
	w.once.Do(func() {
		_ = w.answer.Close()
		if w.pieces != nil {
			w.pieces.scatter()
		}
		w.share.release()
		if w.done != nil {
			w.done(w.bytes)
		}
	})
	return nil
}
