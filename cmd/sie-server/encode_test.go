package main

import (
	"slices"
	"strings"
	"testing"
)

func TestTextLines(t *testing.T) {
	l := newTextLines(strings.NewReader("a\n\nç\r\nno end"))
	var all []string
	for _, want := range []int{2, 2, 0, 0} {
		texts, _, err := l.next(nil, 2)
		if err != nil || len(texts) != want {
			t.Fatalf("%q, %v; want %d texts", texts, err, want)
		}
		all = append(all, texts...)
	}
	if want := []string{"a", "", "ç", "no end"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
	for in, want := range map[string]string{
		"a\nb\xff\n":                              "line 2: the text is not UTF-8",
		"a\n" + strings.Repeat("x", maxLine+1):    "line 2: ",
		strings.Repeat("y", maxLine) + "\n\xff\n": "line 1: ",
	} {
		if _, _, err := newTextLines(strings.NewReader(in)).next(nil, 10); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", in, err, want)
		}
	}
}
