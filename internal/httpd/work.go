package httpd

import (
	"cmp"
	"context"
	"errors"

	"github.com/sie-engine/sie/internal/errs"
)

// ErrClientGone is the cause of a request's ended context when its client has closed the connection
// or its sending side.
var ErrClientGone = errors.New("the client closed the connection")

// Do reads the request's body and calls work with it. The context that work gets ends when the
// client leaves (ErrClientGone), when the request has taken longer than Options.RequestTimeout (a
// 504), or when a drain runs out of time (a retryable 503). body is valid until work returns; work
// writes the answer. field is the client's name for the items of its request, used in errors; ""
// stands for items. If the request cannot begin, Do does not answer it: the caller writes the
// error, which is an *errs.Error.
func (r *Request) Do(field string, work func(ctx context.Context, body []byte)) error {
	s := r.server
	body, err := s.bodies.read(r)
	if err != nil {
		if s.gate.closed() { // the cause may be that the draining server did not wait for the rest
			err = errs.ShuttingDown()
		}
		return err
	}
	defer body.release()
	if !s.gate.enter() {
		return errs.ShuttingDown()
	}
	defer s.gate.leave()

	own := &r.results
	*own = share{bodies: &s.bodies, body: body.reserved, field: cmp.Or(field, "items")}
	defer func() {
		if !own.lent {
			own.release()
		}
	}()
	ctx, cancel := context.WithCancelCause(s.work)
	defer cancel(nil)
	end, err := s.hangups.watch(r.Conn(), func() { cancel(ErrClientGone) })
	if err == nil {
		defer end()
	}
	ctx, stop := context.WithTimeoutCause(ctx, s.opt.RequestTimeout, errs.Late(s.opt.RequestTimeout))
	defer stop()
	work(ctx, body.Bytes)
	return nil
}

// Hold reserves bytes more for the request's results. items is the number of its items whose
// results are then counted completely. Hold refuses the request with a 400 if the results never
// fit, and with a 503 if they do not fit now. One goroutine at a time may call it, within the work
// of Do. The bytes are given back when the answer is written.
func (r *Request) Hold(bytes int64, items int) error { return r.results.hold(bytes, items) }
