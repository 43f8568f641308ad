package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// The bounds of one file. The largest published model file is under 10 KiB and 250 lines.
const (
	maxFileBytes = 64 << 10
	maxLines     = 2000
	maxLineBytes = 8 << 10
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

// node is one YAML value with its line. Aliases share the node of their anchor. size counts the
// node and everything under it as if each alias were a copy. A size above maxNodes ends the
// conversion.
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

// parseDocument turns source into a tree whose root is a map. It adds every problem to l and then
// returns nil. Repeated keys are the exception: they are added but tolerated, so that the rest of
// the file is still checked.
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
	lines := bytes.Count(src, []byte("\n")) + bytes.Count(src, []byte("\r")) - bytes.Count(src,
		[]byte("\r\n"))
	if lines > maxLines {
		l.add(1, "", "the file has more than %d lines", maxLines)
		return nil
	}
	if line := overlongLine(src); line > 0 {
		l.add(line, "", "the line has more than %d bytes", maxLineBytes)
		return nil
	}
	if line := directive(src); line > 0 {
		l.add(line, "", "YAML directives are not supported; remove the %% line")
		return nil
	}
	body := parseBounded(src, l)
	if body == nil {
		return nil
	}
	c := converter{l: l, anchors: map[*yaml.Node]*node{}}
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
			// not quoted: the file may be another program's, and its content must not reach a log
			what = "a single value"
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

// unknownAnchor is the target of an alias without an earlier anchor. The converter, which knows its
// line, reports it.
var unknownAnchor = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}

// loading applies the bounds to one file while the library reads it.
type loading struct {
	anchors map[string]*yaml.Node
	count   int
	refused error // the bound that the file exceeds
}

// CheckDepth refuses a file that is nested too deeply. The parser calls it at each level.
func (p *loading) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > maxNesting {
		p.refused = fmt.Errorf("maps and lists are nested more than %d levels deep", maxNesting)
	}
	return p.refused
}

// CheckAlias accepts every alias. The converter counts the values.
func (p *loading) CheckAlias(int, int) error { return nil }

// NewAliasDataContext returns the anchors of the only stream.
func (p *loading) NewAliasDataContext(yaml.AliasDataServices) (yaml.AliasDataContext, error) {
	return p, nil
}

// BeginDocument does nothing. parseBounded refuses a second document.
func (p *loading) BeginDocument() error { return nil }

// EndDocument does nothing.
func (p *loading) EndDocument() error { return nil }

// DefineAnchor keeps the node of an anchor.
func (p *loading) DefineAnchor(name string, n *yaml.Node) error {
	if p.count++; p.count > maxAnchors {
		p.refused = fmt.Errorf("the file has more than %d anchors", maxAnchors)
	}
	p.anchors[name] = n
	return p.refused
}

// ResolveAlias returns the node of the last anchor of that name, or unknownAnchor.
func (p *loading) ResolveAlias(name string) (*yaml.Node, bool, error) {
	if n := p.anchors[name]; n != nil {
		return n, true, nil
	}
	return unknownAnchor, true, nil
}

// parseBounded parses the source and returns the root of its only document. On failure it adds a
// problem and returns nil.
func parseBounded(src []byte, l *problemList) (body *yaml.Node) {
	// The YAML library parses whatever a user or a control plane sends. It has no known panic on
	// input within the bounds above. If one occurs, it must not end the server.
	defer func() {
		if r := recover(); r != nil {
			body = nil
			l.add(1, "", "%s: %v", parserPanic, r)
		}
	}()
	p := &loading{anchors: map[string]*yaml.Node{}}
	loader, err := yaml.NewLoader(bytes.NewReader(src), yaml.WithPlugin(p))
	for err == nil {
		var document yaml.Node
		if err = loader.Load(&document); err != nil {
			break
		}
		root := document.Content[0]
		if root.Kind == yaml.ScalarNode && root.Tag == "!!null" && root.Value == "" {
			continue // an empty document, between two --- or after the last
		}
		if body != nil {
			l.add(root.Line, "", "a second YAML document starts here; put one document in a file")
			return nil
		}
		body = root
	}
	switch {
	case !errors.Is(err, io.EOF):
		refuseYAML(err, p.refused, l)
		return nil
	case body == nil:
		l.add(1, "", "the file holds no YAML document")
	}
	return body
}

// refuseYAML adds the problem that stopped the library.
func refuseYAML(err, bound error, l *problemList) {
	line, msg := 1, err.Error()
	var e *yaml.LoadError
	if errors.As(err, &e) {
		line, msg = e.Mark.Line, e.Message
		if e.ContextMsg != "" {
			msg += fmt.Sprintf(", %s that starts on line %d", e.ContextMsg, e.ContextMark.Line)
		}
	}
	if bound != nil {
		l.add(line, "", "%v", bound)
		return
	}
	l.add(line, "", "not valid YAML: %s", strings.ReplaceAll(msg, "\n", " "))
}

