package task

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// ask reads what a request asks a GLiClass model for.
func ask(labels []string, options map[string]any, instruction string) (*gliclassAsk, error) {
	r := &Request{Labels: labels, Options: options}
	if instruction != "" {
		r.Instruction = &instruction
	}
	return askGLiClass(r, func(key string) any { return options[key] })
}

// checkParam checks that an error is about a field, or that there is none where param is "".
func checkParam(t *testing.T, what string, err error, param string) {
	t.Helper()
	if param == "" && err == nil {
		return
	}
	if e := errs.As(err); err == nil || param == "" || e.Param != param {
		t.Errorf("%s: %v, want an error of %q", what, err, param)
	}
}

// A label is an answer from the threshold on, best first; equal scores keep the labels' order.
func TestGLiClassAnswersFromTheThresholdOn(t *testing.T) {
	a := &gliclassAsk{threshold: 0.5, rows: []gliclassRow{{labels: []string{"a", "b", "c", "d"}}}}
	var found Extracted
	a.answer(&found, []float64{0.25, 0.5, 0.75, 0.5})
	want := []api.Class{{Label: "c", Score: 0.75}, {Label: "b", Score: 0.5}, {Label: "d", Score: 0.5}}
	if !slices.Equal(found.Classes, want) || found.Data != nil {
		t.Errorf("%v %v, want %v", found.Classes, found.Data, want)
	}
}

// A group that excludes others chooses its best label, the first of equals, and says how certain it
// is. Otherwise it chooses all from the threshold on, or from one half where the request has none.
func TestGLiClassGroupsChoose(t *testing.T) {
	g := gliclassGroup{name: "g", labels: []string{"a", "b", "c"}}
	a := &gliclassAsk{}
	got := a.answerGroup(g, []float64{0.2, 0.4, 0.4})
	if got["choice"] != "b" || got["type"] != "choice" || got["confidence"] != certainty([]float64{0.2,
		0.4, 0.4}) || !maps.Equal(got["probabilities"].(map[string]any), map[string]any{"a": 0.2, "b": 0.4,
		"c": 0.4}) {
		t.Error(got)
	}
	for threshold, want := range map[float64]string{
		0: "[b c]", 0.2: "[a b c]", 0.5: "[b c]", 0.75: "[c]", 1: "[]",
	} {
		a = &gliclassAsk{multi: true, threshold: threshold}
		if got := a.answerGroup(g, []float64{0.25, 0.5, 0.75}); fmt.Sprint(got["labels"]) != want {
			t.Errorf("threshold %v: %v, want %s", threshold, got["labels"], want)
		}
	}
}

func TestGLiClassCertainty(t *testing.T) {
	for _, c := range []struct {
		p    []float64
		want float64
	}{
		{[]float64{0.3}, 1}, {[]float64{1, 0}, 1}, {[]float64{0.5, 0.5}, 0},
		{[]float64{0.25, 0.25, 0.25, 0.25}, 0}, {[]float64{0.5, 0.5, 0, 0}, 0.5},
		{[]float64{0.75, 0.25}, 0.75*math.Log2(3) - 1}, // H = 2 − 3/4·log₂ 3
	} {
		if got := certainty(c.p); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", c.p, got, c.want)
		}
	}
}

// The groups that read a text on their own are bounded by the window, and so are the labels of one
// sequence: both are tested at the bound and one beyond.
func TestGLiClassBoundsFollowTheWindow(t *testing.T) {
	groups := func(n int) *gliclassAsk {
		a := &gliclassAsk{groups: make([]gliclassGroup, n)}
		for range n {
			a.rows = append(a.rows, gliclassRow{labels: []string{"a", "b"}})
		}
		return a
	}
	for window, most := range map[int]int{100: 64, 512: 64, 1024: 32, 8192: 4, 1 << 15: 1, 1 << 16: 1} {
		checkParam(t, fmt.Sprint(most, " groups and a window of ", window), groups(most).bound(window), "")
		checkParam(t, fmt.Sprint(most+1, " groups and a window of ", window), groups(most+1).bound(window),
			"options.label_groups")
		joint := groups(most + 1)
		joint.joint, joint.rows = true, joint.rows[:1]
		checkParam(t, "joint groups", joint.bound(window), "")
	}
	checkParam(t, "an unknown window", groups(1000).bound(0), "")
	labels := []string{strings.Repeat("é", 96), strings.Repeat("x", 64)}
	a := &gliclassAsk{rows: []gliclassRow{{labels: labels}}}
	checkParam(t, "160 characters in 10 tokens", a.bound(10), "")
	checkParam(t, "160 characters in 9 tokens", a.bound(9), "params.labels")
}

