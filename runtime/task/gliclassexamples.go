package task

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/words"
)

// readExamples reads texts whose labels are known. Each row has all of them, with its own labels
// alone.
func (a *gliclassAsk) readExamples(_ *Request, option func(string) any) error {
	const field = "options.examples"
	v := option("examples")
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok || len(list) > maxExamples {
		return errs.Invalidf(field,
			"Field '%s' must be a list of at most %d objects with text and labels", field, maxExamples)
	}
	size := utf8.RuneCountInString(a.task)
	for i, entry := range list {
		text, chosen, err := a.readExample(i, entry)
		if err != nil {
			return err
		}
		size += utf8.RuneCountInString(text)
		for row, labels := range chosen {
			for _, l := range labels {
				size += utf8.RuneCountInString(l)
			}
			a.rows[row].examples = append(a.rows[row].examples, gliclassExample{text, labels})
		}
	}
	if size > maxTaskAndExamples {
		return errs.Invalidf(field,
			"Field '%s' and the instruction have %d characters; at most %d are possible: send fewer or shorter ones",
			field, size, maxTaskAndExamples)
	}
	return nil
}

// readExample returns an example's text, and its labels for each row.
func (a *gliclassAsk) readExample(i int, entry any) (text string, chosen [][]string, err error) {
	const field = "options.examples"
	e, _ := entry.(map[string]any)
	text, hasText := e["text"].(string)
	switch n := utf8.RuneCountInString(text); {
	case len(e) != 2 || e["labels"] == nil || !hasText:
		return "", nil, errs.Invalidf(field,
			"Field '%s[%d]' must be an object with text and labels, and nothing else",
			field, i)
	case words.IsBlank(text) || n > maxExampleChars:
		return "", nil, errs.Invalidf(field,
			"Field '%s[%d].text' has %d characters; 1 to %d are possible, not all blank: shorten it, or leave the example out",
			field, i, n, maxExampleChars)
	case reservedIn(text) != "":
		return "", nil, errs.Invalidf(field,
			"Field '%s[%d].text' has %s, which marks labels for the model; leave the marker out", field, i,
			reservedIn(text))
	}
	names, ok := stringsOf(e["labels"])
	if byGroup, grouped := e["labels"].(map[string]any); grouped && a.groups != nil {
		names, ok = a.namesOf(byGroup)
	}
	if !ok {
		return "", nil, errs.Invalidf(field, "Field '%s[%d].labels' must be a list of labels", field, i)
	}
	if most := a.count(); len(names) > most {
		return "", nil, errs.Invalidf(field, "Field '%s[%d].labels' has %d labels; the request has %d: name each of them once at most",
			field, i, len(names), most)
	}
	chosen = make([][]string, len(a.rows))
	for _, name := range names {
		row, label := a.find(trimmed(name))
		if row < 0 {
			return "", nil, errs.Invalidf(field,
				"Field '%s[%d].labels' has %s, which is no label of the request; name its labels alone", field, i,
				errs.Quote(name[:min(len(name), 100)]))
		}
		if !slices.Contains(chosen[row], label) {
			chosen[row] = append(chosen[row], label)
		}
	}
	return text, chosen, nil
}

// namesOf returns the labels that an example has by group, each a label or a list, in the order of
// the request's groups; a group that the request does not have comes last. It returns false if a
// value is neither.
func (a *gliclassAsk) namesOf(byGroup map[string]any) (names []string, ok bool) {
	rank := map[string]int{}
	for i, g := range a.groups {
		rank[g.name] = i - len(a.groups)
	}
	keys := slices.SortedFunc(maps.Keys(byGroup), func(x, y string) int {
		return cmp.Or(cmp.Compare(rank[trimmed(x)], rank[trimmed(y)]), cmp.Compare(x, y))
	})
	for _, key := range keys {
		labels, isList := stringsOf(byGroup[key])
		if one, isText := byGroup[key].(string); isText {
			labels, isList = []string{one}, true
		}
		if !isList {
			return nil, false
		}
		for _, l := range labels {
			names = append(names, trimmed(key)+groupSeparator+trimmed(l))
		}
	}
	return names, true
}

// find returns the row that has a label, and its name there; row −1: none has it. A label of a
// group has the group's name before it.
func (a *gliclassAsk) find(name string) (row int, label string) {
	if a.groups == nil || a.joint {
		if slices.Contains(a.rows[0].labels, name) {
			return 0, name
		}
		return -1, ""
	}
	for i, g := range a.groups {
		if l, ok := strings.CutPrefix(name, g.name+groupSeparator); ok && slices.Contains(g.labels, l) {
			return i, l
		}
	}
	return -1, ""
}
