package task

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/words"
)

// The bounds of a request for labels, in characters where nothing else is said.
const (
	maxAskedLabels      = 1000
	maxLabelChars       = 128
	maxSeparateGroups   = 64       // each is a sequence of its own
	maxSeparateTokens   = 32 << 10 // of the sequences of one text
	maxTokenChars       = 16       // of labels, on average: no text has longer tokens
	maxExamples         = 32
	maxTaskChars        = 2048
	maxExampleChars     = 2048
	maxTaskAndExamples  = 8192
	groupSeparator      = "."
	labelMarker         = "<<LABEL>>"
	separatorMarker     = "<<SEP>>"
	exampleMarker       = "<<EXAMPLE>>"
	exampleLabelsBefore = " \nLabels:\n "
)

// gliclassAsk is what a request asks of a text: one row of labels, or several.
type gliclassAsk struct {
	rows      []gliclassRow
	groups    []gliclassGroup // nil: the labels are in no groups
	joint     bool            // all groups are in one row
	multi     bool            // labels do not exclude each other
	threshold float64
	task      string // what the instruction says, "" for none
}

// gliclassRow is what one sequence has beside the text.
type gliclassRow struct {
	labels   []string
	examples []gliclassExample
}

type gliclassGroup struct {
	name   string
	labels []string
}

type gliclassExample struct {
	text   string
	labels []string
}

// count is the number of labels of an item's answer.
func (a *gliclassAsk) count() (n int) {
	for _, row := range a.rows {
		n += len(row.labels)
	}
	return n
}

// field is where the request has its labels.
func (a *gliclassAsk) field() string {
	if a.groups != nil {
		return "options.label_groups"
	}
	return "params.labels"
}

// prompt is the form in which the model reads labels.
func (r *gliclassRow) prompt() string {
	var b strings.Builder
	for _, l := range r.labels {
		b.WriteString(labelMarker + l)
	}
	return b.String() + separatorMarker
}

// formatExamples is the form in which the model reads examples.
func formatExamples(examples []gliclassExample) string {
	if len(examples) == 0 {
		return ""
	}
	var b strings.Builder
	for _, e := range examples {
		b.WriteString(exampleMarker + e.text + exampleLabelsBefore + strings.Join(e.labels, ", "))
	}
	return b.String() + separatorMarker
}

// reservedIn returns the first marker of the model's prompts that a text has, or "".
func reservedIn(text string) string {
	for _, marker := range []string{labelMarker, separatorMarker, exampleMarker} {
		if strings.Contains(text, marker) {
			return marker
		}
	}
	return ""
}

