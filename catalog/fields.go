package catalog

import (
	"fmt"
	"strings"
)

// fields reads the keys of one YAML map against the list of valid keys. Every getter treats null as
// absent. For a wrong type or value it adds a Problem and returns the zero value.
type fields struct {
	l    *problemList
	n    *node
	path string
}

// object opens a map. Keys outside valid are problems. A value that is not a map is a problem and
// reads as an empty map.
func object(l *problemList, n *node, path string, valid []string) fields {
	f := fields{l: l, n: n, path: path}
	if n.kind != kindMap {
		l.add(n.line, path, "expected a map, got %s", n.describe())
		f.n = &node{kind: kindMap, line: n.line, size: 1}
		return f
	}
	for _, p := range n.pairs {
		if !contains(valid, p.key) {
			l.add(p.line, joinKey(path, p.key), "unknown key; %s", keyHint(p.key, valid))
		}
	}
	return f
}

// openMap opens a map whose keys are data (profile names, repositories).
func openMap(l *problemList, n *node, path string) fields {
	keys := make([]string, 0, len(n.pairs))
	for _, p := range n.pairs {
		keys = append(keys, p.key)
	}
	return object(l, n, path, keys)
}

// keyHint suggests the nearest valid key, or the place of a key that is valid elsewhere, or lists
// all valid keys.
func keyHint(key string, valid []string) string {
	if near := closeMatches(key, valid, 1, suggestCutoff); len(near) > 0 {
		return fmt.Sprintf("did you mean %q?", near[0])
	}
	if _, ok := runtimeSpecs[key]; ok {
		return "it belongs under adapter_options.runtime"
	}
	if _, ok := loadtimeSpecs[key]; ok {
		return "it belongs under adapter_options.loadtime"
	}
	return "valid keys: " + strings.Join(valid, ", ")
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

func (f fields) key(name string) string { return joinKey(f.path, name) }

// get returns the value of a key, nil when it is absent or null.
func (f fields) get(name string) *node {
	if v := f.n.lookup(name); v != nil && v.kind != kindNull {
		return v
	}
	return nil
}

func (f fields) require(name string) {
	if f.get(name) == nil {
		f.l.add(f.n.line, f.key(name), "required key is missing")
	}
}

// text reads a string of at most limit bytes. It returns "" for an absent key; an empty string is a
// problem.
func (f fields) text(name string, limit int) string {
	v := f.get(name)
	if v == nil {
		return ""
	}
	switch {
	case v.kind == kindBool:
		f.l.add(v.line, f.key(name), "expected a string, got %s; put it in quotes", v.describe())
	case v.kind != kindString:
		f.l.add(v.line, f.key(name), "expected a string, got %s", v.describe())
	case v.text == "":
		f.l.add(v.line, f.key(name), "must not be empty")
	case len(v.text) > limit:
		f.l.add(v.line, f.key(name), "has %d bytes; the limit is %d", len(v.text), limit)
	default:
		return v.text
	}
	return ""
}

// enum reads a string that must be one of values.
func (f fields) enum(name string, values ...string) string {
	s := f.text(name, maxQuoted)
	if s == "" || contains(values, s) {
		return s
	}
	f.l.add(f.get(name).line, f.key(name), "must be %s; got %q", orList(values), s)
	return ""
}

func (f fields) boolean(name string) *bool {
	v := f.get(name)
	if v == nil {
		return nil
	}
	if v.kind != kindBool {
		f.l.add(v.line, f.key(name), "expected true or false, got %s", v.describe())
		return nil
	}
	b := v.flag
	return &b
}

// integer reads a whole number in [lo, hi]. It returns 0 for an absent key, so lo is at least 1.
func (f fields) integer(name string, lo, hi int64) int {
	v := f.get(name)
	if v == nil {
		return 0
	}
	if v.kind != kindInt {
		f.l.add(v.line, f.key(name), "expected a whole number, got %s", v.describe())
		return 0
	}
	if v.num < lo || v.num > hi {
		f.l.add(v.line, f.key(name), "must be between %d and %d; got %d", lo, hi, v.num)
		return 0
	}
	return int(v.num)
}

// number reads a float or whole number in [lo, hi].
func (f fields) number(name string, lo, hi float64) *float64 {
	v := f.get(name)
	if v == nil {
		return nil
	}
	x := v.real
	switch v.kind {
	case kindInt:
		x = float64(v.num)
	case kindFloat:
	default:
		f.l.add(v.line, f.key(name), "expected a number, got %s", v.describe())
		return nil
	}
	if x < lo || x > hi {
		f.l.add(v.line, f.key(name), "must be between %g and %g; got %g", lo, hi, x)
		return nil
	}
	return &x
}

// strings reads a list of at most limit non-empty strings.
func (f fields) strings(name string, limit int) []string {
	v := f.get(name)
	if v == nil {
		return nil
	}
	if v.kind != kindList {
		f.l.add(v.line, f.key(name), "expected a list of strings, got %s", v.describe())
		return nil
	}
	if len(v.items) > limit {
		f.l.add(v.line, f.key(name), "has %d entries; the limit is %d", len(v.items), limit)
		return nil
	}
	out := make([]string, 0, len(v.items))
	for i, e := range v.items {
		if e.kind != kindString || e.text == "" {
			f.l.add(e.line, fmt.Sprintf("%s[%d]", f.key(name), i), "expected a non-empty string, got %s",
				e.describe())
			continue
		}
		out = append(out, e.text)
	}
	return out
}

// describe names a value for "expected X, got …".
func (n *node) describe() string {
	if n.kind == kindBool && n.text != "" {
		return n.text
	}
	return describe(n.plainShallow())
}

// plainShallow returns plain's result for a scalar and an empty container otherwise, which is all
// that describe needs.
func (n *node) plainShallow() any {
	switch n.kind {
	case kindList:
		return []any{}
	case kindMap:
		return map[string]any{}
	}
	return n.plain()
}

// describe names a decoded value for "expected X, got …".
func describe(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(x)
	case string:
		return fmt.Sprintf("the string %q", clip(x))
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return fmt.Sprintf("the number %v", x)
	}
	return "a value of another type"
}

func orList(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values[:len(values)-1], ", ") + " or " + values[len(values)-1]
}
