package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// Class sorts load failures. The values are those that clients see in a failed model's error.
type Class string

// The classes. This package gives GATED, NOT_FOUND, CONFIG, NETWORK, TIMEOUT, STORAGE and UNKNOWN;
// the others belong to later steps of a load and complete the list.
const (
	ClassGated      Class = "GATED"      // the hub wants a token, or its owner to accept the licence
	ClassNotFound   Class = "NOT_FOUND"  // no such model, revision or file, or a private one
	ClassDependency Class = "DEPENDENCY" // something the model needs is not installed
	ClassConfig     Class = "CONFIG"     // a setting or a model's files are wrong
	ClassOOM        Class = "OOM"
	ClassNetwork    Class = "NETWORK" // the hub cannot be reached, or answers wrongly
	ClassTimeout    Class = "TIMEOUT" // the caller's deadline passed
	ClassPlacement  Class = "PLACEMENT"
	ClassStorage    Class = "STORAGE" // disk full, not writable, or failing
	ClassEngine     Class = "ENGINE"
	ClassUnknown    Class = "UNKNOWN"
)

// Permanent reports whether trying again without a change by a person is useless.
func (c Class) Permanent() bool {
	switch c {
	case ClassGated, ClassNotFound, ClassDependency, ClassConfig:
		return true
	}
	return false
}

// Error is a model that could not be resolved. Message is for people: it names the cause and the
// fix. It holds no token, and of a URL no more than the host.
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

// ClassOf is the class of an error of this package, UNKNOWN for any other.
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

// storageError explains a failed file operation of the cache.
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

// contextError turns a finished context into the error of Resolve: TIMEOUT for a deadline, the
// plain cause when the caller gave up.
func contextError(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return fail(ClassTimeout, cause, "the download did not finish in time; what was received is kept, so another try goes on from there")
	}
	return cause
}
