package catalog

import (
	"fmt"
	"math"
	"testing"
)

// Scalars are read as in YAML 1.1, which the reference reads. The YAML library handles tags and
// escapes.
func TestScalars(t *testing.T) {
	for text, want := range map[string]any{
		"true": true, "True": true, "TRUE": true, "yes": true, "On": true, "false": false, "no": false,
		"OFF": false, "tRue": "tRue", "y": "y", "n": "n", "": nil, "~": nil, "null": nil, "Null": nil,
		"NULL": nil, "nULL": "nULL", "0": int64(0), "-0": int64(0), "+1": int64(1), "012": int64(10),
		"0x1F": int64(31), "0b11": int64(3), "1_000": int64(1000),
		"9223372036854775807": int64(math.MaxInt64), "-9223372036854775808": int64(math.MinInt64),
		"99999999999999999999": "99999999999999999999", "08": "08", "0X1F": "0X1F", "0B1": "0B1",
		"0O7": "0O7", "1e3": "1e3", "1E-3": "1E-3", "1.5": 1.5, "-.5": -0.5, "5.": 5.0, "1.0e+3": 1000.0,
		"1,000": "1,000", "12:30": "12:30", "2024-01-01": "2024-01-01", "'1'": "1", `"yes"`: "yes",
		`"\u00e9\n"`: "é\n", "'a''b'": "a'b", "|\n  1\n  b\n": "1\nb\n", ">-\n  yes\n  b\n": "yes b",
		"a #c": "a", "a#c": "a#c", "a\tb": "a\tb",
		"[1, a,]": []any{int64(1), "a"}, "{a, b: 1}": map[string]any{"a": nil, "b": int64(1)},
		"&x {<<: {a: 1, b: 2}, b: 3}": map[string]any{"a": int64(1), "b": int64(3)},
	} {
		var l problemList
		n := parseDocument([]byte("k: "+text+"\n"), &l)
		if err := l.err(); err != nil || n == nil {
			t.Errorf("%q: %v", text, err)
		} else if got := n.lookup("k").plain(); fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
			t.Errorf("%q is %#v, want %#v", text, got, want)
		}
	}
}

func TestDocumentsAroundTheOnlyOne(t *testing.T) {
	for _, text := range []string{"a: 1\n", "---\na: 1\n...\n", "a: 1\n---\n", "---\n---\na: 1\n",
		"\ufeffa: 1\n", "# c\n\n---\n# d\na: 1\n--- # e\n", "a: 1\r\n"} {
		var l problemList
		if n := parseDocument([]byte(text), &l); n == nil || n.lookup("a") == nil || l.err() != nil {
			t.Errorf("%q: %v", text, l.err())
		}
	}
	for text, want := range map[string]string{
		"a: 1\n---\nb: 2\n": ":3: a second YAML document starts here; put one document in a file",
		"---\n---\n":        ":1: the file holds no YAML document",
		"# c\n%TAG ! x\n":   ":2: YAML directives are not supported; remove the % line",
		"a: {b: !t 1}\n":    ":1: YAML tags such as !t are not supported",
		"!!map {a: 1}\n":    ":1: YAML tags such as !!map are not supported",
		"a: [1,\n  *b]\n":   ":2: a[1]: unknown alias *b",
		"a: &x 1\nb: *x\nc: &x 2\nd: *x\n*y : 1\n": ":5: unknown alias *y",
		"a: &x {b: *x}\n":                          ":1: a.b: unknown alias *x",
		"a: +.inf\n":                               ":1: a: infinity and NaN are not allowed",
		"a: 9223372036854775808\n":                 ":1: a: the number 9223372036854775808 is out of range",
	} {
		var l problemList
		if n := parseDocument([]byte(text), &l); n != nil || l.err() == nil || l.err().Error() != want {
			t.Errorf("%q: %v, want %s", text, l.err(), want)
		}
	}
}

// An alias is the value of the last anchor of its name before it.
func TestAliasesFollowTheFile(t *testing.T) {
	var l problemList
	n := parseDocument([]byte("a: &x 1\nb: *x\nc: &x 2\nd: *x\ne: &y [*x]\nf: *y\n"), &l)
	if l.err() != nil {
		t.Fatal(l.err())
	}
	if got, want := fmt.Sprint(n.plain()), "map[a:1 b:1 c:2 d:2 e:[2] f:[2]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
