// Package dialect writes the server's errors and headers in the form that the calling SDK or API
// understands.
//
// Three generations of SDKs are in use. They retry different codes, treat different codes as final,
// and each warns when the server's version differs much from its own. The rules are data in this
// package, so that the rest of the server knows one list of errors (package errs) and nothing about
// clients.
//
// Entry points: [ParseCaller] for the X-SIE-SDK-Version header, [Render] for an error,
// [SuccessHeaders] for an answer, [CheckMachineProfile] and [CheckRemote] for the headers of a
// request.
//
// The package holds no state, starts no goroutine, logs nothing and knows no HTTP server.
package dialect

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Caller identifies the SDK of a request. The zero value is a caller that named none: curl, an
// OpenAI client.
type Caller struct {
	Named               bool // the header was present
	Known               bool // its version was understood
	Major, Minor, Patch int
}

// maxVersion bounds the header in bytes: a longer one is not a version.
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

// Version returns the SDK's version, "unknown" if it was not understood, and "" for a caller that
// named none.
func (c Caller) Version() string {
	switch {
	case !c.Named:
		return ""
	case !c.Known:
		return "unknown"
	}
	return fmt.Sprintf("%d.%d.%d", c.Major, c.Minor, c.Patch)
}

// number reads a number of one to six digits.
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

// oldest reports whether the caller belongs to the first generation, which retries every 503.
func (c Caller) oldest() bool { return c.Known && c.before(0, 4, 0) }

// takes202 reports whether the caller understands a 202 as "no capacity yet". Newer SDKs fail on
// it. A caller without an SDK follows the documentation, which says 202.
func (c Caller) takes202() bool { return !c.Named || c.Known && c.before(0, 6, 1) }

// RetriesQueueFull reports whether the caller waits and retries on QUEUE_FULL. The SDKs between the
// first generation and 0.7.3 fail at once.
func (c Caller) RetriesQueueFull() bool {
	return !c.Named || c.oldest() || c.Known && !c.before(0, 7, 3)
}

// Patience returns how long the caller waits for an answer. SDKs through 0.7.3 give up after 30 s
// and send the request again; newer ones give up after 150 s and do not. An SDK whose version is
// not understood may be an old one.
func (c Caller) Patience() time.Duration {
	if c.Named && (!c.Known || c.before(0, 7, 4)) {
		return 30 * time.Second
	}
	return 150 * time.Second
}

// ReadsItemErrors reports whether the caller notices that one item of an extraction failed. The
// first generation reads only the item's lists, which are empty then. A caller without an SDK
// follows the documentation.
func (c Caller) ReadsItemErrors() bool { return !c.oldest() }

// ServerVersion returns the value for X-SIE-Server-Version. SDKs warn when the minor version is far
// from their own, and no fixed number is near all of them, so every SDK gets its own major.minor.
// real is the version of this build, for callers without a known version.
func (c Caller) ServerVersion(real string) string {
	if !c.Known {
		return real
	}
	return strconv.Itoa(c.Major) + "." + strconv.Itoa(c.Minor)
}
