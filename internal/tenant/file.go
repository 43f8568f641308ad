package tenant

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// The bounds of the tokens file.
const (
	maxFileBytes = 1 << 20
	maxTenants   = 10_000
	maxList      = 1000 // entries of a list of one tenant
	maxNameBytes = 64
	maxDepth     = 5
	maxHold      = 10 * time.Minute
	maxQuota     = 1e9
)

// entry is a tenant as it is read, with the hashes of its tokens.
type entry struct {
	tenant Tenant
	tokens []hash
}

// readFile reads the entries of a tokens file. Its errors name the line, the key and what is
// possible, and no token.
func readFile(src []byte) ([]entry, error) {
	root, err := parse(src)
	if err != nil {
		return nil, err
	}
	m, err := object(root, "the file", "tenants")
	if err != nil {
		return nil, err
	}
	list := m["tenants"]
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return nil, at(root, "tenants must be a list of at least one tenant")
	}
	if len(list.Content) > maxTenants {
		return nil, at(list, "there are %d tenants; the limit is %d", len(list.Content), maxTenants)
	}
	out := make([]entry, len(list.Content))
	names, tokens := map[string]bool{}, map[hash]bool{}
	for i, n := range list.Content {
		if out[i], err = readEntry(n); err != nil {
			return nil, err
		}
		name := out[i].tenant.Name
		if names[name] {
			return nil, at(n, "the name %q is there twice", name)
		}
		names[name] = true
		for _, h := range out[i].tokens {
			if tokens[h] {
				return nil, at(n, "a token of %q is there twice", name)
			}
			tokens[h] = true
		}
	}
	return out, nil
}

// bounds applies the bound on nesting while the library reads a file.
type bounds struct{}

// CheckDepth refuses a file that is nested too deeply.
func (bounds) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > maxDepth+2 {
		return fmt.Errorf("lists and maps are nested more than %d levels deep", maxDepth)
	}
	return nil
}

// CheckAlias accepts an alias: plain refuses it, without following it.
func (bounds) CheckAlias(int, int) error { return nil }

// parse reads the only document of a file, which has neither anchors nor repeated keys.
func parse(src []byte) (*yaml.Node, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(src), yaml.WithPlugin(bounds{}))
	if err != nil {
		return nil, err
	}
	var body *yaml.Node
	for {
		var document yaml.Node
		if err := loader.Load(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if body != nil {
			return nil, at(&document, "a second YAML document starts here")
		}
		body = document.Content[0]
	}
	if body == nil {
		return nil, errors.New("the file is empty")
	}
	return body, plain(body, 0)
}

// plain refuses what a tokens file does not need and what other files were attacked with.
func plain(n *yaml.Node, depth int) error {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return at(n, "anchors and aliases are not allowed here")
	case depth > maxDepth:
		return at(n, "lists and maps are nested more than %d levels deep", maxDepth)
	}
	for _, c := range n.Content {
		if err := plain(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func at(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, args...))
}

// object returns the values of a map with these keys alone.
func object(n *yaml.Node, what string, keys ...string) (map[string]*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, at(n, "%s must be a map with the keys %s", what, strings.Join(keys, ", "))
	}
	out := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case !slices.Contains(keys, k.Value):
			return nil, at(k, "unknown key %.64q; the keys of %s are %s", k.Value, what,
				strings.Join(keys, ", "))
		case out[k.Value] != nil:
			return nil, at(k, "the key %q is there twice", k.Value)
		}
		out[k.Value] = n.Content[i+1]
	}
	return out, nil
}

// readEntry reads one tenant.
func readEntry(n *yaml.Node) (e entry, err error) {
	m, err := object(n, "a tenant", "name", "tokens", "token_sha256", "roles", "pools", "models",
		"items_per_s", "in_flight_items", "priority", "max_priority", "hold")
	if err != nil {
		return e, err
	}
	t := &e.tenant
	t.Roles, t.maxPriority = Inference, High
	if t.Name, err = word(n, m, "name", maxNameBytes); err != nil {
		return e, err
	}
	if e.tokens, err = readTokens(n, m); err != nil {
		return e, err
	}
	if err = readRoles(t, m["roles"]); err != nil {
		return e, err
	}
	if t.pools, err = list(m["pools"], "pools"); err != nil {
		return e, err
	}
	if t.models, err = list(m["models"], "models"); err != nil {
		return e, err
	}
	for i, p := range t.models {
		if strings.Contains(strings.TrimSuffix(p, "*"), "*") {
			return e, at(m["models"], "model %.64q: only the last character may be *", p)
		}
		t.models[i] = strings.ToLower(p)
	}
	if t.itemsPerSecond, err = quota(m["items_per_s"], "items_per_s", false); err != nil {
		return e, err
	}
	inFlight, err := quota(m["in_flight_items"], "in_flight_items", true)
	if err != nil {
		return e, err
	}
	t.inFlight = int(inFlight)
	for _, p := range []struct {
		key string
		to  *Priority
	}{{"priority", &t.priority}, {"max_priority", &t.maxPriority}} {
		if v := m[p.key]; v != nil {
			var ok bool
			if *p.to, ok = ParsePriority(v.Value); !ok {
				return e, at(v, "%s is %.64q; use high, normal or low", p.key, v.Value)
			}
		}
	}
	if t.priority.Rank() < t.maxPriority.Rank() {
		return e, at(n, "priority %s is above max_priority %s", t.priority, t.maxPriority)
	}
	if v := m["hold"]; v != nil {
		if t.hold, err = ParseHold(v.Value); err != nil {
			return e, at(v, "hold: %v", err)
		}
	}
	return e, nil
}

