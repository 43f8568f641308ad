package chat

import (
	"fmt"
	"strconv"
	"strings"
)

// node is a part of a template.
type node struct {
	kind string // text, out, if, for, set
	text string // of text; the name of for and set
	expr expr   // what is shown, tested, looped over or set
	body []node
	rest []node // of if: its else
}

// expr is an expression: an operator with its operands.
type expr struct {
	op    string // str, int, name, const, get, at, filter, call, not, and, or, in, +, ~, ==, !=, is, none
	text  string // of str and name; the name of get, filter, call and is
	value any    // of int and const
	args  []expr
	keys  []string // the names of args of a filter; "" without
}

type parser struct {
	tokens []token
	words  []string // of the tag that is being read
}

func unsupported(what string) error {
	return fmt.Errorf("the chat template has %.60q, which is not supported", what)
}

// block reads nodes up to a statement that ends or divides the block, and returns that statement.
func (p *parser) block(depth int) (body []node, end string, err error) {
	if depth > maxDepth {
		return nil, "", fmt.Errorf("the chat template is nested more than %d deep", maxDepth)
	}
	for len(p.tokens) > 0 {
		t := p.tokens[0]
		p.tokens = p.tokens[1:]
		if t.kind == 't' {
			body = append(body, node{kind: "text", text: t.text})
			continue
		}
		if p.words, err = words(t.text); err != nil {
			return nil, "", err
		}
		if t.kind == '{' {
			n := node{kind: "out"}
			if n.expr, err = p.whole(); err != nil {
				return nil, "", err
			}
			body = append(body, n)
			continue
		}
		verb := p.next()
		switch verb {
		case "elif", "else", "endif", "endfor":
			return body, verb, nil
		}
		n, err := p.statement(verb, depth)
		if err != nil {
			return nil, "", err
		}
		body = append(body, n)
	}
	return body, "", nil
}

func (p *parser) statement(verb string, depth int) (n node, err error) {
	n.kind = verb
	switch verb {
	case "set":
		n.text = p.next()
		if p.next() != "=" {
			return n, unsupported("set " + n.text)
		}
		n.expr, err = p.whole()
		return n, err
	case "for":
		n.text = p.next()
		if p.next() != "in" {
			return n, unsupported("for " + n.text)
		}
		if n.expr, err = p.whole(); err != nil {
			return n, err
		}
		return n, p.closed(&n.body, "endfor", depth)
	case "if":
		return n, p.branch(&n, depth)
	}
	return n, unsupported(verb)
}

// branch reads the condition of n and what follows it, up to endif.
func (p *parser) branch(n *node, depth int) (err error) {
	if n.expr, err = p.whole(); err != nil {
		return err
	}
	end := ""
	if n.body, end, err = p.block(depth + 1); err != nil {
		return err
	}
	switch end {
	case "endif":
		return nil
	case "else":
		return p.closed(&n.rest, "endif", depth)
	case "elif":
		n.rest = []node{{kind: "if"}}
		return p.branch(&n.rest[0], depth+1)
	}
	return fmt.Errorf("the chat template has an if without its endif")
}

// closed reads a block that must end with that statement.
func (p *parser) closed(body *[]node, want string, depth int) (err error) {
	end := ""
	if *body, end, err = p.block(depth + 1); err == nil && end != want {
		err = fmt.Errorf("the chat template has no %s where it is wanted", want)
	}
	return err
}

var escapes = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', '\\': '\\', '\'': '\'', '"': '"'}

// words cuts an expression into names, numbers, strings (with their quote in front) and signs.
func words(s string) (out []string, _ error) {
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == '\'' || c == '"':
			var b strings.Builder
			b.WriteByte('"')
			j := i + 1
			for ; j < len(s) && s[j] != c; j++ {
				if s[j] == '\\' && j+1 < len(s) {
					j++
					escape, ok := escapes[s[j]]
					if !ok {
						return nil, unsupported(s[j-1 : j+1])
					}
					b.WriteByte(escape)
					continue
				}
				b.WriteByte(s[j])
			}
			if j == len(s) {
				return nil, fmt.Errorf("the chat template has a string without its end")
			}
			out, i = append(out, b.String()), j+1
		case letter(c) || c >= '0' && c <= '9':
			j := i
			for j < len(s) && (letter(s[j]) || s[j] >= '0' && s[j] <= '9') {
				j++
			}
			out, i = append(out, s[i:j]), j
		case i+1 < len(s) && (s[i:i+2] == "==" || s[i:i+2] == "!="):
			out, i = append(out, s[i:i+2]), i+2
		case strings.IndexByte("()[].|+~=,-", c) >= 0:
			out, i = append(out, s[i:i+1]), i+1
		default:
			return nil, unsupported(s[i : i+1])
		}
	}
	return out, nil
}

