package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// Class sorts load failures. Clients see its values in the error of a failed model.
type Class string

// The classes. This package gives GATED, NOT_FOUND, CONFIG, NETWORK, TIMEOUT, STORAGE and UNKNOWN.
// The other classes belong to later steps of a load.
const (
	ClassGated      Class = "GATED"      // the hub requires a token, or that its owner accepts the licence
	ClassNotFound   Class = "NOT_FOUND"  // no such model, revision or file, or a private one
	ClassDependency Class = "DEPENDENCY" // something the model needs is not installed
	ClassConfig     Class = "CONFIG"     // a setting or a model's files are wrong
	ClassOOM        Class = "OOM"
	ClassNetwork    Class = "NETWORK" // the hub cannot be reached, or gives wrong answers
	ClassTimeout    Class = "TIMEOUT" // the caller's deadline passed
	ClassPlacement  Class = "PLACEMENT"
	ClassStorage    Class = "STORAGE" // disk full, not writable, or failing
	ClassEngine     Class = "ENGINE"
	ClassUnknown    Class = "UNKNOWN"
)

// Permanent reports whether another try is useless until a person changes something.
func (c Class) Permanent() bool {
	switch c {
	case ClassGated, ClassNotFound, ClassDependency, ClassConfig:
		return true
	}
	return false
}

// Error reports a model that could not be resolved. Message is for people: it names the cause and
// the fix. It holds no token, and of a redirect's URL only the host.
type Error struct {
	Class   Class
	Model   string // the id as given
	Message string
	Err     error // the cause; may be nil. Its text is part of Error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "model %q: %s", e.Model, e.Message)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of an error of this package, or UNKNOWN for any other error.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ClassUnknown
}

// fail makes an Error without a model; Resolve fills that in.
func fail(class Class, cause error, format string, args ...any) *Error {
	return &Error{Class: class, Message: fmt.Sprintf(format, args...), Err: cause}
}

// storageError wraps the error of a file operation of the cache and adds a fix.
func storageError(err error, doing string) error {
	fix := "check the disk"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		fix = "the disk is full: free space, or point SIE_LOCAL_CACHE to a larger disk"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		fix = "the cache is not writable: change its permissions, or point SIE_LOCAL_CACHE to a writable directory"
	}
	return fail(ClassStorage, err, "%s: %s", doing, fix)
}

// contextError turns a finished context into the error of Resolve: TIMEOUT for a deadline, else the
// context's cause.
func contextError(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return fail(ClassTimeout, cause,
			"the download did not finish in time; what was received is kept, so another try goes on from there")
	}
	return cause
}
