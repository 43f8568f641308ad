package catalog

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/confighash"
	"github.com/sie-engine/sie/internal/docform"
)

// Text returns content as a YAML document that reads back as the same content: keys in the order of
// a model file, those it does not know after them, two spaces a level. Scalars have their JSON
// form, so that no text reads back as a number and no whole float as an integer. A long text has
// several lines.
func Text(content map[string]any) []byte {
	var b bytes.Buffer
	appendMap(&b, content, modelKeys, 0)
	return docform.Fold(b.Bytes())
}

// plainKey matches the keys that need no quotes; plainWord those of them that are another value.
var (
	plainKey  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)
	plainWord = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null)$`)
)

// appendMap writes the pairs of a map, each at the given depth.
func appendMap(b *bytes.Buffer, m map[string]any, first []string, depth int) {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(x, y string) int {
		if i, j := slices.Index(first, x), slices.Index(first, y); i >= 0 && j >= 0 {
			return i - j
		} else if i >= 0 || j >= 0 {
			return j - i // the one that is known
		}
		return strings.Compare(x, y)
	})
	for _, key := range keys {
		indent(b, depth)
		if plainKey.MatchString(key) && !plainWord.MatchString(key) {
			b.WriteString(key)
		} else {
			appendQuoted(b, key)
		}
		b.WriteByte(':')
		appendBelow(b, m[key], depth+1)
	}
}

// appendBelow writes a value after its key or its dash, with the line break.
func appendBelow(b *bytes.Buffer, v any, depth int) {
	switch x := v.(type) {
	case map[string]any:
		if len(x) > 0 {
			b.WriteByte('\n')
			appendMap(b, x, nil, depth)
			return
		}
		b.WriteString(" {}")
	case []any:
		if len(x) > 0 {
			b.WriteByte('\n')
			for _, item := range x {
				indent(b, depth)
				b.WriteByte('-')
				appendBelow(b, item, depth+1)
			}
			return
		}
		b.WriteString(" []")
	case string:
		b.WriteByte(' ')
		appendQuoted(b, x)
	default:
		number := string(confighash.Canonical(v, confighash.ASCII))
		if digits, exponent, ok := strings.Cut(number, "e+"); ok && !strings.Contains(digits, ".") {
			number = digits + ".0e+" + exponent // without a point it is a text in YAML 1.1
		} else if digits, exponent, ok := strings.Cut(number, "e-"); ok && !strings.Contains(digits, ".") {
			number = digits + ".0e-" + exponent
		}
		b.WriteByte(' ')
		b.WriteString(number)
	}
	b.WriteByte('\n')
}

func indent(b *bytes.Buffer, depth int) {
	for range depth {
		b.WriteString("  ")
	}
}

// appendQuoted writes a string between double quotes. What a YAML reader does not accept as it is,
// it escapes as YAML does.
func appendQuoted(b *bytes.Buffer, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r >= 0x7f && r <= 0xa0:
			fmt.Fprintf(b, `\x%02x`, r)
		case r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
