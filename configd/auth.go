package configd

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// Tokens says who may read. Empty ones accept nobody.
type Tokens struct {
	Read      string // of gateways and sidecars
	Inference string // of callers of the inference routes, with commas between: not for the export
	Admin     string // also for writing

	// Production refuses everybody while there is no token at all.
	Production bool
}

func (t *Tokens) none() bool { return t.Read == "" && t.Inference == "" && t.Admin == "" }

// refusal is the answer to a request that is refused. detail is a text or an object.
type refusal struct {
	status int
	detail any
}

// reads returns why a caller with this Authorization header may not read, or nil.
func (t *Tokens) reads(header string, export bool) *refusal {
	if t.none() {
		if t.Production {
			return &refusal{403, "config service requires SIE_CONFIG_READ_TOKEN (or SIE_ADMIN_TOKEN) " +
				"in production (refusing to serve unauthenticated)"}
		}
		return nil
	}
	token := bearer(header)
	if token == "" {
		return &refusal{401, "Missing Authorization header"}
	}
	ok := same(token, t.Read) | same(token, t.Admin)
	if !export {
		for one := range strings.SplitSeq(t.Inference, ",") {
			ok |= same(token, strings.TrimSpace(one))
		}
	}
	if ok == 0 {
		return &refusal{403, "Invalid token"}
	}
	return nil
}

// The rights that a gateway with keys says its caller has, in the header gatewayAuth.
const (
	gatewayAdmin = "admin" // reads, and writes
	gatewayRead  = "read"  // reads all but the export
)

// relayed returns why a request that a gateway with keys passed on is refused while there is no
// token: the gateway lets such requests pass, because sie-config decides about them. Nobody gains
// by making the header up, who could do without it what it allows.
func (t *Tokens) relayed(gateway string, read bool) *refusal {
	if gateway == "" || !t.none() || gateway == gatewayAdmin || read && gateway == gatewayRead {
		return nil
	}
	return &refusal{403, "the gateway asks for keys, and sie-config has no tokens: this needs the role " +
		"admin in the gateway's tokens file, or set SIE_ADMIN_TOKEN and SIE_CONFIG_READ_TOKEN at sie-config"}
}

// writes returns why a caller may not write, or nil.
func (t *Tokens) writes(header string) *refusal {
	switch token := bearer(header); {
	case t.Admin == "" && !t.none():
		return &refusal{403, "Write operations require SIE_ADMIN_TOKEN (read tokens are not sufficient)."}
	case t.Admin == "" && t.Production:
		return &refusal{403, "config service requires SIE_ADMIN_TOKEN in production " +
			"(refusing to serve unauthenticated)"}
	case t.Admin == "":
		return nil
	case token == "":
		return &refusal{401, "Missing Authorization header"}
	case same(token, t.Admin) == 0:
		return &refusal{403, "Admin token required for config mutations"}
	}
	return nil
}

// bearer returns the token of a header, with or without the scheme in any case.
func bearer(header string) string {
	header = strings.TrimSpace(header)
	if len(header) >= 7 && strings.EqualFold(header[:7], "Bearer ") {
		return strings.TrimSpace(header[7:])
	}
	return header
}

// same returns 1 if the tokens are equal and not empty. Its time depends on neither.
func same(got, want string) int {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	equal := subtle.ConstantTimeCompare(a[:], b[:])
	if want == "" {
		return 0
	}
	return equal
}