// directive returns the number of the first line with a directive before the document, or 0.
func directive(src []byte) int {
	n := 0
	for line := range bytes.Lines(src) {
		n++
		switch line = bytes.TrimLeft(line, " \t\r\n"); {
		case len(line) == 0 || line[0] == '#':
		case line[0] == '%':
			return n
		default:
			return 0
		}
	}
	return 0
}

// converter builds nodes from the library's tree and resolves aliases and merge keys.
type converter struct {
	l       *problemList
	anchors map[*yaml.Node]*node // the complete nodes that have an anchor
	failed  bool
}

func (c *converter) fail(line int, path, format string, args ...any) *node {
	c.failed = true
	c.l.add(line, path, format, args...)
	return &node{kind: kindNull, line: line, size: 1}
}

func (c *converter) convert(n *yaml.Node, path string, depth int) *node {
	if depth > maxNesting {
		return c.fail(n.Line, path, "maps and lists are nested more than %d levels deep", maxNesting)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		return c.fail(n.Line, "", "YAML tags such as %s are not supported", clip(n.Tag))
	}
	out := c.value(n, path, depth)
	if n.Anchor != "" {
		c.anchors[n] = out // known only from here on, so an anchor cannot contain itself
	}
	return out
}

func (c *converter) value(n *yaml.Node, path string, depth int) *node {
	switch n.Kind {
	case yaml.ScalarNode:
		return c.scalar(n, path)
	case yaml.SequenceNode:
		return c.list(n, path, depth)
	case yaml.MappingNode:
		return c.mapping(n, path, depth)
	case yaml.AliasNode:
		if val, ok := c.anchors[n.Alias]; ok {
			return val
		}
		return c.fail(n.Line, path, "unknown alias *%s", clip(n.Value))
	}
	return c.fail(n.Line, path, "unsupported YAML syntax")
}

// scalar reads a value that is neither a map nor a list. Unquoted yes, no, on and off are booleans,
// as in YAML 1.1, which the reference reads. A string field then tells the user to quote them.
func (c *converter) scalar(n *yaml.Node, path string) *node {
	out := &node{kind: kindString, line: n.Line, size: 1, text: n.Value}
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return out
	}
	switch n.Value {
	case "yes", "Yes", "YES", "on", "On", "ON":
		out.kind, out.flag = kindBool, true
		return out
	case "no", "No", "NO", "off", "Off", "OFF":
		out.kind = kindBool
		return out
	}
	switch numeric := yaml11(n.Value); {
	case n.Tag == "!!null":
		return &node{kind: kindNull, line: n.Line, size: 1}
	case n.Tag == "!!bool":
		out.kind, out.flag = kindBool, strings.EqualFold(n.Value, "true")
	case n.Tag == "!!int" && numeric:
		if err := n.Load(&out.num); err != nil {
			return c.fail(n.Line, path, "the number %s is out of range", clip(n.Value))
		}
		out.kind, out.text = kindInt, ""
	case n.Tag == "!!float" && n.Value == "-0":
		out.kind, out.text = kindInt, ""
	case n.Tag == "!!float" && strings.Contains(n.Value, "."): // in YAML 1.1, 1e3 is text
		if err := n.Load(&out.real); err != nil || math.IsInf(out.real, 0) || math.IsNaN(out.real) {
			return c.fail(n.Line, path, "infinity and NaN are not allowed")
		}
		out.kind, out.text = kindFloat, ""
	}
	return out
}

// yaml11 reports whether a number has no base prefix or one that YAML 1.1 knows. 0X1F is text
// there.
func yaml11(number string) bool {
	digits := strings.TrimLeft(number, "+-")
	return len(digits) < 2 || !strings.Contains("BOX", digits[1:2])
}

func (c *converter) list(n *yaml.Node, path string, depth int) *node {
	out := &node{kind: kindList, line: n.Line, size: 1}
	for i, e := range n.Content {
		if c.failed {
			return out
		}
		item := c.convert(e, fmt.Sprintf("%s[%d]", path, i), depth+1)
		out.items = append(out.items, item)
		c.grow(out, item)
	}
	return out
}

func (c *converter) mapping(n *yaml.Node, path string, depth int) *node {
	out := &node{kind: kindMap, line: n.Line, size: 1}
	seen := make(map[string]int, len(n.Content)/2)
	var merged []*node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if c.failed {
			return out
		}
		key, value := n.Content[i], n.Content[i+1]
		keyLine := key.Line
		if key.Tag == "!!merge" {
			merged = append(merged, c.convert(value, path, depth+1))
			continue
		}
		k := c.convert(key, path, depth+1)
		if k.kind != kindString && !c.failed {
			return c.fail(keyLine, path, "map keys must be strings; put quotes around the key")
		}
		sub := joinKey(path, k.text)
		val := c.convert(value, sub, depth+1)
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

// grow adds a child's size to its parent's. Because aliases share nodes, this gives the size of the
// expanded tree.
func (c *converter) grow(parent, child *node) {
	parent.size += child.size
	if parent.size > maxNodes && !c.failed {
		c.fail(parent.line, "", "the file holds more than %d values once its aliases are expanded", maxNodes)
	}
}

// plain converts the tree to nil, bool, int64, float64, string, []any and map[string]any. The
// result shares nothing with the node.
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
