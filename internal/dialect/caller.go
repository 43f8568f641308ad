// Package dialect writes our errors and headers in the words of the client that asks.
//
// Three generations of SDKs are in use. They retry different codes, give up on different ones, and
// each warns when the server's version looks foreign. The rules are data in this package, so that
// the rest of the server knows one list of errors (package errs) and nothing about clients.
//
// Entry points: [ParseCaller] from the X-SIE-SDK-Version header, [Render] for an error,
// [SuccessHeaders] for an answer, [CheckMachineProfile] and [CheckRemote] for what a request's
// headers may demand.
//
// The package holds no state, starts no goroutine, logs nothing and knows no HTTP server.
package dialect

import (
	"fmt"
	"strconv"
	"strings"
)

// Caller is what a request says about its SDK. The zero value is a caller that named none: curl, an
// OpenAI client.
type Caller struct {
	Named               bool // the header was present
	Known               bool // its version was understood
	Major, Minor, Patch int
}

// maxVersion bounds the header: a longer one is not a version.
const maxVersion = 64

// ParseCaller reads an X-SIE-SDK-Version header. An SDK that is not installed as a package sends
// "unknown".
func ParseCaller(sdkVersion string) Caller {
	if sdkVersion == "" {
		return Caller{}
	}
	c := Caller{Named: true}
	if len(sdkVersion) > maxVersion {
		return c
	}
	parts := strings.SplitN(sdkVersion, ".", 3)
	if len(parts) < 2 {
		return c
	}
	var ok bool
	if c.Major, ok = number(parts[0]); !ok {
		return Caller{Named: true}
	}
	if c.Minor, ok = number(parts[1]); !ok {
		return Caller{Named: true}
	}
	if len(parts) == 3 { // "1rc2", "1.dev0": the leading digits decide
		end := strings.IndexFunc(parts[2], func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(parts[2])
		}
		c.Patch, _ = number(parts[2][:end])
	}
	c.Known = true
	return c
}

// Version returns the SDK's version as it was understood, "unknown" where it was not, "" for a
// caller that named none.
func (c Caller) Version() string {
	switch {
	case !c.Named:
		return ""
	case !c.Known:
		return "unknown"
	}
	return fmt.Sprintf("%d.%d.%d", c.Major, c.Minor, c.Patch)
}

// number reads up to six digits.
func number(s string) (int, bool) {
	if s == "" || len(s) > 6 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// before reports whether the caller's known version is below major.minor.patch.
func (c Caller) before(major, minor, patch int) bool {
	switch {
	case c.Major != major:
		return c.Major < major
	case c.Minor != minor:
		return c.Minor < minor
	}
	return c.Patch < patch
}

// oldest reports whether the caller is of the first generation, which retries every 503.
func (c Caller) oldest() bool { return c.Known && c.before(0, 4, 0) }

// takes202 reports whether a 202 means "no capacity yet" to the caller. Newer SDKs fail on it. A
// caller without an SDK reads the documentation, which says 202.
func (c Caller) takes202() bool { return !c.Named || c.Known && c.before(0, 6, 1) }

// retriesQueueFull reports whether the caller waits and retries on QUEUE_FULL. The generation
// between fails at once.
func (c Caller) retriesQueueFull() bool {
	return !c.Named || c.oldest() || c.Known && !c.before(0, 7, 3)
}

// ReadsItemErrors reports whether the caller sees that one item of an extraction failed. The first
// generation reads its lists alone, and these are empty. A caller without an SDK reads the
// documentation.
func (c Caller) ReadsItemErrors() bool { return !c.oldest() }

// ServerVersion is the value for X-SIE-Server-Version. SDKs warn when the minor version is not near
// their own, and no fixed number is near all of them, so a caller is told its own major.minor. real
// is the version of this build.
func (c Caller) ServerVersion(real string) string {
	if !c.Known {
		return real
	}
	return strconv.Itoa(c.Major) + "." + strconv.Itoa(c.Minor)
}
