// Package chat renders the chat templates of model repositories as transformers does
// (apply_chat_template). Templates are programs in Jinja that strangers wrote. This package runs a
// part of the language that always ends: conditions, loops over the messages, strings joined from
// strings. It bounds steps and output, and refuses everything else by name.
package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Bounds on a template and on what it may do.
const (
	maxSource = 64 << 10
	maxOutput = 256 << 10
	maxSteps  = 100_000
	maxDepth  = 64
)

// Template is a parsed chat template. It is immutable and safe for concurrent use.
type Template struct{ body []node }

// Message is one message of a chat. With structured content it is a list of one part of text.
type Message struct{ Role, Content string }

// Input is what a template sees.
type Input struct {
	Messages   []Message
	Structured bool              // contents are lists of parts, as templates for several modalities want
	Begin      bool              // add_generation_prompt
	Tokens     map[string]string // special tokens by name, such as eos_token
}

// Parse parses a template. The error names what is not supported.
func Parse(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("the chat template has %d bytes; the limit is %d", len(source), maxSource)
	}
	tokens, err := split(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, end, err := p.block(0)
	if err == nil && end != "" {
		err = fmt.Errorf("the chat template has {%% %.40s %%} without its beginning", end)
	}
	return &Template{body}, err
}

// Render runs the template.
func (t *Template) Render(in Input) (string, error) {
	messages := make([]any, len(in.Messages))
	for i, m := range in.Messages {
		var content any = m.Content
		if in.Structured {
			content = []any{map[string]any{"type": "text", "text": m.Content}}
		}
		messages[i] = map[string]any{"role": m.Role, "content": content}
	}
	names := map[string]any{"messages": messages, "add_generation_prompt": in.Begin, "tools": nil,
		"documents": nil}
	for name, token := range in.Tokens {
		names[name] = token
	}
	r := &runner{names: names}
	if err := r.run(t.body); err != nil {
		return "", err
	}
	return r.out.String(), nil
}

// Pair is the text of a template around a query and a document, which each appear once in it, in
// that order.
type Pair struct {
	before, between, After  string
	trimQuery, trimDocument bool
}

// ErrNoPair is returned for templates that show a query and a document in no form that Pair has.
var ErrNoPair = errors.New(
	"the chat template does not show the messages with the roles query and document once each, in this order")

// Pair returns the form of t for messages with the roles query and document.
func (t *Template) Pair(in Input) (p Pair, err error) {
	// Blanks around the marks show whether the template trims what it gets.
	const query, document = " \n\ue000query\ue000\n ", " \n\ue000document\ue000\n "
	in.Messages = []Message{{"query", query}, {"document", document}}
	out, err := t.Render(in)
	if err != nil {
		return p, err
	}
	rest := ""
	p.before, rest, p.trimQuery, err = around(out, query)
	if err == nil {
		p.between, p.After, p.trimDocument, err = around(rest, document)
	}
	if strings.Contains(p.before+p.between+p.After, "\ue000") {
		err = ErrNoPair
	}
	return p, err
}

// around cuts out at mark, which may have lost the blanks around it.
func around(out, mark string) (before, after string, trims bool, err error) {
	for _, form := range []string{mark, Strip(mark)} {
		if before, after, found := strings.Cut(out, form); found {
			return before, after, form != mark, nil
		}
	}
	return "", "", false, ErrNoPair
}

// Before returns what stands before the document.
func (p Pair) Before(query string) string {
	if p.trimQuery {
		query = Strip(query)
	}
	return p.before + query + p.between
}

// Document returns the document as the template shows it.
func (p Pair) Document(text string) string {
	if p.trimDocument {
		return Strip(text)
	}
	return text
}

// Strip removes blanks from both ends, as Python's str.strip does.
func Strip(s string) string {
	return strings.TrimFunc(s, func(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f })
}
