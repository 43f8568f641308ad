package configd

import (
	"reflect"
	"testing"

	"github.com/sie-engine/sie/catalog"
)

// A JSON body says what the same document in YAML says, also where JSON writes it otherwise:
// Python's json escapes characters beyond U+FFFF as surrogate pairs, and writes 1e+16.
func TestBodiesInJSON(t *testing.T) {
	for _, c := range []struct {
		body string
		want map[string]any
	}{
		{`{"x":"\ud83d\ude00","y":"a\\\ud83d\ude00\"\uD83D\uDE00b"}`,
			map[string]any{"x": "😀", "y": "a\\😀\"😀b"}},
		{`{"x":"\\ud83d\\ude00","\ud83d\ude00":"\u00e9"}`, map[string]any{"x": `\ud83d\ude00`, "😀": "é"}},
		{`{"x":1e3,"y":[-1e-2,2E+1,1.5e1,-7,0.25],"z":"1e3"}`,
			map[string]any{"x": 1e3, "y": []any{-0.01, 20.0, 15.0, int64(-7), 0.25}, "z": "1e3"}},
		{`{"x":"\"1e3","y":{"z":true},"n":null,"e":""}`,
			map[string]any{"x": `"1e3`, "y": map[string]any{"z": true}, "n": nil, "e": ""}},
	} {
		c.want["sie_id"] = "a/b"
		d, no := submit([]byte(c.body), "a/b")
		if no != nil {
			t.Errorf("%s: %v", c.body, no)
			continue
		}
		stored, err := catalog.Document{Name: "stored", Source: []byte(d.text)}.Content()
		if err != nil || !reflect.DeepEqual(d.content, c.want) || !reflect.DeepEqual(stored, c.want) {
			t.Errorf("%s:\n read   %#v\n stored %#v, %v\n want   %#v", c.body, d.content, stored, err, c.want)
		}
	}
	for _, body := range []string{`{"x":"\ud83d"}`, `{"x":"\ude00\ud83d"}`, `{"x":"\ud83d\u0041"}`,
		`{"x":"\ud83dxx1234"}`} {
		if d, no := submit([]byte(body), "a/b"); no == nil || no.status != 400 {
			t.Errorf("%s, which is no text: %v", body, d)
		}
	}
}
