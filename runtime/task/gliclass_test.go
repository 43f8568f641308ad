package task_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// gliclass returns a golden GLiClass model that reads that many tokens.
func gliclass(t *testing.T, name string, tokens int) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: gliclass
weights_path: %s
max_sequence_length: %d
tasks: {extract: {}}
profiles:
  default: {adapter_path: "sie_server.adapters.gliclass:GLiClassAdapter", max_batch_tokens: 4096}
`, golden.Open(t, name).Dir, tokens))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

type gliclassQuestion struct {
	Text, Prompt string
	Labels       []string
	Examples     []any
	Single       []api.Class `json:"single-label"`
	Multi        []api.Class `json:"multi-label"`
}

func (q *gliclassQuestion) ask(options map[string]any) *ExtractRequest {
	r := &ExtractRequest{Model: "gliclass", Texts: []string{q.Text}, Labels: q.Labels, Options: options}
	if q.Prompt != "" {
		r.Instruction = &q.Prompt
	}
	if q.Examples != nil {
		options["examples"] = q.Examples
	}
	return r
}

// The pipeline's answers: in single-label mode the best label with its share, in multi-label mode
// the labels from the threshold on. A label that is alone has its sigmoid in both.
func TestGLiClassEqualsPipeline(t *testing.T) {
	for _, name := range []string{"gliclass-modern", "gliclass-dot", "gliclass-segments",
		"gliclass-cross"} {
		r := start(t, nil, nil, gliclass(t, name, 200))
		for _, q := range readTexts[gliclassQuestion](t, name) {
			res, err := r.Extract(t.Context(), q.ask(map[string]any{}))
			if err != nil || res.Found[0].Err != nil {
				t.Fatal(name, err, res.Found[0].Err)
			}
			single := res.Found[0].Classes
			if res, err = r.Extract(t.Context(), q.ask(map[string]any{
				"classification_type": "multi-label", "threshold": 0.5,
			})); err != nil {
				t.Fatal(name, err)
			}
			multi := res.Found[0].Classes
			want := q.Single
			if len(q.Labels) == 1 {
				want = q.Multi
			}
			slices.SortStableFunc(q.Multi, byScore)
			if len(single) != len(q.Labels) || !sameClasses(single[:1], want) || !sameClasses(multi,
				q.Multi) {
				t.Errorf("%s %q: %v and %v, want %v and %v", name, q.Text, single, multi, want, q.Multi)
			}
			if !slices.IsSortedFunc(single, byScore) {
				t.Errorf("%s %q: not best first: %v", name, q.Text, single)
			}
		}
	}
}

func sameClasses(a, b []api.Class) bool {
	return slices.EqualFunc(a, b, func(a, b api.Class) bool {
		return a.Label == b.Label && math.Abs(a.Score-b.Score) < 1e-5
	})
}

// A group of labels is answered as a request with these labels is; joint groups share the text.
func TestGLiClassGroups(t *testing.T) {
	r := start(t, nil, nil, gliclass(t, "gliclass-dot", 200))
	text := "the cat sat on the mat"
	groups := map[string]any{"topic": []any{"sport", "politics"}, "mood": []any{"good", "bad", "none"}}
	ask := func(labels []string, options map[string]any) *Result {
		t.Helper()
		res, err := r.Extract(t.Context(), &ExtractRequest{
			Model: "gliclass", Texts: []string{text, "z"}, Labels: labels, Options: options,
		})
		if err != nil || res.Found[0].Err != nil {
			t.Fatal(err, res)
		}
		return res
	}
	for _, kind := range []string{"single-label", "multi-label"} {
		res := ask(nil, map[string]any{"label_groups": groups, "classification_type": kind})
		for name, labels := range map[string][]string{
			"topic": {"sport", "politics"}, "mood": {"good", "bad", "none"},
		} {
			alone := ask(labels, map[string]any{"classification_type": kind})
			for i := range res.Found {
				answer := res.Found[i].Data[name].(map[string]any)
				for _, c := range alone.Found[i].Classes {
					if answer["probabilities"].(map[string]any)[c.Label] != c.Score {
						t.Errorf("%s, text %d, %s: %v, alone %v", kind, i, name, answer, c)
					}
				}
				if best := alone.Found[i].Classes[0].Label; kind == "single-label" &&
					answer["choice"] != best {
					t.Errorf("text %d, %s: chose %v, best is %s", i, name, answer["choice"], best)
				}
			}
		}
		if n := len(res.Found[0].Classes); n != 5 || !strings.Contains(res.Found[0].Classes[0].Label, ".") {
			t.Errorf("%s: %v", kind, res.Found[0].Classes)
		}
		joint := ask(nil, map[string]any{
			"label_groups": groups, "classification_type": kind, "group_encoding": "joint",
		})
		flat := ask([]string{"mood.good", "mood.bad", "mood.none", "topic.sport", "topic.politics"},
			map[string]any{"classification_type": kind})
		if kind == "multi-label" && !sameClasses(joint.Found[0].Classes, flat.Found[0].Classes) {
			t.Errorf("joint: %v, want %v", joint.Found[0].Classes, flat.Found[0].Classes)
		}
		other := ask(nil, map[string]any{
			"label_groups":        api.Ordered{Keys: []string{"topic", "mood"}, Values: groups},
			"classification_type": kind, "group_encoding": "joint",
		})
		flat = ask([]string{"topic.sport", "topic.politics", "mood.good", "mood.bad", "mood.none"},
			map[string]any{"classification_type": kind})
		if kind == "multi-label" && (!sameClasses(other.Found[0].Classes, flat.Found[0].Classes) ||
			sameClasses(other.Found[0].Classes, joint.Found[0].Classes)) {
			t.Errorf("joint, in the client's order: %v, want %v", other.Found[0].Classes,
				flat.Found[0].Classes)
		}
		sum := 0.0
		for _, p := range joint.Found[0].Data["mood"].(map[string]any)["probabilities"].(map[string]any) {
			sum += p.(float64)
		}
		if kind == "single-label" && math.Abs(sum-1) > 1e-12 {
			t.Errorf("the shares of a joint group sum to %g", sum)
		}
	}
}

// saysWhatToDo matches an error that says what is possible, or what to change.
var saysWhatToDo = regexp.MustCompile(`expected |wanted|possible|must be |[;:] (name|leave|shorten|send|give|` +
	`ask for|add|remove)\b|: give `)

func TestGLiClassBadRequests(t *testing.T) {
	r := start(t, nil, nil, gliclass(t, "gliclass-modern", 100))
	long, many := strings.Repeat("é", 129), make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprint("l", i)
	}
	two := []string{"a", "b"}
	groups, apart := map[string]any{"g": []any{"a", "b"}}, map[string]any{}
	for i := range 65 {
		apart[fmt.Sprint("g", i)] = []any{"a", "b"}
	}
	with := func(key string, v any) map[string]any { return map[string]any{key: v} }
	example := func(text string, labels any) map[string]any {
		return with("examples", []any{map[string]any{"text": text, "labels": labels}})
	}
	examples := make([]any, 33)
	for i := range examples {
		examples[i] = map[string]any{"text": "x", "labels": []any{"a"}}
	}
	wide := make([]string, 14)
	for i := range wide {
		wide[i] = strings.Repeat(string(rune('a'+i)), 128)
	}
	for _, c := range []struct {
		labels  []string
		options map[string]any
		param   string
	}{
		{nil, nil, "params.labels"}, {[]string{"a", " "}, nil, "params.labels"},
		{[]string{"a", " a"}, nil, "params.labels"}, {[]string{long}, nil, "params.labels"},
		{[]string{"x<<LABEL>>y"}, nil, "params.labels"}, {[]string{"<<SEP>>"}, nil, "params.labels"},
		{many, nil, "params.labels"}, {many[:400], nil, "params.labels"},
		{two, with("threshold", 1.01), "options.threshold"}, {two, with("threshold", -0.1),
			"options.threshold"},
		{two, with("threshold", math.NaN()), "options.threshold"},
		{two, with("classification_type", "both"), "options.classification_type"},
		{two, with("group_encoding", "joint"), "options.group_encoding"},
		{two, with("label_groups", groups), "options.label_groups"},
		{nil, with("label_groups", map[string]any{}), "options.label_groups"},
		{nil, with("label_groups", with("g", []any{})), "options.label_groups"},
		{nil, with("label_groups", with("g", []any{"a"})), "options.label_groups"},
		{nil, with("label_groups", with(" ", []any{"a", "b"})), "options.label_groups"},
		{nil, with("label_groups", with("g", []any{"a", 1})), "options.label_groups"},
		{nil, map[string]any{"label_groups": groups, "group_encoding": "both"}, "options.group_encoding"},
		{two, with("examples", with("text", "x")), "options.examples"},
		{two, with("examples", []any{with("text", "x")}), "options.examples"},
		{two, with("examples", []any{map[string]any{"text": "x", "labels": []any{"c"}}}),
			"options.examples"},
		{two, with("examples", []any{map[string]any{"text": " ", "labels": []any{"a"}}}),
			"options.examples"},
		{two, with("examples", []any{map[string]any{"text": "<<SEP>>", "labels": []any{"a"}}}),
			"options.examples"},
		{two, example("<<EXAMPLE>>", []any{"a"}), "options.examples"},
		{nil, map[string]any{"group_encoding": "joint", "label_groups": map[string]any{
			"g": anyOf(many[:500]), "h": anyOf(many[:501])}}, "options.label_groups"},
		{two, with("hypothesis_template", "{}"), "options.hypothesis_template"},
		{two, with("threshold", true), "options.threshold"}, {two, with("threshold", "0.5"),
			"options.threshold"},
		{two, with("threshold", math.Inf(1)), "options.threshold"},
		{two, with("classification_type", 1), "options.classification_type"},
		{two, with("cuda_graphs", "exact"), "options.cuda_graphs"},
		{two, with("cuda_graphs", true), "options.cuda_graphs"},
		{wide, nil, "params.labels"}, // 1,792 characters in a window of 100 tokens
		{nil, with("label_groups", []any{"a", "b"}), "options.label_groups"},
		{nil, with("label_groups", apart), "options.label_groups"},
		{nil, with("label_groups", map[string]any{"g": []any{"a", "b"}, " g": []any{"c", "d"}}),
			"options.label_groups"},
		{nil, with("label_groups", map[string]any{"a": []any{"b.c", "d"}, "a.b": []any{"c", "d"}}),
			"options.label_groups"},
		{nil, with("label_groups", map[string]any{long: []any{"a", "b"}}), "options.label_groups"},
		{nil, with("label_groups", map[string]any{"<<SEP>>": []any{"a", "b"}}), "options.label_groups"},
		{nil, with("label_groups", map[string]any{"g": []any{"a", "a "}}), "options.label_groups"},
		{two, with("examples", examples), "options.examples"},
		{two, example("x", nil), "options.examples"}, {two, example("x", []any{1, 2}), "options.examples"},
		{two, example("x", []any{"a", "a", "a"}), "options.examples"},
		{two, example(strings.Repeat("x", 2049), []any{"a"}), "options.examples"},
		{two, example("x", map[string]any{"g": "a"}), "options.examples"},
		{nil, map[string]any{
			"label_groups": groups, "examples": example("x", map[string]any{"h": "a"})["examples"],
		}, "options.examples"},
	} {
		_, err := r.Extract(t.Context(), &ExtractRequest{
			Model: "gliclass", Texts: []string{"a text"}, Labels: c.labels, Options: c.options,
		})
		if e := errs.As(err); err == nil || e.Status != 400 || e.Param != c.param ||
			!saysWhatToDo.MatchString(e.Message) {
			t.Errorf("%.60v %v: %v, want a 400 for %s that says what to do", c.labels, c.options, err,
				c.param)
		}
	}
	fine := []map[string]any{
		{"label_groups": groups, "examples": example("x", map[string]any{"g": "a"})["examples"]},
		{"label_groups": apart, "group_encoding": "joint", "threshold": 1},
		{"label_groups": groups, "examples": []any{}},
		{"label_groups": groups, "cuda_graphs": "off"}, {"label_groups": groups, "cuda_graphs": false},
	}
	delete(apart, "g64") // 64 of two labels each
	for _, options := range append(fine, with("label_groups", apart)) {
		_, err := r.Extract(t.Context(),
			&ExtractRequest{Model: "gliclass", Texts: []string{"x"}, Options: options})
		if e := errs.As(err); err != nil && e.Code != errs.InputTooLong {
			t.Errorf("%.100v: %v", options, err)
		}
	}
	r = start(t, nil, nil, gliclass(t, "gliclass-modern", 60))
	if _, err := r.Extract(t.Context(), &ExtractRequest{
		Model: "gliclass", Texts: []string{"a text"}, Labels: []string{strings.Repeat("é ", 63) + "éé"},
	}); errs.As(err) == nil || errs.As(err).Code != errs.InputTooLong {
		t.Errorf("a label that the model's window cannot hold: %v", err)
	}
}

// An item that fails leaves its neighbours as they are.
func TestGLiClassItemsFailAlone(t *testing.T) {
	for name, first := range map[string]bool{"gliclass-modern": true, "gliclass-dot": false} {
		r := start(t, nil, nil, gliclass(t, name, 60))
		long := strings.Repeat("word ", 30)
		ask := func(policy string, texts ...string) *Result {
			t.Helper()
			res, err := r.Extract(t.Context(), &ExtractRequest{
				Model: "gliclass", Texts: texts, Labels: []string{"sport", "war"},
				Options: map[string]any{"overflow_policy": policy},
			})
			if err != nil {
				t.Fatal(name, policy, err)
			}
			return res
		}
		alone := ask("default", "a cat").Found[0].Classes
		for policy, failing := range map[string]string{
			"default": map[bool]string{true: "", false: "INPUT_TOO_LONG"}[first], "error": "INPUT_TOO_LONG",
			"truncate_text": "",
		} {
			res := ask(policy, long, "a cat", " ", "a <<LABEL>> b")
			code := ""
			if e := res.Found[0].Err; e != nil {
				code = string(e.Code)
			}
			if code != failing || failing == "" && len(res.Found[0].Classes) != 2 {
				t.Errorf("%s %s: %v %v", name, policy, res.Found[0].Err, res.Found[0].Classes)
			}
			if !slices.Equal(res.Found[1].Classes, alone) {
				t.Errorf("%s %s: %v in company, %v alone", name, policy, res.Found[1].Classes, alone)
			}
			if res.Found[2].Err == nil || res.Found[3].Err == nil {
				t.Errorf("%s %s: a blank text %v, a marker %v", name, policy, res.Found[2].Err,
					res.Found[3].Err)
			}
		}
	}
}

// What a profile says counts as what the request says: groups of one label are for labels that do
// not exclude each other.
func TestGLiClassProfiles(t *testing.T) {
	m := gliclass(t, "gliclass-dot", 200)
	m.Profiles[0].Loadtime = map[string]any{"classification_type": "multi-label", "cuda_graphs": "bucketed"}
	r := start(t, nil, nil, m)
	ask := func(options map[string]any) (*Result, error) {
		options["label_groups"] = map[string]any{"g": []any{"a"}}
		return r.Extract(t.Context(),
			&ExtractRequest{Model: "gliclass", Texts: []string{"x"}, Options: options})
	}
	if res, err := ask(map[string]any{}); err != nil || res.Found[0].Data["g"] == nil {
		t.Error(err)
	}
	_, err := ask(map[string]any{"classification_type": "single-label"})
	if e := errs.As(err); err == nil || e.Param != "options.label_groups" {
		t.Errorf("one label in single-label mode: %v", err)
	}
}

// A text that many groups read is cut to what any of them reads. A model whose labels come first
// gives the same scores for it; a text that is almost all blanks fails alone.
func TestGLiClassLongTextsOfManyGroups(t *testing.T) {
	r := start(t, nil, nil, gliclass(t, "gliclass-modern", 60))
	groups := map[string]any{}
	for i := range 64 {
		groups[fmt.Sprint(i)] = []any{"a", "b"}
	}
	words := strings.Repeat("one two ", 40)
	texts := []string{
		words, words + strings.Repeat(" three", 3000), "one" + strings.Repeat(" ", 9000) + words,
		strings.Repeat("x", 8300), "one two",
	}
	res, err := r.Extract(t.Context(), &ExtractRequest{
		Model: "gliclass", Texts: texts, Options: map[string]any{"label_groups": groups},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, fails := range []bool{false, false, true, true, false} {
		found := res.Found[i]
		if e := found.Err; (e != nil) != fails || e != nil && (e.Code != errs.InputTooLong ||
			!strings.Contains(e.Message, "8192 characters")) {
			t.Errorf("text %d: %v", i, e)
		}
		if !fails && len(found.Classes) != 128 {
			t.Errorf("text %d: %d classes", i, len(found.Classes))
		}
	}
	if !slices.Equal(res.Found[0].Classes, res.Found[1].Classes) {
		t.Error("the classes of a text change with what no row reads")
	}
}

// Where labels leave a text little room, a text that fits is answered, and any other fails alone.
func TestGLiClassLittleRoom(t *testing.T) {
	r := start(t, nil, nil, gliclass(t, "gliclass-modern", 40))
	ask := func(label string) (*Result, error) {
		return r.Extract(t.Context(), &ExtractRequest{
			Model: "gliclass", Texts: []string{"a", "a b c d e f g h i j k l"}, Labels: []string{label, "b"},
		})
	}
	label := ""
	for { // the longest label that leaves room for one text of a letter
		if res, err := ask(label + "q"); err != nil || res.Found[0].Err != nil {
			break
		}
		label += "q "
		if len(label) < 100 {
			continue
		}
		t.Fatal("labels of any length leave room")
	}
	res, err := ask(strings.TrimSpace(label))
	if err != nil || res.Found[0].Err != nil || len(res.Found[0].Classes) != 2 {
		t.Fatal(err, res)
	}
	if e := res.Found[1].Err; e == nil || e.Code != errs.InputTooLong || !strings.Contains(e.Message,
		"fewer than 8 of the") {
		t.Errorf("a text that does not fit: %v", e)
	}
}

// The texts of examples are billed as the item's is, once for each item; the names of labels are
// not, those of examples among them.
func TestGLiClassBillsNoNames(t *testing.T) {
	r := start(t, nil, nil, gliclass(t, "gliclass-modern", 200))
	const text = "the bank met the team"
	tokens := func(texts int, examples ...any) int {
		options := map[string]any{}
		if examples != nil {
			options["examples"] = examples
		}
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "gliclass", Options: options,
			Texts: slices.Repeat([]string{text}, texts), Labels: []string{"sport", "science and technology"}})
		if err != nil || res.Found[0].Err != nil {
			t.Fatal(err, res)
		}
		return res.Tokens
	}
	example := func(labels ...any) any {
		return map[string]any{"text": text, "labels": append([]any{}, labels...)}
	}
	alone := tokens(1)
	own := alone - 2 // [CLS] and [SEP]
	for _, labels := range [][]any{nil, {"sport"}, {"science and technology"},
		{"sport", "science and technology"}} {
		for n := 1; n <= 2; n++ {
			if got := tokens(1, slices.Repeat([]any{example(labels...)}, n)...); got != alone+n*own {
				t.Errorf("%d examples of %v: %d tokens, want %d", n, labels, got, alone+n*own)
			}
		}
	}
	if got := tokens(4, example("sport")); got != 4*(alone+own) {
		t.Errorf("4 items and an example: %d tokens, want %d", got, 4*(alone+own))
	}
}
