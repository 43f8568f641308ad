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
var ErrNotBuilt = errors.New(
	"this binary has no native engine: run `make build`, or build libsie and pass -tags native")

// Status is the result of a call into C. The numbers are those of sie_status and are append-only,
// because logs and tables depend on them.
type Status int32

// The comment of sie_status says who has to act on each status.
const (
	StatusOK Status = iota
	StatusInvalid
	StatusUnsupported
	StatusCorrupt
	StatusNoMemory
	StatusDeviceLost
	StatusInternal
)

var sentinels = [...]error{
	nil, ErrInvalid, ErrUnsupported, ErrCorrupt, ErrNoMemory, ErrDeviceLost, ErrInternal,
}

// Error is a refusal or failure of the engine. Msg is for operators. Code that answers users
// chooses its own words from Status.
type Error struct {
	Op     string // the operation: "weight", "linear", "slot load", …
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
