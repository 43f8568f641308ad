package chat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// undefined is the value of a name that nothing has set.
type undefined struct{}

// runner runs a template once.
type runner struct {
	names map[string]any
	out   strings.Builder
	steps int
}

func (r *runner) run(body []node) error {
	for i := range body {
		if err := r.node(&body[i]); err != nil {
			return err
		}
	}
	return nil
}

// step counts work, of n units.
func (r *runner) step(n int) error {
	if r.steps += n; r.steps > maxSteps {
		return fmt.Errorf("the chat template takes more than %d steps", maxSteps)
	}
	return nil
}

func (r *runner) node(n *node) error {
	if err := r.step(1); err != nil {
		return err
	}
	if n.kind == "text" {
		return r.write(n.text)
	}
	v, err := r.eval(&n.expr)
	if err != nil {
		return err
	}
	switch n.kind {
	case "out":
		s, err := text(v)
		if err != nil {
			return err
		}
		return r.write(s)
	case "set":
		r.names[n.text] = v
	case "if":
		if truth(v) {
			return r.run(n.body)
		}
		return r.run(n.rest)
	case "for":
		return r.loop(n, v)
	}
	return nil
}

func (r *runner) write(s string) error {
	if r.out.Len()+len(s) > maxOutput {
		return fmt.Errorf("the chat template writes more than %d bytes", maxOutput)
	}
	r.out.WriteString(s)
	return nil
}

// loop runs a body for each entry of a list. What it sets is forgotten behind it, as in Jinja.
func (r *runner) loop(n *node, over any) error {
	list, ok := over.([]any)
	if !ok {
		return unsupported("a loop over something that is no list")
	}
	outside := r.names
	defer func() { r.names = outside }()
	for i, x := range list {
		r.names = make(map[string]any, len(outside)+2)
		for name, v := range outside {
			r.names[name] = v
		}
		r.names[n.text] = x
		r.names["loop"] = map[string]any{"index0": i, "index": i + 1, "first": i == 0,
			"last": i == len(list)-1, "length": len(list)}
		if err := r.step(len(outside)); err != nil {
			return err
		}
		if err := r.run(n.body); err != nil {
			return err
		}
	}
	return nil
}

func text(v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case int:
		return strconv.Itoa(x), nil
	case undefined:
		return "", nil
	}
	return "", unsupported(fmt.Sprintf("a %T where text is wanted", v))
}

func truth(v any) bool {
	switch x := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return x
	case int:
		return x != 0
	case string:
		return x != ""
	case []any:
		return len(x) > 0
	}
	return true
}

func (r *runner) eval(e *expr) (any, error) {
	if err := r.step(1); err != nil {
		return nil, err
	}
	switch e.op {
	case "str":
		return e.text, nil
	case "const":
		return e.value, nil
	case "name":
		if v, ok := r.names[e.text]; ok {
			return v, nil
		}
		return undefined{}, nil
	case "call":
		return r.call(e)
	}
	x, err := r.eval(&e.args[0])
	if err != nil {
		return nil, err
	}
	switch e.op {
	case "not":
		return !truth(x), nil
	case "and", "or":
		if truth(x) == (e.op == "or") {
			return x, nil
		}
		return r.eval(&e.args[1])
	case "is":
		return is(x, e.text), nil
	case "get":
		return attribute(x, e.text)
	case "filter":
		return r.filter(e, x)
	}
	y, err := r.eval(&e.args[1])
	if err != nil {
		return nil, err
	}
	return r.apply(e.op, x, y)
}

func is(x any, what string) bool {
	_, missing := x.(undefined)
	_, isText := x.(string)
	switch what {
	case "defined":
		return !missing
	case "none":
		return x == nil
	}
	return isText
}

