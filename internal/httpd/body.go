package httpd

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net"
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
)

// drainBytes bounds how much of an unwanted body is read and thrown away. Reading it lets its
// sender see the answer instead of a reset connection, and keeps the rest of it from being taken
// for the next request.
const drainBytes = 512 << 20

// bodies reads request bodies within two bounds: the size of one body, and the bytes that the gate
// holds for all requests and results.
type bodies struct {
	maxOne int64 // bytes; 0 refuses every body
	gate   *admit.Gate
	// stall bounds the pause between two pieces of a body, and whole the time for all of it.
	// drainFor and brief bound the time spent on throwing one away.
	stall, whole, drainFor, brief time.Duration
}

// read returns the request's body, whose room the caller gives back with release. The bytes are the
// caller's for good: nobody else has them or uses them again. Errors are *errs.Error. After an
// error the rest of the body is read and thrown away, or the connection is marked to be closed. A
// body that came too slowly or was malformed closes the connection at once, because the start of
// the next request is unknown.
func (b *bodies) read(r *Request) (*heldBody, error) {
	r.bodyRead = true
	declared := int64(r.Request.Header.ContentLength())
	limit := cmp.Or(r.maxBody, b.maxOne)
	if declared > limit {
		b.drain(r, b.drainFor)
		return nil, errs.BodyTooLarge(limit)
	}
	reserve := max(declared, 4096)
	if err := b.gate.Reserve(reserve); err != nil {
		b.drain(r, b.drainFor)
		return nil, err
	}
	h := &heldBody{owner: b, reserved: reserve}
	stream := r.RequestBodyStream()
	if stream == nil { // a small body that arrived with its head
		h.Bytes = bytes.Clone(r.Request.Body())
		if int64(len(h.Bytes)) > limit {
			h.release()
			return nil, errs.BodyTooLarge(limit)
		}
		return h, nil
	}
	err, broken := b.fill(h, r.Conn(), stream, declared, limit)
	if err == nil {
		return h, nil
	}
	h.release()
	if broken {
		r.SetConnectionClose()
	} else {
		b.drain(r, b.drainFor)
	}
	return nil, err
}

// fill reads at most most bytes of the stream with a deadline that moves with its progress. broken
// reports that no more of the stream can be read.
func (b *bodies) fill(
	h *heldBody, conn net.Conn, stream io.Reader, declared, most int64,
) (err error, broken bool) {
	limit := time.Now().Add(b.whole)
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	// The declared length is below the limit and reserved. Still allocate at most 1 MiB now and
	// grow with what arrives, so that a false length ties up little memory.
	data := make([]byte, 0, min(declared+1, 1<<20)) // one more for the end to be read
	for {
		if len(data) == cap(data) {
			next := max(2*cap(data), 16<<10)
			if declared > 0 {
				next = min(next, int(declared)+1)
			}
			grown := make([]byte, len(data), max(next, len(data)+1))
			copy(grown, data)
			data = grown
		}
		_ = conn.SetReadDeadline(earlier(time.Now().Add(b.stall), limit))
		n, err := stream.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		h.Bytes = data
		if int64(len(data)) > most {
			return errs.BodyTooLarge(most), false
		}
		if more := int64(len(data)) - h.reserved; more > 0 {
			if err := b.gate.Reserve(more); err != nil {
				return err, false
			}
			h.reserved += more
		}
		switch {
		case errors.Is(err, io.EOF) && int64(len(data)) >= declared:
			// fasthttp reports EOF for a truncated body too
			return nil, false
		case isTimeout(err):
			return errs.Invalidf("body",
				"the request body arrived too slowly: no more than %v between two pieces and %v in all are allowed",
				b.stall, b.whole), true
		case err != nil:
			return errs.Invalid("body", "the request body ended early or its chunks are malformed"), true
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// drain reads and throws away an unwanted body. most bounds the time; pauses are bounded as in any
// body. Unless the whole body came, the connection is closed after the answer.
func (b *bodies) drain(r *Request, most time.Duration) {
	r.bodyRead = true
	stream := r.RequestBodyStream()
	if stream == nil {
		return
	}
	limit := time.Now().Add(min(most, b.whole))
	buf := lingerBuffers.Get().(*[4096]byte)
	defer lingerBuffers.Put(buf)
	for left := int64(drainBytes); left > 0; {
		_ = r.Conn().SetReadDeadline(earlier(time.Now().Add(b.stall), limit))
		n, err := stream.Read(buf[:])
		left -= int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			left = 0
		}
	}
	r.SetConnectionClose()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// heldBody is a request body and the held bytes that it takes.
type heldBody struct {
	Bytes    []byte
	owner    *bodies
	reserved int64
}

// release gives the room back.
func (h *heldBody) release() { h.owner.gate.Free(h.reserved) }
