package httpd

import (
	"bytes"
	"io"
	"sync"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// The results of requests are in memory until their answers are written, within the same bound as
// request bodies (Options.MaxHeldBytes). A request asks for the room of its results before they are
// computed. Small answers are written as a whole, large ones in pieces that are made as their
// client takes them.

const (
	// plainAnswer is an answer whose bytes count only until it is handed to be written.
	plainAnswer = 64 << 10
	// wholeAnswer is the largest answer that is written as a whole, and counts until that is done.
	wholeAnswer = 1 << 20
	// pieceRoom is what an answer in pieces has in memory besides its results.
	pieceRoom = 3 * plainAnswer
)

// share is what one request's results take of the bound on bytes held. It belongs to the request's
// goroutine, and later to the one that writes the answer, which is the same.
type share struct {
	bodies *bodies
	body   int64  // of the request
	field  string // what its client calls the items
	held   int64
	lent   bool // to the writer of the answer, which gives it back
}

// hold admits that many more bytes, with which the results of so many items are counted in whole.
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

// fits is how many of some items there is room for.
func fits(items int, bytes, room int64) int {
	return int(float64(items) * float64(max(room, 0)) / float64(bytes))
}

// less gives some of the bytes back.
func (a *share) less(bytes int64) {
	a.bodies.held.Add(-bytes)
	a.held -= bytes
}

// release gives all of them back.
func (a *share) release() {
	if a.held > 0 {
		a.less(a.held)
	}
}

// Reply makes a the response, as a whole or in pieces. The bytes that Hold admitted are held until
// it is written.
func (r *Request) Reply(f api.Format, a api.Answer) {
	r.SetContentType(f.ContentType())
	own := &r.results
	if own.bodies == nil { // not within Do
		own.bodies = &r.server.bodies
	}
	likely, limit := int(min(own.held, wholeAnswer)), plainAnswer
	if f == api.JSON {
		likely = min(6*likely, wholeAnswer) // a float32 of four bytes has up to 24
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

// wholeBody is an answer that is in memory.
type wholeBody struct{ bytes.Reader }

// Close implements io.Closer.
func (*wholeBody) Close() error { return nil }

// gatherer is a connection that makes large writes of small ones between gather and scatter.
type gatherer interface {
	gather()
	scatter()
}

// writing is an answer on its way to its client.
type writing struct {
	answer interface {
		io.ReadCloser
		io.WriterTo
	}
	share  *share
	pieces gatherer
	bytes  int64
	done   func(bytes int64) // nil: nobody wants to know
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

// Close implements io.Closer. fasthttp calls it when the answer is written, or cannot be.
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
