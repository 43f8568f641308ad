package httpd

import (
	"cmp"
	"context"
	"errors"

	"github.com/sie-engine/sie/internal/errs"
)

// ErrClientGone is the cause of the end of a request's context when its client has closed the
// connection or its sending side.
var ErrClientGone = errors.New("the client closed the connection")

// Do reads the request's body and calls work with it and with a context that ends when the client
// leaves (ErrClientGone), when the request has taken longer than Options.RequestTimeout (a 504), or
// when a drain runs out of time (a retryable 503). The body is work's until it returns; work writes
// the answer. field is what the client calls the items of its request, for errors; "" stands for
// items. A request that cannot begin is not answered: the error, an *errs.Error, is the caller's to
// write.
func (r *Request) Do(field string, work func(ctx context.Context, body []byte)) error {
	s := r.server
	body, err := s.bodies.read(r)
	if err != nil {
		if s.gate.closed() { // whatever is wrong with it, it may be that the server did not wait for the rest
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

// Hold admits that many more bytes of the request's results into memory, with which the results of
// so many of its items are counted in whole, or refuses the request: with a 400 where they never
// fit, with a 503 where they do not fit now. It may be called within the work of Do, by one
// goroutine at a time. The bytes are given back when the answer is written.
func (r *Request) Hold(bytes int64, items int) error { return r.results.hold(bytes, items) }
