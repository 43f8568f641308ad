package chat

import (
	"fmt"
	"strings"
)

// token is a piece of a template: text, or the inside of {{ }} or {% %}.
type token struct {
	kind byte // 't' text, '{' expression, '%' statement
	text string
}

// split cuts a template into its pieces. Blanks are removed as transformers sets Jinja up. A
// statement takes the blanks before it on its line and the newline behind it. With a dash a tag
// takes all blanks on that side. A newline at the end of the template does not count.
func split(source string) ([]token, error) {
	var out []token
	source = strings.TrimSuffix(source, "\n")
	starts := true  // whether the text begins a line
	take := byte(0) // what the tag before takes of the text: '-' all blanks, 'n' a newline
	for {
		open := nextTag(source)
		if open < 0 {
			text, _ := leading(source, take)
			return append(out, token{'t', text}), nil
		}
		text, rest := source[:open], source[open:]
		kind := rest[1]
		end := tagEnd(rest)
		if end < 0 {
			return nil, fmt.Errorf("the chat template has an open %q", rest[:2])
		}
		inside := rest[2:end]
		source = rest[end+2:]
		text, newline := leading(text, take)
		starts = starts || newline
		switch {
		case strings.HasPrefix(inside, "-"):
			text, inside = strings.TrimRight(text, " \t\r\n"), inside[1:]
		case strings.HasPrefix(inside, "+"):
			inside = inside[1:]
		case kind != '{':
			line := strings.TrimRight(text, " \t")
			if line == "" && starts || strings.HasSuffix(line, "\n") {
				text = line
			}
		}
		starts = false
		take = 'n'
		if kind == '{' {
			take = 0
		}
		switch {
		case strings.HasSuffix(inside, "-"):
			take, inside = '-', inside[:len(inside)-1]
		case strings.HasSuffix(inside, "+") && kind != '{':
			take, inside = 0, inside[:len(inside)-1]
		}
		if text != "" {
			out = append(out, token{'t', text})
		}
		if kind != '#' {
			out = append(out, token{kind, strings.TrimSpace(inside)})
		}
	}
}

// nextTag returns where the next tag begins, or -1.
func nextTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// tagEnd returns where the tag at the start of s closes, outside of its strings, or -1.
func tagEnd(s string) int {
	if s[1] == '#' {
		if i := strings.Index(s[2:], "#}"); i >= 0 {
			return 2 + i
		}
		return -1
	}
	closing := map[byte]string{'{': "}}", '%': "%}"}[s[1]]
	quote := byte(0)
	for i := 2; i+1 < len(s); i++ {
		switch {
		case quote != 0 && s[i] == '\\':
			i++
		case quote != 0:
			if s[i] == quote {
				quote = 0
			}
		case s[i] == '\'' || s[i] == '"':
			quote = s[i]
		case s[i:i+2] == closing:
			return i
		}
	}
	return -1
}

// leading removes what the tag before takes, and reports whether that ends a line.
func leading(text string, take byte) (string, bool) {
	switch take {
	case '-':
		return strings.TrimLeft(text, " \t\r\n"), false
	case 'n':
		return strings.CutPrefix(text, "\n")
	}
	return text, false
}
