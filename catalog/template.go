package catalog

import (
	"errors"
	"fmt"
	"strings"
)

const (
	maxTemplateBytes = 16 << 10
	// maxTemplateFields bounds how often a template uses each field, so that a filled template is
	// at most a few times as long as its text.
	maxTemplateFields = 4
)

// Template is a parsed text template: literal text with {text} and {instruction} fields. A doubled
// brace stands for one brace, as in Python's str.format. It is immutable and safe for concurrent
// use.
type Template struct {
	source string
	parts  []templatePart
}

type templatePart struct {
	field   byte // 0 literal, 't' text, 'i' instruction
	literal string
}

// ParseTemplate parses a template with the two fields and no others, each at most maxTemplateFields
// times. Conversions ("!r") and format specs (":>8") are errors.
func ParseTemplate(source string) (*Template, error) {
	if len(source) > maxTemplateBytes {
		return nil, fmt.Errorf("the template has %d bytes; the limit is %d", len(source), maxTemplateBytes)
	}
	t := &Template{source: source}
	var lit strings.Builder
	uses := map[string]int{}
	for i := 0; i < len(source); {
		c := source[i]
		switch {
		case (c == '{' || c == '}') && i+1 < len(source) && source[i+1] == c:
			lit.WriteByte(c)
			i += 2
		case c == '}':
			return nil, errors.New("the template has a single '}'; write '}}' for a brace")
		case c == '{':
			end := strings.IndexAny(source[i+1:], "{}")
			if end < 0 || source[i+1+end] == '{' {
				return nil, errors.New("the template has a single '{'; write '{{' for a brace")
			}
			name := source[i+1 : i+1+end]
			if name != "text" && name != "instruction" {
				return nil, fmt.Errorf("the template uses {%s}; only {text} and {instruction} may be used",
					clip(name))
			}
			if uses[name]++; uses[name] > maxTemplateFields {
				return nil, fmt.Errorf("the template uses {%s} more than %d times", name, maxTemplateFields)
			}
			if lit.Len() > 0 {
				t.parts = append(t.parts, templatePart{literal: lit.String()})
				lit.Reset()
			}
			t.parts = append(t.parts, templatePart{field: name[0]})
			i += len(name) + 2
		default:
			lit.WriteByte(c)
			i++
		}
	}
	if lit.Len() > 0 {
		t.parts = append(t.parts, templatePart{literal: lit.String()})
	}
	return t, nil
}

// PrefixTemplate returns the template that puts prefix before the text. Braces in prefix are
// literal, as in the prompts of config_sentence_transformers.json.
func PrefixTemplate(prefix string) *Template {
	esc := strings.NewReplacer("{", "{{", "}", "}}").Replace(prefix)
	t := &Template{source: esc + "{text}"}
	if prefix != "" {
		t.parts = append(t.parts, templatePart{literal: prefix})
	}
	t.parts = append(t.parts, templatePart{field: 't'})
	return t
}

// String returns the source of the template.
func (t *Template) String() string { return t.source }

// Format fills the template. Braces in text and instruction are ordinary characters.
func (t *Template) Format(text, instruction string) string {
	if len(t.parts) == 1 && t.parts[0].field == 't' {
		return text
	}
	n := 0
	for _, p := range t.parts {
		n += len(p.value(text, instruction))
	}
	var b strings.Builder
	b.Grow(n)
	for _, p := range t.parts {
		b.WriteString(p.value(text, instruction))
	}
	return b.String()
}

// before returns what Format puts before the first {text}.
func (t *Template) before(instruction string) string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.field == 't' {
			break
		}
		b.WriteString(p.value("", instruction))
	}
	return b.String()
}

func (p templatePart) value(text, instruction string) string {
	switch p.field {
	case 't':
		return text
	case 'i':
		return instruction
	}
	return p.literal
}
