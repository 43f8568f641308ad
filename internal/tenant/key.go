package tenant

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// maxKeyBytes bounds a token, maxKeys the plain keys.
const (
	maxKeyBytes = 512
	maxKeys     = 10_000
)

// hash is the SHA-256 of a token.
type hash = [sha256.Size]byte

func hashOf(token string) hash { return sha256.Sum256([]byte(token)) }

// checkToken returns why no client could send a token, or nil.
func checkToken(token string) error {
	switch {
	case token == "":
		return errors.New("it is empty")
	case len(token) > maxKeyBytes:
		return fmt.Errorf("it is longer than %d bytes", maxKeyBytes)
	case !visible(token):
		return errors.New("it holds spaces or characters that are not visible ASCII")
	}
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

// plainKeys returns the tenants of the given keys and of those in file, unless it is "". The file
// has one key a line; # begins a comment.
func plainKeys(given []string, file string) (out []entry, err error) {
	add := func(key string) error {
		if err := checkToken(key); err != nil {
			return err
		}
		if len(out) == maxKeys {
			return fmt.Errorf("more than %d keys", maxKeys)
		}
		out = append(out, entry{
			Tenant{Name: fmt.Sprint("key-", len(out)+1), Roles: Inference | Metrics, maxPriority: High},
			[]hash{hashOf(key)},
		})
		return nil
	}
	for i, key := range given {
		if err := add(key); err != nil {
			return nil, fmt.Errorf("API key %d: %w", i+1, err)
		}
	}
	if file == "" {
		return out, nil
	}
	b, err := files.Read(file, maxKeys*(maxKeyBytes+2))
	if err != nil {
		return nil, fmt.Errorf("API keys: %w", err)
	}
	before := len(out)
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		key, _, _ := strings.Cut(lines.Text(), "#")
		if key = strings.TrimSpace(key); key == "" {
			continue
		}
		if err := add(key); err != nil {
			return nil, fmt.Errorf("API keys in %s, line %d: %w", file, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("API keys in %s: %w", file, err)
	}
	if len(out) == before {
		return nil, fmt.Errorf(
			"API keys: %s holds no key; write one a line, or start without it to serve everybody", file)
	}
	return out, nil
}
