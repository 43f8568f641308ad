package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of one file. The largest published model file is under 10 KiB and 250 lines. The bounds on lines
// and tokens also keep the YAML library, parts of which take time quadratic in them, to a fraction of a
// second.
const (
	maxFileBytes = 64 << 10
	maxLines     = 2000
	maxLineBytes = 8 << 10
	maxTokens    = 10000
	maxNesting   = 32   // levels of maps and lists
	maxAnchors   = 32   // anchors in a file
	maxNodes     = 5000 // values after aliases are expanded
)

type nodeKind uint8

const (
	kindNull nodeKind = iota
	kindBool
	kindInt
	kindFloat
	kindString
	kindList
	kindMap
)

// node is one YAML value with its line. Aliases share the node of their anchor; size counts the node and
// everything under it as if each alias were a copy, and saturates just above maxNodes.
type node struct {
	kind  nodeKind
	line  int
	size  int
	flag  bool // kindBool
	num   int64
	real  float64
	text  string // kindString; the source spelling of a kindBool
	items []*node
	pairs []pair
}

type pair struct {
	key   string
	line  int
	value *node
}

// parseDocument turns source into a tree whose root is a map. Any problem is added to l and gives nil, except repeated keys,
// which are added and left in place so that the rest of the file is still checked.
func parseDocument(src []byte, l *problemList) *node {
	if len(src) > maxFileBytes {
		l.add(1, "", "the file has %d bytes; the limit is %d", len(src), maxFileBytes)
		return nil
	}
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(src) {
		l.add(1, "", "the file is not valid UTF-8")
		return nil
	}
	if i := bytes.IndexByte(src, 0); i >= 0 {
		l.add(1+bytes.Count(src[:i], []byte("\n")), "", "the file holds a NUL byte")
		return nil
	}
	lines := bytes.Count(src, []byte("\n")) + bytes.Count(src, []byte("\r")) - bytes.Count(src, []byte("\r\n"))
	if lines > maxLines {
		l.add(1, "", "the file has more than %d lines", maxLines)
		return nil
	}
	if line := overlongLine(src); line > 0 {
		l.add(line, "", "the line has more than %d bytes", maxLineBytes)
		return nil
	}
	body := parseBounded(string(src), l)
	if body == nil {
		return nil
	}
	c := converter{l: l, anchors: map[string]*node{}}
	n := c.convert(body, "", 0)
	switch {
	case c.failed:
		return nil
	case n.kind == kindNull:
		l.add(n.line, "", "the file is empty")
		return nil
	case n.kind != kindMap:
		what := "a list"
		if n.kind != kindList {
			what = "a single value" // which is not told: the file may be none of ours, and a log is no place for it
		}
		l.add(n.line, "", "expected a map, got %s", what)
		return nil
	}
	return n
}

// overlongLine returns the number of the first line over the limit, or 0.
func overlongLine(src []byte) int {
	n := 0
	for line := range bytes.Lines(src) {
		n++
		if len(line) > maxLineBytes {
			return n
		}
	}
	return 0
}

// parserPanic starts the message of a panic inside the YAML library.
const parserPanic = "the YAML parser failed on this file"

// parseBounded lexes, checks the bounds that protect the recursive parser, parses, and returns the body
// of the only document.
func parseBounded(src string, l *problemList) (body ast.Node) {
	// The YAML library works on whatever a user or a control plane sends. It has no known panic on input
	// within the bounds above; should one turn up, it must not take the server down.
	defer func() {
		if r := recover(); r != nil {
			body = nil
			l.add(1, "", "%s: %v", parserPanic, r)
		}
	}()
	tokens := lexer.Tokenize(src)
	if !checkTokens(tokens, l) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		line, msg := 1, err.Error()
		var e yaml.Error
		if errors.As(err, &e) {
			msg = e.GetMessage()
			if tk := e.GetToken(); tk != nil && tk.Position != nil {
				line = tk.Position.Line
			}
		}
		l.add(line, "", "not valid YAML: %s", strings.ReplaceAll(msg, "\n", " "))
		return nil
	}
	for _, doc := range file.Docs {
		if doc == nil || doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if doc.Body.Type() == ast.DirectiveType {
			l.add(lineOf(doc.Body), "", "YAML directives are not supported; remove the %% line")
			return nil
		}
		if body != nil {
			l.add(lineOf(doc.Body), "", "a second YAML document starts here; put one document in a file")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		l.add(1, "", "the file holds no YAML document")
	}
	return body
}

