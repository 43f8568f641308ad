package httpd

import (
	"github.com/sie-engine/sie/internal/admit"
)

// Do reads the request's body, has it admitted by the server's Gate, and calls work with it. The
// work's context ends with admit.ErrClientGone when the client leaves. body belongs to work, which
// writes the answer; its room is given back with the answer. field is the client's name for the
// items of its request, used in errors; "" stands for items. If the request cannot begin, Do does
// not answer it: the caller writes the error, which is an *errs.Error.
func (r *Request) Do(field string, work func(w *admit.Work, body []byte)) error {
	s := r.server
	body, err := s.bodies.read(r)
	if err != nil {
		// the cause may be that the draining server did not wait for the rest
		if shut := s.gate.Open(); shut != nil {
			return shut
		}
		return err
	}
	defer body.release()
	w, err := s.gate.Enter(admit.Request{Bytes: body.reserved, Field: field})
	if err != nil {
		return err
	}
	defer w.End()
	r.work = w
	end, err := s.hangups.watch(r.Conn(), func() { w.Cancel(admit.ErrClientGone) })
	if err == nil {
		defer end()
	}
	work(w, body.Bytes)
	if r.writing != nil && r.writing.pieced {
		// what is still to be written may be parts of the request, such as ids and documents
		w.Adopt(body.reserved)
		body.reserved = 0
	}
	return nil
}
