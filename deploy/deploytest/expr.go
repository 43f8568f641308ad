// Package deploytest reads the expressions of the chart's files, for tests: which metrics and which
// labels each uses, and whether a registry has them.
//
// Entry points: Expressions, Parse, Missing. It starts nothing.
package deploytest

import (
	"fmt"
	"slices"
	"strings"
	"text/scanner"
)

// Use is what an expression of PromQL says of metrics.
type Use struct {
	Selectors []Selector
	Grouping  []string // labels of by, without, on, ignoring, group_left and group_right
}

// Selector is one selection of series.
type Selector struct {
	Text   string // as it was written, without a range
	Metric string
	Labels []string // of its matchers
}

// The words of PromQL.
var (
	functions = strings.Fields("abs ceil changes clamp clamp_max clamp_min count deriv floor " +
		"histogram_quantile increase irate label_replace max max_over_time min min_over_time avg " +
		"avg_over_time sum sum_over_time rate round scalar sort sort_desc time timestamp topk vector")
	groups   = strings.Fields("by without on ignoring group_left group_right")
	keywords = strings.Fields("and or unless bool offset")
)

// Parse reads an expression. It knows as much of PromQL as the chart's files use, and refuses what
// it does not know: a function among others.
func Parse(text string) (u Use, err error) {
	p := &parser{text: text}
	p.Init(strings.NewReader(text))
	p.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanFloats | scanner.ScanStrings
	p.IsIdentRune = func(c rune, i int) bool {
		return c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
			i > 0 && c >= '0' && c <= '9'
	}
	p.Error = func(_ *scanner.Scanner, what string) { p.fail("%s", what) }
	p.next()
	for p.tok != scanner.EOF && p.err == nil {
		p.one(&u)
	}
	if p.err == nil && len(u.Selectors) == 0 {
		p.fail("it selects nothing")
	}
	return u, p.err
}

type parser struct {
	scanner.Scanner
	text string
	tok  rune
	err  error
}

func (p *parser) next() { p.tok = p.Scan() }

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%q: %s", p.text, fmt.Sprintf(format, args...))
	}
}

// one reads what begins at the current token.
func (p *parser) one(u *Use) {
	switch p.tok {
	case '[':
		for p.tok != ']' && p.tok != scanner.EOF {
			p.next()
		}
		p.next()
		return
	case '{':
		p.fail("series without the name of a metric")
		return
	case scanner.Ident:
	default:
		p.next()
		return
	}
	word, begin := p.TokenText(), p.Position.Offset
	p.next()
	switch {
	case slices.Contains(keywords, word):
	case slices.Contains(groups, word):
		if p.tok == '(' {
			u.Grouping = append(u.Grouping, p.names()...)
		}
	case p.tok == '(' || slices.Contains(functions, word):
		if !slices.Contains(functions, word) {
			p.fail("%s is no function", word)
		}
	default:
		s := Selector{Metric: word, Text: word}
		if p.tok == '{' {
			s.Labels = p.matchers()
			s.Text = strings.TrimSpace(p.text[begin:p.Position.Offset])
			p.next()
		}
		u.Selectors = append(u.Selectors, s)
	}
}

// names reads "(a, b)".
func (p *parser) names() (out []string) {
	for p.next(); p.tok != ')' && p.tok != scanner.EOF; p.next() {
		if p.tok == scanner.Ident {
			out = append(out, p.TokenText())
		}
	}
	p.next()
	return out
}

// matchers reads the labels of "{a="x",b=~"y"}" and stops behind the bracket.
func (p *parser) matchers() (out []string) {
	for p.next(); p.tok != '}' && p.err == nil; p.next() {
		switch p.tok {
		case scanner.Ident:
			out = append(out, p.TokenText())
		case scanner.EOF:
			p.fail("a bracket is not closed")
		}
	}
	p.Position.Offset = p.Pos().Offset
	return out
}