// askGLiClass reads and checks what a request asks for. option returns one of its options.
func askGLiClass(r *Request, option func(key string) any) (*gliclassAsk, error) {
	a := &gliclassAsk{}
	for _, read := range []func(*Request, func(string) any) error{
		a.readKind, a.readThreshold, a.readTask, a.readLabels, a.readExamples, readGraphs,
	} {
		if err := read(r, option); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *gliclassAsk) readKind(_ *Request, option func(string) any) error {
	switch kind := option("classification_type"); kind {
	case nil, "single-label":
	case "multi-label":
		a.multi = true
	default:
		return errs.Invalidf("options.classification_type",
			"Field 'options.classification_type' is %.80q; single-label and multi-label are possible", kind)
	}
	return nil
}

func (a *gliclassAsk) readThreshold(_ *Request, option func(string) any) error {
	v := option("threshold")
	if v == nil {
		return nil
	}
	x, ok := number(v)
	if !ok || math.IsNaN(x) || x < 0 || x > 1 {
		return errs.Invalidf("options.threshold",
			"Field 'options.threshold' is %.40v; a number from 0 to 1 is wanted", v)
	}
	a.threshold = x
	return nil
}

// readGraphs passes over the option with which clients of the reference turn off a way of running
// that this server does not have.
func readGraphs(r *Request, _ func(string) any) error {
	if v := r.Options["cuda_graphs"]; v != nil && v != false && v != "off" {
		return errs.Invalidf("options.cuda_graphs",
			"Field 'options.cuda_graphs' is %.40v; only off is possible in a request: send that, or leave it out",
			v)
	}
	return nil
}

func (a *gliclassAsk) readTask(r *Request, _ func(string) any) error {
	if r.Instruction == nil || words.IsBlank(*r.Instruction) {
		return nil
	}
	a.task = *r.Instruction
	if n := utf8.RuneCountInString(a.task); n > maxTaskChars {
		return errs.Invalidf("params.instruction",
			"Field 'params.instruction' has %d characters; at most %d are possible: shorten it", n, maxTaskChars)
	}
	if marker := reservedIn(a.task); marker != "" {
		return errs.Invalidf("params.instruction",
			"Field 'params.instruction' has %s, which marks labels for the model; leave the marker out",
			marker)
	}
	return nil
}

// readLabels reads labels, or groups of them: each group makes a row, or all make one.
func (a *gliclassAsk) readLabels(r *Request, option func(string) any) error {
	groups, encoding := option("label_groups"), option("group_encoding")
	switch encoding {
	case nil, "separate":
	case "joint":
		a.joint = true
	default:
		return errs.Invalidf("options.group_encoding",
			"Field 'options.group_encoding' is %.80q; separate and joint are possible", encoding)
	}
	if groups == nil {
		if encoding != nil {
			return errs.Invalidf("options.group_encoding",
				"Field 'options.group_encoding' is for options.label_groups, which the request does not have; leave it out")
		}
		if len(r.Labels) == 0 {
			return needLabels(r)
		}
		labels, err := checkLabelList("params.labels", r.Labels)
		a.rows = []gliclassRow{{labels: labels}}
		return err
	}
	if len(r.Labels) > 0 {
		return errs.Invalidf("options.label_groups",
			"Field 'options.label_groups' and params.labels both have labels: give one of them")
	}
	return a.readGroups(groups)
}

// groupsOf returns the groups of options.label_groups by name, and their names in the client's
// order; those of a profile are sorted.
func groupsOf(v any) (names []string, labels map[string]any) {
	switch v := v.(type) {
	case api.Ordered:
		return v.Keys, v.Values
	case map[string]any:
		return slices.Sorted(maps.Keys(v)), v
	}
	return nil, nil
}

func (a *gliclassAsk) readGroups(v any) error {
	const field = "options.label_groups"
	keys, byName := groupsOf(v)
	if len(keys) == 0 || len(keys) > maxAskedLabels {
		return errs.Invalidf(field, "Field '%s' must be an object of 1 to %d groups, each a list of labels",
			field, maxAskedLabels)
	}
	var names, flat []string
	for _, key := range keys {
		g, err := a.readGroup(field, key, byName[key])
		if err != nil {
			return err
		}
		names = append(names, g.name)
		for _, l := range g.labels {
			flat = append(flat, g.name+groupSeparator+l)
		}
		a.groups = append(a.groups, g)
		if !a.joint {
			a.rows = append(a.rows, gliclassRow{labels: g.labels})
		}
	}
	if len(flat) > maxAskedLabels {
		return errs.Invalidf(field,
			"Field '%s' has %d labels; at most %d are possible: ask for the others in another request", field,
			len(flat), maxAskedLabels)
	}
	if name, twice := repeated(names); twice {
		return errs.Invalidf(field, "Field '%s' has the group %s twice; name each group once", field,
			errs.Quote(name))
	}
	if l, twice := repeated(flat); twice {
		return errs.Invalidf(field,
			"Field '%s' has %s twice, with the group's name before it; name each label once", field,
			errs.Quote(l))
	}
	if a.joint {
		a.rows = []gliclassRow{{labels: flat}}
	}
	return nil
}

func (a *gliclassAsk) readGroup(field, key string, v any) (g gliclassGroup, err error) {
	g.name = trimmed(key)
	list, ok := stringsOf(v)
	switch {
	case g.name == "":
		return g, errs.Invalidf(field, "Field '%s' has a group without a name; name it, or leave it out", field)
	case reservedIn(g.name) != "" || utf8.RuneCountInString(g.name) > maxLabelChars:
		return g, errs.Invalidf(field,
			"Field '%s': the group %s has a marker, or more than %d characters: name it otherwise", field,
			errs.Quote(g.name[:min(len(g.name), 100)]), maxLabelChars)
	case !ok || len(list) == 0:
		return g, errs.Invalidf(field, "Field '%s': the group %s must be a list of at least one label",
			field, errs.Quote(g.name))
	}
	if g.labels, err = checkLabelList(field, list); err != nil {
		return g, err
	}
	if !a.multi && len(g.labels) < 2 {
		return g, errs.Invalidf(field,
			"Field '%s': the group %s has one label, and in single-label mode two are needed: add one, or send options.classification_type=multi-label",
			field, errs.Quote(g.name))
	}
	return g, nil
}

// bound refuses what a model that reads that many tokens cannot be asked for, before anything is
// tokenized. 0: they are not known yet.
func (a *gliclassAsk) bound(window int) error {
	if window <= 0 {
		return nil
	}
	most := max(1, min(maxSeparateGroups, maxSeparateTokens/window))
	if a.groups != nil && !a.joint && len(a.groups) > most {
		return errs.Invalidf("options.label_groups",
			"Field 'options.label_groups' has %d groups, and each reads the text on its own; at most %d are possible with a model that reads %d tokens: send fewer, or options.group_encoding=joint",
			len(a.groups), most, window)
	}
	for _, row := range a.rows {
		size := 0
		for _, l := range row.labels {
			size += utf8.RuneCountInString(l)
		}
		if size > maxTokenChars*window {
			return errs.Invalidf(a.field(),
				"Field '%s': the labels of one text have %d characters; at most %d are possible with a model that reads %d tokens: send fewer or shorter labels",
				a.field(), size, maxTokenChars*window, window)
		}
	}
	return nil
}

// checkLabelList returns the labels without blanks around them, or an error that names the first
// one that a model cannot read.
func checkLabelList(field string, list []string) ([]string, error) {
	if len(list) > maxAskedLabels {
		return nil, errs.Invalidf(field,
			"Field '%s' has %d labels; at most %d are possible: ask for the others in another request", field,
			len(list), maxAskedLabels)
	}
	out := make([]string, len(list))
	for i, l := range list {
		out[i] = trimmed(l)
		n := utf8.RuneCountInString(out[i])
		switch marker := reservedIn(l); {
		case n == 0:
			return nil, errs.Invalidf(field,
				"label %d of %s is blank; name the class, or leave it out", i, field)
		case n > maxLabelChars:
			return nil, errs.Invalidf(field,
				"label %d of %s has %d characters; at most %d are possible: shorten it", i, field, n,
				maxLabelChars)
		case marker != "":
			return nil, errs.Invalidf(field,
				"label %d of %s has %s, which marks labels for the model; leave the marker out", i, field,
				marker)
		}
	}
	if l, twice := repeated(out); twice {
		return nil, errs.Invalidf(field, "%s has the label %s twice; name each label once", field,
			errs.Quote(l))
	}
	return out, nil
}

// trimmed returns a name without the spaces around it, which are Python's.
func trimmed(name string) string { return strings.TrimFunc(name, words.IsSpace) }

// repeated returns a text that is in the list twice.
func repeated(list []string) (string, bool) {
	seen := make(map[string]bool, len(list))
	for _, s := range list {
		if seen[s] {
			return s, true
		}
		seen[s] = true
	}
	return "", false
}

// stringsOf returns the strings of a list; false: it is no list, or has other values.
func stringsOf(v any) ([]string, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]string, len(list))
	for i, x := range list {
		if out[i], ok = x.(string); !ok {
			return nil, false
		}
	}
	return out, true
}