// checkTokens refuses what would make the parser recurse deeply or the converter expand without bound.
func checkTokens(tokens token.Tokens, l *problemList) bool {
	if len(tokens) > maxTokens {
		l.add(1, "", "the file has more than %d YAML tokens", maxTokens)
		return false
	}
	depth, anchors, line, inLine := 0, 0, 0, 0
	for _, tk := range tokens {
		at := tk.Position.Line
		if at != line {
			line, inLine = at, 0
		}
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth = max(depth-1, 0)
		case token.SequenceEntryType, token.MappingKeyType:
			inLine++ // "- - - x" nests once per dash
		case token.AnchorType:
			anchors++
		case token.TagType:
			l.add(at, "", "YAML tags such as %s are not supported", clip(tk.Value))
			return false
		}
		if depth > maxNesting || inLine > maxNesting {
			l.add(at, "", "maps and lists are nested more than %d levels deep", maxNesting)
			return false
		}
		if anchors > maxAnchors {
			l.add(at, "", "the file has more than %d anchors", maxAnchors)
			return false
		}
	}
	return true
}

func lineOf(n ast.Node) int {
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		return max(tk.Position.Line, 1)
	}
	return 1
}

// converter builds nodes from the library's syntax tree and resolves anchors, aliases and merge keys.
type converter struct {
	l       *problemList
	anchors map[string]*node
	failed  bool
}

func (c *converter) fail(line int, path, format string, args ...any) *node {
	c.failed = true
	c.l.add(line, path, format, args...)
	return &node{kind: kindNull, line: line, size: 1}
}

func (c *converter) convert(n ast.Node, path string, depth int) *node {
	if n == nil {
		return &node{kind: kindNull, size: 1}
	}
	line := lineOf(n)
	if depth > maxNesting {
		return c.fail(line, path, "maps and lists are nested more than %d levels deep", maxNesting)
	}
	switch v := n.(type) {
	case *ast.NullNode:
		return &node{kind: kindNull, line: line, size: 1}
	case *ast.BoolNode:
		return &node{kind: kindBool, line: line, size: 1, flag: v.Value, text: v.Token.Value}
	case *ast.IntegerNode:
		return c.integer(v, path, line)
	case *ast.FloatNode:
		return &node{kind: kindFloat, line: line, size: 1, real: v.Value}
	case *ast.InfinityNode, *ast.NanNode:
		return c.fail(line, path, "infinity and NaN are not allowed")
	case *ast.LiteralNode:
		return &node{kind: kindString, line: line, size: 1, text: v.Value.Value}
	case *ast.StringNode:
		return stringNode(v, line)
	case *ast.AnchorNode:
		val := c.convert(v.Value, path, depth+1)
		c.anchors[v.Name.GetToken().Value] = val // known from here on, so an anchor cannot hold itself
		return val
	case *ast.AliasNode:
		name := v.Value.GetToken().Value
		val, ok := c.anchors[name]
		if !ok {
			return c.fail(line, path, "unknown alias *%s", clip(name))
		}
		return val
	case *ast.SequenceNode:
		return c.list(v, path, line, depth)
	case *ast.MappingNode:
		return c.mapping(v.Values, path, line, depth)
	case *ast.MappingValueNode:
		return c.mapping([]*ast.MappingValueNode{v}, path, line, depth)
	}
	return c.fail(line, path, "unsupported YAML syntax (%s)", n.Type())
}

func (c *converter) integer(v *ast.IntegerNode, path string, line int) *node {
	out := &node{kind: kindInt, line: line, size: 1}
	switch x := v.Value.(type) {
	case int64:
		out.num = x
	case uint64:
		if x > 1<<63-1 {
			return c.fail(line, path, "the number %s is out of range", clip(v.Token.Value))
		}
		out.num = int64(x)
	default:
		return c.fail(line, path, "the number %s is out of range", clip(v.Token.Value))
	}
	return out
}

