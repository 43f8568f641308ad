package httpd

import (
	"bytes"
	"io"
	"sync"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
)

// The results of requests are in memory until their answers are written, and count towards the same
// bound as request bodies. A request's Work reserves room for its results before they are computed.
// A small answer is written whole; a large one is made in pieces as its client takes them.

const (
	// plainAnswer is the largest answer whose bytes are not counted while they are written.
	plainAnswer = 64 << 10
	// wholeAnswer is the largest answer that is written whole; its bytes count until it is written.
	wholeAnswer = 1 << 20
	// pieceRoom is the memory that an answer in pieces takes in addition to its results.
	pieceRoom = 3 * plainAnswer
)

// Reply makes a the response, whole or in pieces. The bytes that the request's Work holds are held
// until it is written. Call it within Do.
func (r *Request) Reply(f api.Format, a api.Answer) {
	r.SetContentType(f.ContentType())
	own := r.work
	likely, limit := int(min(own.Held(), wholeAnswer)), plainAnswer
	if f == api.JSON {
		likely = min(6*likely, wholeAnswer) // a float32 of four bytes takes up to 24 in JSON
	}
	if likely > plainAnswer && own.Take(wholeAnswer) {
		limit = wholeAnswer
	}
	whole, ok := a.Within(make([]byte, 0, min(likely, limit)), limit)
	if ok && limit == plainAnswer {
		r.Response.SetBodyRaw(whole)
		return
	}
	w := &writing{work: own}
	own.Keep()
	r.writing = w
	length := int64(len(whole))
	switch {
	case ok:
		own.Give(wholeAnswer - length)
		w.answer = &wholeBody{*bytes.NewReader(whole)}
	case r.Request.Header.IsHTTP11():
		own.Give(max(0, int64(limit)-plainAnswer-pieceRoom))
		w.answer, w.pieced, length = api.NewStream(a), true, -1
		if w.pieces, _ = r.Conn().(gatherer); w.pieces != nil {
			w.pieces.gather()
		}
	default: // HTTP/1.0 has no chunks
		own.Give(max(0, int64(limit)-plainAnswer-pieceRoom))
		length = a.Length()
		w.answer, w.pieced = api.NewStream(a), true
	}
	r.Response.SetBodyStream(w, int(length))
}

// Pass makes body the response. If it is large, the bytes that the request's Work holds are held
// until it is written. Call it within Do.
func (r *Request) Pass(status int, contentType string, body []byte) {
	r.SetStatusCode(status)
	r.SetContentType(contentType)
	if len(body) <= plainAnswer {
		r.Response.SetBodyRaw(body)
		return
	}
	r.work.Keep()
	r.writing = &writing{work: r.work, answer: &wholeBody{*bytes.NewReader(body)}}
	r.Response.SetBodyStream(r.writing, len(body))
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
	work   *admit.Work // holds the bytes of the results
	pieced bool        // it is made as it is sent
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
		w.work.Release()
		if w.done != nil {
			w.done(w.bytes)
		}
	})
	return nil
}
