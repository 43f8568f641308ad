package errs

import (
	"errors"
	"time"
)

// Error is a failure with everything that a client may see, and the cause, which only the log sees.
// The constructors of this package make it. It is read-only afterwards, so goroutines may share it.
type Error struct {
	Code    Code
	Status  int    // HTTP status
	Message string // shown to the caller

	Param      string        // request field at fault, when one is known ("input", "dimensions")
	RetryAfter time.Duration // 0: no hint; else at least a second
	OpenAICode string        // replaces the table's OpenAI code when set

	Item *int // index of the item at fault in the request; nil: unknown

	Load    *LoadFailure // set on ModelLoadFailed
	Profile *Mismatch    // set on a machine profile mismatch

	Cause error // never rendered, never sent to another component
}

// LoadFailure describes, for clients, why a model did not load.
type LoadFailure struct {
	// GATED, NOT_FOUND, DEPENDENCY, CONFIG, OOM, NETWORK, TIMEOUT, PLACEMENT, STORAGE, ENGINE,
	// UNKNOWN
	Class     string
	Attempts  int  // at least 1
	Permanent bool // true: it stays until an operator acts
}

// Mismatch names the machine profile that a request asked for and the profile of this worker.
type Mismatch struct {
	Requested string
	Worker    *string // nil: this worker has no identity
}

// Error returns the message with its code and, for logs, the cause.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Cause != nil {
		s += " (" + e.Cause.Error() + ")"
	}
	return s
}

// Unwrap returns the internal cause, so that errors.Is and errors.As find it.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is an *Error with the same code and an empty message. Thus
// errors.Is(err, &errs.Error{Code: errs.QueueFull}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Code == e.Code
}

// Transient reports whether the same request may succeed later.
func (e *Error) Transient() bool { return e.Info().Transient }

// Info returns the table entry of the error's code. A code that is not in the table can come only
// from another release. For it Info uses the error's own status and retry hint, and the status
// decides between a client's and a server's error.
func (e *Error) Info() Info {
	if in, ok := find(e.Code); ok {
		return in
	}
	in := Info{Code: e.Code, Status: e.Status, Transient: e.RetryAfter > 0, RetryAfter: e.RetryAfter,
		OpenAIType: typeServer, OpenAICode: string(e.Code)}
	if e.Status < 500 {
		in.OpenAIType = typeInvalidRequest
	}
	return in
}

// As returns err as an *Error. Any other non-nil error becomes an InternalError whose text does not
// mention the cause; nil stays nil.
func As(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Internal(err)
}
