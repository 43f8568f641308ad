package httpd

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/sie-engine/sie/internal/errs"
)

// Keys holds the API keys that a server accepts, as hashes. All compared values thus have the same
// length, and Keys retains no key in plain text. Immutable; a nil *Keys accepts every request.
type Keys struct {
	hashes [][sha256.Size]byte
}

// maxKeyBytes bounds a key, maxKeys how many are compared with each request's.
const (
	maxKeyBytes = 512
	maxKeys     = 10_000
)

// NewKeys returns the given keys and those in file, unless it is "". The file has one key a line; #
// begins a comment. NewKeys fails closed: an unreadable file, a file without a key, and a key that
// no client could send are errors, and never lead to an open server. Without any key it returns
// nil.
func NewKeys(given []string, file string) (*Keys, error) {
	k := &Keys{}
	for i, key := range given {
		if err := k.add(key); err != nil {
			return nil, fmt.Errorf("API key %d: %w", i+1, err)
		}
	}
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("API keys: %w", err)
		}
		before := len(k.hashes)
		lines := bufio.NewScanner(bytes.NewReader(b))
		for n := 1; lines.Scan(); n++ {
			key, _, _ := strings.Cut(lines.Text(), "#")
			if key = strings.TrimSpace(key); key == "" {
				continue
			}
			if err := k.add(key); err != nil {
				return nil, fmt.Errorf("API keys in %s, line %d: %w", file, n, err)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("API keys in %s: %w", file, err)
		}
		if len(k.hashes) == before {
			return nil, fmt.Errorf(
				"API keys: %s holds no key; write one a line, or start without it to serve everybody", file)
		}
	}
	if len(k.hashes) == 0 {
		return nil, nil
	}
	return k, nil
}

func (k *Keys) add(key string) error {
	switch {
	case key == "":
		return errors.New("it is empty")
	case len(key) > maxKeyBytes:
		return fmt.Errorf("it is longer than %d bytes", maxKeyBytes)
	case !visible(key):
		return errors.New("it holds spaces or characters that are not visible ASCII")
	case len(k.hashes) == maxKeys:
		return fmt.Errorf("more than %d keys", maxKeys)
	}
	k.hashes = append(k.hashes, sha256.Sum256([]byte(key)))
	return nil
}

// visible reports whether s is visible ASCII.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// find returns the number of key, from 1, or 0. The time it takes depends neither on which key
// matches nor on how much of a key is right.
func (k *Keys) find(key string) int {
	h := sha256.Sum256([]byte(key))
	found := 0
	for i := range k.hashes {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(h[:], k.hashes[i][:]), i+1, found)
	}
	return found
}

// keyProtocol begins the subprotocol in which a browser sends its key to a WebSocket, in base64url
// without padding. A browser cannot set headers there, and a key in the URL would be written to
// logs.
const keyProtocol = "sie.key."

// admit returns the number of the key that a request carries, or the 401.
func (k *Keys) admit(h *fasthttp.RequestHeader) (int, *errs.Error) {
	key := string(h.Peek("X-API-Key"))
	if scheme, rest, ok := strings.Cut(string(h.Peek("Authorization")), " "); ok &&
		strings.EqualFold(scheme, "Bearer") {
		key = strings.TrimSpace(rest)
	}
	if key == "" {
		for p := range strings.SplitSeq(string(h.Peek("Sec-WebSocket-Protocol")), ",") {
			if coded, ok := strings.CutPrefix(strings.TrimSpace(p), keyProtocol); ok {
				b, _ := base64.RawURLEncoding.DecodeString(coded)
				key = string(b)
			}
		}
	}
	switch {
	case key == "":
		return 0, errs.NoKey()
	case len(key) > maxKeyBytes:
		return 0, errs.WrongKey()
	}
	if n := k.find(key); n > 0 {
		return n, nil
	}
	return 0, errs.WrongKey()
}
