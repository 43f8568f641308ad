package errs

import (
	"errors"
	"time"
)

// InvalidPool returns the 400 for a pool that this cluster does not give. field names what is
// wrong.
func InvalidPool(field, format string, args ...any) *Error {
	e := Invalidf(field, format, args...)
	e.Code = InvalidRequest
	return e
}

// UnknownPool returns the 404 for a request to a pool that does not exist.
func UnknownPool(pool string, pools []string) *Error {
	e := newError(PoolNotFound,
		"Pool "+Quote(pool)+" is not known to this cluster; its pools are: "+few(pools))
	e.Param = "X-SIE-Pool"
	return e
}

// NoSuchPool returns the 404 for a call about a pool that does not exist.
func NoSuchPool(name string) *Error { return newError(PoolNotFound, "Pool "+Quote(name)+" not found") }

// PoolForbidden returns the 403 for a call that no client may make.
func PoolForbidden(msg string) *Error { return newError(PoolRefused, msg) }

// KeepDefaultPool returns the 403 for the deletion of the default pool.
func KeepDefaultPool() *Error { return newError(PoolUndeletable, "Cannot delete the default pool") }

// PoolsUnknown returns the 503 of a gateway that has not seen the pools of its cluster yet.
func PoolsUnknown() *Error {
	e := newError(Provisioning, "The pools of the cluster are not known here yet, please retry")
	e.RetryAfter = time.Second
	return e
}

// NoPools returns the 503 for a change of pools that the broker did not take, or did not say so.
func NoPools(cause error) *Error {
	e := newError(Provisioning, "The pools cannot be changed now: the broker does not answer, please retry")
	e.RetryAfter, e.Cause = time.Second, errors.Join(cause)
	return e
}