// ParseHold reads for how long a request is held: seconds, or a number with a unit.
func ParseHold(s string) (time.Duration, error) {
	text := s
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		text = s + "s"
	}
	d, err := time.ParseDuration(text)
	if len(s) > 32 || err != nil || d < 0 || d > maxHold {
		return 0, fmt.Errorf("%.32q is no time between 0s and %v, such as 60s", s, maxHold)
	}
	return d, nil
}

// word returns a scalar that may be a part of a log line or a label.
func word(n *yaml.Node, m map[string]*yaml.Node, key string, most int) (string, error) {
	v := m[key]
	if v == nil {
		return "", at(n, "%s is missing", key)
	}
	if !isText(v) || len(v.Value) > most || !visible(v.Value) {
		return "", at(v, "%s must be 1 to %d visible ASCII characters without spaces", key, most)
	}
	return v.Value, nil
}

// isText reports whether a node is a text that is not empty. A null is none: it is what a template
// leaves of a token that is not set, and as a text anybody could guess it.
func isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value != "" && n.ShortTag() != "!!null"
}

// readTokens reads the tokens of an entry, in plain text or as SHA-256.
func readTokens(n *yaml.Node, m map[string]*yaml.Node) (out []hash, err error) {
	plain, err := list(m["tokens"], "tokens")
	if err != nil {
		return nil, err
	}
	for i, token := range plain {
		if err := checkToken(token); err != nil {
			return nil, at(m["tokens"], "tokens[%d]: %v", i, err)
		}
		out = append(out, hashOf(token))
	}
	sums, err := list(m["token_sha256"], "token_sha256")
	if err != nil {
		return nil, err
	}
	for i, text := range sums {
		sum, err := hex.DecodeString(text)
		if err != nil || len(sum) != len(hash{}) {
			return nil, at(m["token_sha256"], "token_sha256[%d] must be 64 hexadecimal digits", i)
		}
		out = append(out, hash(sum))
	}
	if len(out) == 0 {
		return nil, at(n, "a tenant needs tokens or token_sha256, with at least one entry")
	}
	return out, nil
}

func readRoles(t *Tenant, n *yaml.Node) error {
	names, err := list(n, "roles")
	if names == nil || err != nil {
		return err
	}
	t.Roles = 0
	for _, name := range names {
		r := roles[name]
		if r == 0 {
			return at(n, "unknown role %.64q; use inference, metrics or admin", name)
		}
		t.Roles |= r
	}
	return nil
}

// list reads a list of texts, nil for a key that is absent. An empty one is an error: it would read
// as nobody to one and as everybody to another.
func list(n *yaml.Node, key string) ([]string, error) {
	if n == nil {
		return nil, nil
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > maxList {
		return nil, at(n, "%s must be a list of 1 to %d texts; leave the key out for no limit", key, maxList)
	}
	out := make([]string, len(n.Content))
	for i, c := range n.Content {
		if !isText(c) || len(c.Value) > maxKeyBytes {
			return nil, at(c, "%s[%d] must be a text of 1 to %d bytes", key, i, maxKeyBytes)
		}
		out[i] = c.Value
	}
	return out, nil
}

// quota reads a limit above 0, or 0 for a key that is absent.
func quota(n *yaml.Node, key string, whole bool) (float64, error) {
	if n == nil {
		return 0, nil
	}
	x, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || !(x > 0) || x > maxQuota || whole && x != math.Trunc(x) {
		kind := "number"
		if whole {
			kind = "whole number"
		}
		return 0, at(n, "%s must be a %s above 0 and at most %g; leave the key out for no limit",
			key, kind, maxQuota)
	}
	return x, nil
}