// apply applies an operator of two operands.
func (r *runner) apply(op string, x, y any) (any, error) {
	a, leftText := x.(string)
	b, rightText := y.(string)
	if err := r.step((len(a) + len(b)) / 16); err != nil { // joined strings may double each time
		return nil, err
	}
	switch op {
	case "at":
		if name, ok := y.(string); ok {
			return attribute(x, name)
		}
		list, ok := x.([]any)
		i, isInt := y.(int)
		if !ok || !isInt {
			return nil, unsupported("an index that is no number")
		}
		if i < 0 {
			i += len(list)
		}
		if i < 0 || i >= len(list) {
			return undefined{}, nil
		}
		return list[i], nil
	case "==", "!=":
		return equal(x, y) == (op == "=="), nil
	case "in":
		if list, ok := y.([]any); ok {
			return slices.ContainsFunc(list, func(z any) bool { return equal(x, z) }), nil
		}
		if m, ok := y.(map[string]any); ok && leftText {
			_, has := m[a]
			return has, nil
		}
		if !leftText || !rightText {
			return nil, unsupported("in")
		}
		return strings.Contains(b, a), nil
	case "+":
		if !leftText || !rightText {
			return nil, unsupported("+ of something that is no text")
		}
		return a + b, nil
	}
	a, err := text(x)
	if err != nil {
		return nil, err
	}
	b, err = text(y)
	return a + b, err
}

// equal compares values that are no lists and no messages; those differ from everything.
func equal(x, y any) bool {
	switch x.(type) {
	case nil, string, int, bool:
		return x == y
	}
	return false
}

func attribute(x any, name string) (any, error) {
	m, ok := x.(map[string]any)
	if !ok {
		return nil, unsupported("." + name)
	}
	if v, ok := m[name]; ok {
		return v, nil
	}
	return undefined{}, nil
}

// call calls a method of a string, or raise_exception.
func (r *runner) call(e *expr) (any, error) {
	f := &e.args[0]
	switch {
	case f.op == "name" && f.text == "raise_exception" && len(e.args) == 2:
		why, err := r.eval(&e.args[1])
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("the chat template refuses its messages: %.200v", why)
	case f.op == "get" && f.text == "strip" && len(e.args) == 1:
		x, err := r.eval(&f.args[0])
		if s, ok := x.(string); ok {
			return Strip(s), err
		}
		return nil, errors.Join(err, unsupported(".strip() of no text"))
	}
	return nil, unsupported("a call of " + f.text)
}

// filter applies a filter to x. e.args[1:] are its arguments.
func (r *runner) filter(e *expr, x any) (any, error) {
	args := make([]any, len(e.args)-1)
	for i := range args {
		var err error
		if args[i], err = r.eval(&e.args[i+1]); err != nil {
			return nil, err
		}
	}
	list, isList := x.([]any)
	if err := r.step(len(list)); err != nil {
		return nil, err
	}
	switch {
	case e.text == "trim" && len(args) == 0:
		s, err := text(x)
		return Strip(s), err
	case e.text == "default" && len(args) == 1:
		if _, missing := x.(undefined); missing {
			return args[0], nil
		}
		return x, nil
	case e.text == "list" && isList && len(args) == 0:
		return list, nil
	case e.text == "length" && isList && len(args) == 0:
		return len(list), nil
	case (e.text == "first" || e.text == "last") && isList && len(args) == 0:
		if len(list) == 0 {
			return undefined{}, nil
		}
		if e.text == "first" {
			return list[0], nil
		}
		return list[len(list)-1], nil
	case e.text == "map" && isList && len(args) == 1 && e.keys[0] == "attribute":
		return mapped(list, args[0])
	case (e.text == "selectattr" || e.text == "rejectattr") && isList && len(args) == 3:
		return selected(list, args, e.text == "selectattr")
	}
	return nil, unsupported("the filter " + e.text)
}

func mapped(list []any, name any) (any, error) {
	attr, ok := name.(string)
	if !ok {
		return nil, unsupported("map of no name")
	}
	out := make([]any, len(list))
	for i, x := range list {
		var err error
		if out[i], err = attribute(x, attr); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// selected keeps the entries whose attribute equals a value, or those whose does not.
func selected(list, args []any, keep bool) (any, error) {
	name, ok := args[0].(string)
	if !ok || args[1] != "eq" && args[1] != "equalto" && args[1] != "==" {
		return nil, unsupported("selectattr with another test than eq")
	}
	out := []any{}
	for _, x := range list {
		v, err := attribute(x, name)
		if err != nil {
			return nil, err
		}
		if equal(v, args[2]) == keep {
			out = append(out, x)
		}
	}
	return out, nil
}