// stringNode reads a scalar. Unquoted yes, no, on and off are booleans, as in the YAML 1.1 that the
// reference reads; a string field then says to quote them.
func stringNode(v *ast.StringNode, line int) *node {
	if t := v.Token.Type; t != token.SingleQuoteType && t != token.DoubleQuoteType {
		switch v.Value {
		case "yes", "Yes", "YES", "on", "On", "ON":
			return &node{kind: kindBool, line: line, size: 1, flag: true, text: v.Value}
		case "no", "No", "NO", "off", "Off", "OFF":
			return &node{kind: kindBool, line: line, size: 1, text: v.Value}
		}
	}
	return &node{kind: kindString, line: line, size: 1, text: v.Value}
}

func (c *converter) list(v *ast.SequenceNode, path string, line, depth int) *node {
	out := &node{kind: kindList, line: line, size: 1}
	for i, e := range v.Values {
		if c.failed {
			return out
		}
		item := c.convert(e, fmt.Sprintf("%s[%d]", path, i), depth+1)
		out.items = append(out.items, item)
		c.grow(out, item)
	}
	return out
}

func (c *converter) mapping(values []*ast.MappingValueNode, path string, line, depth int) *node {
	out := &node{kind: kindMap, line: line, size: 1}
	seen := make(map[string]int, len(values))
	var merged []*node
	for _, mv := range values {
		if c.failed {
			return out
		}
		keyLine := lineOf(mv.Key)
		if mv.Key.IsMergeKey() {
			merged = append(merged, c.convert(mv.Value, path, depth+1))
			continue
		}
		k := c.convert(keyScalar(mv.Key), path, depth+1)
		if k.kind != kindString && !c.failed {
			return c.fail(keyLine, path, "map keys must be strings; put quotes around the key")
		}
		sub := joinKey(path, k.text)
		val := c.convert(mv.Value, sub, depth+1)
		if val.line == 0 {
			val.line = keyLine
		}
		if first, dup := seen[k.text]; dup {
			c.l.add(keyLine, sub, "duplicate key; it is already set on line %d", first)
			continue
		}
		seen[k.text] = keyLine
		out.pairs = append(out.pairs, pair{key: k.text, line: keyLine, value: val})
		c.grow(out, val)
	}
	for _, m := range merged {
		c.mergeInto(out, m, seen, path)
	}
	return out
}

// mergeInto adds the pairs of a "<<" value (a map or a list of maps) whose keys are not set yet.
func (c *converter) mergeInto(out, m *node, seen map[string]int, path string) {
	if m.kind == kindList {
		for _, item := range m.items {
			if item.kind == kindList {
				c.fail(m.line, path, "the merge key << takes a map or a list of maps")
				return
			}
			c.mergeInto(out, item, seen, path)
		}
		return
	}
	if m.kind != kindMap {
		c.fail(m.line, path, "the merge key << takes a map or a list of maps")
		return
	}
	for _, p := range m.pairs {
		if c.failed {
			return
		}
		if _, set := seen[p.key]; !set {
			seen[p.key] = p.line
			out.pairs = append(out.pairs, p)
			c.grow(out, p.value)
		}
	}
}

// grow adds a child's size; aliases make it the size of the expanded tree.
func (c *converter) grow(parent, child *node) {
	parent.size += child.size
	if parent.size > maxNodes && !c.failed {
		c.fail(parent.line, "", "the file holds more than %d values once its aliases are expanded", maxNodes)
	}
}

func keyScalar(k ast.MapKeyNode) ast.Node {
	if mk, ok := k.(*ast.MappingKeyNode); ok {
		return mk.Value
	}
	return k
}

// plain converts the tree to nil, bool, int64, float64, string, []any and map[string]any. The result
// shares nothing with the node.
func (n *node) plain() any {
	switch n.kind {
	case kindBool:
		return n.flag
	case kindInt:
		return n.num
	case kindFloat:
		return n.real
	case kindString:
		return n.text
	case kindList:
		out := make([]any, len(n.items))
		for i, e := range n.items {
			out[i] = e.plain()
		}
		return out
	case kindMap:
		out := make(map[string]any, len(n.pairs))
		for _, p := range n.pairs {
			out[p.key] = p.value.plain()
		}
		return out
	}
	return nil
}

// lookup returns the value of a key, or nil.
func (n *node) lookup(key string) *node {
	for _, p := range n.pairs {
		if p.key == key {
			return p.value
		}
	}
	return nil
}
