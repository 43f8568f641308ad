package engine

import "errors"

// The sentinels that an *Error matches with errors.Is, one for each failing Status.
var (
	ErrInvalid     = errors.New("invalid argument")
	ErrUnsupported = errors.New("not supported by this device or build")
	ErrCorrupt     = errors.New("corrupt data")
	ErrNoMemory    = errors.New("out of device memory")
	ErrDeviceLost  = errors.New("device lost")
	ErrInternal    = errors.New("internal engine error")
)

// ErrNotBuilt is returned by Open in a binary built without the tag native.
var ErrNotBuilt = errors.New("this binary has no native engine: run `make build`, or build libsie and pass -tags native")

// Status is the result of a call across the device boundary. The numbers are those of sie_status
// and are only ever appended to: logs and tables depend on them.
type Status int32

// What each failing status asks of whom is in the comment of sie_status.
const (
	StatusOK Status = iota
	StatusInvalid
	StatusUnsupported
	StatusCorrupt
	StatusNoMemory
	StatusDeviceLost
	StatusInternal
)

var sentinels = [...]error{nil, ErrInvalid, ErrUnsupported, ErrCorrupt, ErrNoMemory, ErrDeviceLost, ErrInternal}

// Error is a refusal or failure of the engine. Msg is for operators: edges that answer users choose
// their own words from Status.
type Error struct {
	Op     string // what was asked: "weight", "linear", "slot load", …
	Status Status
	Msg    string // one line, no file paths
}

func (e *Error) Error() string {
	if e.Msg == "" {
		return "engine: " + e.Op + ": " + e.sentinel().Error()
	}
	return "engine: " + e.Op + ": " + e.Msg
}

// Is reports whether target is the sentinel of e's status.
func (e *Error) Is(target error) bool { return target == e.sentinel() }

func (e *Error) sentinel() error {
	if e.Status <= StatusOK || int(e.Status) >= len(sentinels) {
		return ErrInternal // a library newer than this package
	}
	return sentinels[e.Status]
}

func invalid(op, msg string) *Error { return &Error{Op: op, Status: StatusInvalid, Msg: msg} }
