package errs

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// NoCatalog returns the 503 of a gateway that does not have the models of its cluster yet.
func NoCatalog() *Error {
	e := newError(Provisioning, "The models of the cluster are not known here yet, please retry")
	e.RetryAfter = time.Second
	return e
}

// NoBundle returns the 404 for a model in the catalog that no bundle carries.
func NoBundle(model, adapter string) *Error {
	return UnknownModel(fmt.Sprintf("Model '%s' cannot be served: no bundle carries its adapter '%s'",
		model, adapter))
}

// WrongBundle returns the 409 for a model in a bundle that does not carry it.
func WrongBundle(model, bundle string, compatible []string) *Error {
	e := Invalidf("model", "Bundle %s does not carry model '%s'; compatible bundles: %s",
		Quote(bundle), model, few(compatible))
	e.Status = http.StatusConflict
	return e
}

// UnknownProfile returns the 400 for a machine profile that no lane of the pool has.
func UnknownProfile(profile string, profiles []string) *Error {
	e := Invalidf("X-SIE-MACHINE-PROFILE",
		"Machine profile %s is not configured for this pool; its profiles are: %s", Quote(profile), few(profiles))
	e.Profile = &Mismatch{Requested: profile}
	return e
}

// NoLane returns the 400 for a model whose bundles run in none of the lanes that the caller's pool
// and profile leave.
func NoLane(model string, bundles, lanes []string) *Error {
	return Invalidf("model", "Model '%s' runs in the bundles %s, and none of the lanes %s has one of them",
		model, few(bundles), few(lanes))
}

// Unsupported returns the 502 for a model that the workers of all its lanes can never run.
func Unsupported(model string) *Error {
	return LoadFailed(model, LoadFailure{Class: "PLACEMENT"},
		"the workers of its lanes do not support it", nil)
}

// few lists the first names of a list, so that a message stays short.
func few(names []string) string {
	const most = 10
	if len(names) == 0 {
		return "none"
	}
	more := ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ") + more
}
