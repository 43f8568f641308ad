package errs

import (
	"fmt"
	"time"
)

// NotAllowed returns the 403 for a token that may not do what its request asks for. what is the end
// of a sentence, such as "use model 'org/a'".
func NotAllowed(token, what string) *Error {
	return newError(Forbidden, "The token "+Quote(token)+" may not "+what)
}

// OverRate returns the 429 for a token that has used up its items of a second.
func OverRate(token string, perSecond float64, retryAfter time.Duration) *Error {
	e := newError(RateLimited, fmt.Sprintf("The token %s has used up its %g items per second",
		Quote(token), perSecond))
	e.RetryAfter = (max(retryAfter, 1) + time.Second - 1).Truncate(time.Second)
	return e
}

// OverInFlight returns the 429 for a token that has as many items in flight as it may.
func OverInFlight(token string, inFlight, adding, limit int) *Error {
	return newError(RateLimited, fmt.Sprintf(
		"The token %s has %d items in flight and cannot add %d more (limit: %d)",
		Quote(token), inFlight, adding, limit))
}

// MoreThanInFlight returns the 400 for a request with more items than its token may ever have in
// flight.
func MoreThanInFlight(token string, items, limit int) *Error {
	return Invalidf("", "The request has %d items, and the token %s may have %d in flight; send at most %d in "+
		"a request", items, Quote(token), limit, limit)
}