func letter(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func (p *parser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *parser) next() string {
	w := p.peek()
	if w != "" {
		p.words = p.words[1:]
	}
	return w
}

// accept takes the next word if it is w.
func (p *parser) accept(w string) bool {
	if p.peek() != w {
		return false
	}
	p.next()
	return true
}

// whole reads an expression that is all that is left of a tag.
func (p *parser) whole() (expr, error) {
	e, err := p.binary(0, 0)
	if err == nil && p.peek() != "" {
		err = unsupported(p.peek())
	}
	return e, err
}

// levels are the operators, from those that bind least.
var levels = [][]string{{"or"}, {"and"}, {"==", "!=", "in", "not", "is"}, {"+", "~"}}

func (p *parser) binary(level, depth int) (expr, error) {
	if depth > maxDepth {
		return expr{}, fmt.Errorf("the chat template nests an expression more than %d deep", maxDepth)
	}
	if level == len(levels) {
		return p.postfix(depth)
	}
	if level == 2 && p.accept("not") {
		x, err := p.binary(level, depth+1)
		return expr{op: "not", args: []expr{x}}, err
	}
	x, err := p.binary(level+1, depth)
	for err == nil {
		op := ""
		for _, o := range levels[level] {
			if p.peek() == o {
				op = p.next()
				break
			}
		}
		if op == "" {
			break
		}
		if x, err = p.operation(op, x, level, depth); err != nil {
			break
		}
	}
	return x, err
}

// operation reads what follows the operator behind x.
func (p *parser) operation(op string, x expr, level, depth int) (expr, error) {
	negated := op == "not"
	switch op {
	case "is":
		negated = p.accept("not")
		x = expr{op: "is", text: p.next(), args: []expr{x}}
		if x.text != "defined" && x.text != "none" && x.text != "string" {
			return x, unsupported("is " + x.text)
		}
	case "not":
		if !p.accept("in") {
			return x, unsupported("not " + p.peek())
		}
		op = "in"
		fallthrough
	default:
		y, err := p.binary(level+1, depth+1)
		if err != nil {
			return x, err
		}
		x = expr{op: op, args: []expr{x, y}}
	}
	if negated {
		x = expr{op: "not", args: []expr{x}}
	}
	return x, nil
}

// postfix reads a value with the attributes, indices and filters behind it.
func (p *parser) postfix(depth int) (x expr, err error) {
	switch w := p.next(); {
	case w == "":
		return x, unsupported("an empty expression")
	case w == "(":
		if x, err = p.binary(0, depth+1); err == nil && !p.accept(")") {
			err = unsupported("( without )")
		}
	case w[0] == '"':
		x = expr{op: "str", text: w[1:]}
	case w == "true" || w == "True" || w == "false" || w == "False":
		x = expr{op: "const", value: w == "true" || w == "True"}
	case w == "none" || w == "None":
		x = expr{op: "const"}
	case w == "-" || w[0] >= '0' && w[0] <= '9':
		if w == "-" {
			w += p.next()
		}
		n, bad := strconv.Atoi(w)
		if bad != nil {
			return x, unsupported(w)
		}
		x = expr{op: "const", value: n}
	case letter(w[0]):
		x = expr{op: "name", text: w}
	default:
		return x, unsupported(w)
	}
	for i := 0; err == nil; i++ {
		switch {
		case i > maxDepth:
			err = unsupported("so long an expression")
		case p.accept("."):
			x = expr{op: "get", text: p.next(), args: []expr{x}}
		case p.accept("["):
			y, failed := p.binary(0, depth+1)
			if err = failed; err == nil && !p.accept("]") {
				err = unsupported("[ without ]")
			}
			x = expr{op: "at", args: []expr{x, y}}
		case p.accept("("):
			x, err = p.arguments(expr{op: "call", args: []expr{x}}, depth)
		case p.accept("|"):
			x = expr{op: "filter", text: p.next(), args: []expr{x}}
			if p.accept("(") {
				x, err = p.arguments(x, depth)
			}
		default:
			return x, nil
		}
	}
	return x, err
}

// arguments reads the arguments of a call up to its end.
func (p *parser) arguments(x expr, depth int) (expr, error) {
	for !p.accept(")") {
		key := ""
		if len(p.words) > 1 && p.words[1] == "=" {
			key = p.next()
			p.next()
		}
		y, err := p.binary(0, depth+1)
		if err != nil {
			return x, err
		}
		x.args, x.keys = append(x.args, y), append(x.keys, key)
		if !p.accept(",") && p.peek() != ")" {
			return x, unsupported(p.peek())
		}
	}
	return x, nil
}
