package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// Templates render to what transformers makes of them. The form that is read of a template gives
// the same text.
func TestTemplates(t *testing.T) {
	var g struct {
		Query, Document string
		Cases           []struct {
			Template, Text    string
			Structured, Begin bool
		}
	}
	data, err := os.ReadFile(filepath.Join(golden.Open(t, "chat").Dir, "templates.json"))
	if err == nil {
		err = json.Unmarshal(data, &g)
	}
	if err != nil || len(g.Cases) < 10 {
		t.Fatal(err)
	}
	pairs := 0
	for _, c := range g.Cases {
		in := Input{Structured: c.Structured, Begin: c.Begin,
			Messages: []Message{{"query", g.Query}, {"document", g.Document}},
			Tokens:   map[string]string{"eos_token": "<|im_end|>"}}
		template, err := Parse(c.Template)
		if err != nil {
			t.Errorf("%q: %v", c.Template, err)
			continue
		}
		if got, err := template.Render(in); err != nil || got != c.Text {
			t.Errorf("%q:\n%q, %v; want\n%q", c.Template, got, err, c.Text)
		}
		p, err := template.Pair(in)
		if err != nil {
			t.Errorf("%q: %v", c.Template, err)
			continue
		}
		pairs++
		if got := p.Before(g.Query) + p.Document(g.Document) + p.After; got != c.Text {
			t.Errorf("%q:\n%q; want\n%q", c.Template, got, c.Text)
		}
	}
	if pairs < 16 {
		t.Errorf("%d forms", pairs)
	}
}

// A template that is not supported, or that would take long, is refused by name.
func TestRefusedTemplates(t *testing.T) {
	double := "{% set x = 'abcdefghabcdefgh' %}" + strings.Repeat("{% set x = x ~ x %}", 60) + "{{ x }}"
	loops := strings.Repeat("{% for m in messages %}", 40) + "x" + strings.Repeat("{% endfor %}", 40)
	for source, want := range map[string]string{
		"{% include 'x' %}":                     `"include"`,
		"{% macro f() %}{% endmacro %}":         `"macro"`,
		"{{ range(9999999) }}":                  "a call of range",
		"{{ messages.__class__ }}":              `".__class__"`,
		"{{ 'a' * 99999999 }}":                  `"*"`,
		"{{ messages | tojson }}":               "the filter tojson",
		"{{ 'a":                                 `open "{{"`,
		"{{ 'a }}":                              `open "{{"`,
		"{% if true %}":                         "without its endif",
		"{% endif %}":                           "without its beginning",
		"{% for m in messages %}{% endif %}":    "no endfor",
		"{{ messages }}":                        "where text is wanted",
		"{{ messages[0].content }}":             "once each",
		"{{ raise_exception('no chats') }}":     "no chats",
		"{{ " + strings.Repeat("(", 999) + "}}": "nests",
		"{% if a %}" + strings.Repeat("{% elif b %}", 99) + "{% endif %}": "nested",
		strings.Repeat("{% if a %}", 99):                                  "nested",
		double:                                                            "steps",
		loops:                                                             "steps",
		strings.Repeat("x", maxSource+1):                                  "the limit is",
		"{{ messages[1].content }}{{ messages[0].content }}":                    "once each",
		"{{ messages[0].content ~ messages[1].content ~ messages[1].content }}": "once each",
		"{{ messages[0].content[0].text }}":                                     "an index that is no number",
	} {
		template, err := Parse(source)
		if err == nil {
			_, err = template.Pair(Input{})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v; want %q", source, err, want)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add("{%- for m in messages %}{{ m.role ~ m['content'] | trim }}{% if loop.last %}x{% endif %}{% endfor %}")
	f.Add("{% set x = messages | selectattr('role', 'eq', 'query') | first %}{{ x.content }}{# c #}")
	f.Fuzz(func(_ *testing.T, source string) {
		if template, err := Parse(source); err == nil {
			_, _ = template.Pair(Input{Begin: true})
		}
	})
}
