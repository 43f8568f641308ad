package hub

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// statusError returns the error for an answer that is not a success. what names the requested thing
// ("file config.json", or the repository itself).
//
// The hub answers 401 both for a missing and for a private repository, so that nobody can discover
// private ones. The message names both cases.
func (c *client) statusError(resp *response, ref modelRef, what string) error {
	code := resp.Header.Get("X-Error-Code")
	message := printable(resp.Header.Get("X-Error-Message"))
	status := resp.StatusCode
	public := *c.endpoint
	public.User = nil
	page := strings.TrimSuffix(public.String(), "/") + "/" + ref.id

	switch {
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500:
		return &transientError{
			err:   fmt.Errorf("%s answered %s", resp.Request.URL.Host, statusText(status)),
			after: retryAfter(resp.Header, time.Now()),
		}
	case !resp.fromHub:
		// The storage refuses a link that the hub signed: it has expired or is not yet known. The
		// next try gets a new one.
		return transient("%s answered %s to a link of the hub", resp.Request.URL.Host, statusText(status))
	case code == "GatedRepo" && c.token == "":
		return fail(ClassGated, nil,
			"is gated: accept its licence at %s, then set HF_TOKEN to a token of that account", page)
	case code == "GatedRepo":
		return fail(ClassGated, nil,
			"is gated, and the account of HF_TOKEN has no access yet: accept its licence at %s", page)
	case message == "Access to this resource is disabled.":
		return fail(ClassNotFound, nil, "is disabled on the hub; see %s", page)
	case code == "RevisionNotFound":
		return fail(ClassNotFound, nil, "has no revision %q; its revisions are listed at %s/tree/main",
			ref.revision, page)
	case code == "EntryNotFound":
		return fail(ClassNotFound, nil, "has no %s at revision %s", what, ref.revision)
	case status == http.StatusUnauthorized && strings.Contains(string(message), "Invalid credentials"):
		return fail(ClassConfig, nil,
			"HF_TOKEN is not a valid token of %s, or has expired: make a new one, or unset it",
			c.endpoint.Host)
	case code == "RepoNotFound" || status == http.StatusUnauthorized || status == http.StatusNotFound:
		if c.token == "" {
			return fail(ClassNotFound, nil,
				"does not exist on %s, or is private: check the spelling; if it is private, set HF_TOKEN",
				c.endpoint.Host)
		}
		return fail(ClassNotFound, nil,
			"does not exist on %s, or HF_TOKEN may not read it: check the spelling and the token's permissions",
			c.endpoint.Host)
	case status == http.StatusForbidden:
		return fail(ClassGated, nil, "%s refuses access%s: give the token of HF_TOKEN permission to read %s",
			c.endpoint.Host, message.suffix(), page)
	}
	return fail(ClassConfig, nil, "%s answered %s%s; check HF_ENDPOINT",
		c.endpoint.Host, statusText(status), message.suffix())
}

// serverText is text from a server, made safe to print.
type serverText string

func (r serverText) suffix() string {
	if r == "" {
		return ""
	}
	return " (" + string(r) + ")"
}

func printable(text string) serverText {
	clean := strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	return serverText(short(clean))
}

func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// retryAfter reads Retry-After, in seconds or as a date; 0 when absent or not understood.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