// Every bound of characters is one of characters, not bytes, at the bound and one beyond.
func TestGLiClassBoundsOfTexts(t *testing.T) {
	long := func(n int) string { return strings.Repeat("é", n) }
	example := func(n int, labels ...any) map[string]any {
		return map[string]any{"text": long(n), "labels": labels}
	}
	list := func(examples ...any) map[string]any { return map[string]any{"examples": examples} }
	two, three := []string{"a", "b"}, slices.Repeat([]any{example(2048)}, 3)
	for _, c := range []struct {
		what        string
		labels      []string
		options     map[string]any
		instruction string
		param       string
	}{
		{"a label", []string{long(128)}, nil, "", ""},
		{"a label", []string{long(129)}, nil, "", "params.labels"},
		{"an instruction", two, nil, long(2048), ""},
		{"an instruction", two, nil, long(2049), "params.instruction"},
		{"a marker in an instruction", two, nil, "x<<EXAMPLE>>", "params.instruction"},
		{"an example", two, list(example(2048)), "", ""},
		{"an example", two, list(example(2049)), "", "options.examples"},
		{"4 examples and an instruction", two, list(three[0], three[1], three[2], example(2000)), long(48),
			""},
		{"4 examples and an instruction", two, list(three[0], three[1], three[2], example(2000)), long(49),
			"options.examples"},
		{"4 examples and a label", two, list(three[0], three[1], three[2], example(2047, "a")), "", ""},
		{"4 examples and a label", two, list(three[0], three[1], three[2], example(2048, "a")), "",
			"options.examples"},
		{"32 examples", two, list(slices.Repeat([]any{example(1)}, 32)...), "", ""},
		{"33 examples", two, list(slices.Repeat([]any{example(1)}, 33)...), "", "options.examples"},
	} {
		_, err := ask(c.labels, c.options, c.instruction)
		checkParam(t, c.what, err, c.param)
	}
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	_, err := ask(many, nil, "")
	checkParam(t, "1,000 labels", err, "")
	_, err = ask(append(many, "x"), nil, "")
	checkParam(t, "1,001 labels", err, "params.labels")
}

// An example has each of its labels once, in the row of its group, in the order of the request's
// groups; other rows have the example without labels.
func TestGLiClassExamplesOfGroups(t *testing.T) {
	groups := api.Ordered{Keys: []string{"topic", "mood"},
		Values: map[string]any{"topic": []any{"sport", "war"}, "mood": []any{"good", "bad"}}}
	options := map[string]any{"label_groups": groups, "examples": []any{
		map[string]any{"text": "x", "labels": map[string]any{"mood": []any{" bad", "bad "}, "topic": "war"}},
		map[string]any{"text": "y", "labels": []any{"topic.sport"}},
	}}
	a, err := ask(nil, options, "")
	if err != nil {
		t.Fatal(err)
	}
	want := "[{[sport war] [{x [war]} {y [sport]}]} {[good bad] [{x [bad]} {y []}]}]"
	if got := fmt.Sprint(a.rows); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
	options["group_encoding"] = "joint"
	if a, err = ask(nil, options, ""); err != nil {
		t.Fatal(err)
	}
	want = "[{[topic.sport topic.war mood.good mood.bad] [{x [topic.war mood.bad]} {y [topic.sport]}]}]"
	if got := fmt.Sprint(a.rows); got != want {
		t.Errorf("joint rows %s, want %s", got, want)
	}
	if got, want := formatExamples(a.rows[0].examples), "<<EXAMPLE>>x \nLabels:\n topic.war, mood.bad"+
		"<<EXAMPLE>>y \nLabels:\n topic.sport<<SEP>>"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
