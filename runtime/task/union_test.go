package task_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/task"
)

const unionCommit = "0123456789012345678901234567890123456789"

func parseModel(t *testing.T, format string, args ...any) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, format, args...))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// memberEntry is a tiny GLiNER under a repository's name.
func memberEntry(t *testing.T, name string) *catalog.Model {
	t.Helper()
	return memberIn(t, name, golden.Open(t, name).Dir)
}

// memberIn is memberEntry for a model in dir.
func memberIn(t *testing.T, name, dir string) *catalog.Model {
	t.Helper()
	return parseModel(t, `sie_id: acme/%[1]s
hf_id: acme/%[1]s
hf_revision: %[2]q
weights_path: %[3]s
tasks: {extract: {}}
profiles:
  default: {adapter_path: "sie_server.adapters.gliner:GLiNERAdapter", max_batch_tokens: 4096, compute_precision: float32}
`, name, unionCommit, dir)
}

// unionEntry is a union of two models, of which the second may join neighbours.
func unionEntry(t *testing.T, id, own, other string, merge bool) *catalog.Model {
	t.Helper()
	return parseModel(t, `sie_id: %s
hf_id: acme/%s
hf_revision: %q
tasks: {extract: {}}
profiles:
  default:
    adapter_path: "sie_server.adapters.gliner_union.adapter:GLiNERUnionAdapter"
    max_batch_tokens: 4096
    adapter_options:
      loadtime:
        members: [{model: acme/%s, revision: %q, options: {merge_adjacent_entities: %v}}]
      runtime: {score_floor: 0.6, propagate_label: person, default_labels: [person, city]}
`, id, own, unionCommit, other, unionCommit, merge)
}

const unionSpan, unionToken = "gliner-bert-span", "gliner-bert-token"

// unionRig serves both members, and unions of them in either order.
func unionRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	return start(t, change, nil, memberEntry(t, unionSpan), memberEntry(t, unionToken),
		unionEntry(t, "a-union", unionSpan, unionToken, false),
		unionEntry(t, "b-union", unionToken, unionSpan, false),
		unionEntry(t, "c-union", unionToken, unionSpan, true))
}

// A union of the tiny models finds what the adapter of sie-server 0.10.1 finds with them, in its
// order, and counts its tokens.
func TestUnionEqualsAdapter(t *testing.T) {
	var cases []struct {
		Own      int            `json:"own"`
		Merge    bool           `json:"merge"`
		Text     string         `json:"text"`
		Labels   []string       `json:"labels"`
		Options  map[string]any `json:"options"`
		Tokens   int            `json:"tokens"`
		Entities [][4]float64   `json:"entities"`
	}
	data, err := os.ReadFile(filepath.Join(golden.Root(t), "gliner-union", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 40 {
		t.Fatal(len(cases), err)
	}
	r := unionRig(t, nil)
	for n, c := range cases {
		id := []string{"a-union", "b-union"}[c.Own]
		if c.Merge {
			id = "c-union"
		}
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: id, Texts: []string{"Berlin", c.Text},
			Labels: c.Labels, Options: c.Options})
		if err != nil || res.Found[1].Err != nil {
			t.Fatal(n, err, res)
		}
		points := []rune(c.Text)
		got := res.Found[1].Entities
		same := len(got) == len(c.Entities)
		for i := 0; same && i < len(got); i++ {
			e := c.Entities[i]
			start, end := int(e[0]), int(e[1])
			same = got[i].Start == start && got[i].End == end && got[i].Text == string(points[start:end]) &&
				got[i].Label == c.Labels[int(e[2])] && math.Abs(got[i].Score-e[3]) < 1e-4
		}
		if !same {
			t.Errorf("case %d, %s of %q, %v:\n got %v\nwant %v", n, id, c.Text, c.Options, got, c.Entities)
		}
		alone, err := r.Extract(t.Context(), &ExtractRequest{Model: id, Texts: []string{c.Text},
			Labels: c.Labels, Options: c.Options})
		if err != nil || fmt.Sprint(alone.Found[0].Entities) != fmt.Sprint(got) {
			t.Errorf("case %d: alone %v: %v", n, alone, err)
		} else if alone.Tokens != c.Tokens {
			t.Errorf("case %d: %d tokens, want %d", n, alone.Tokens, c.Tokens)
		}
	}
}

// plainUnion is the union of what members find in windows of a text, written as the definition
// reads.
func plainUnion(
	text string, windows [][2]int, found [][][]api.Entity, floor float64, label string, letters int,
) []api.Entity {
	points := []rune(text)
	var all []api.Entity
	for _, member := range found {
		for w, list := range member {
			for _, e := range list {
				e.Start += windows[w][0]
				e.End += windows[w][0]
				i := slices.IndexFunc(all, func(o api.Entity) bool {
					return o.Start == e.Start && o.End == e.End && o.Label == e.Label
				})
				switch {
				case e.Score < floor:
				case i < 0:
					all = append(all, e)
				case e.Score > all[i].Score:
					all[i].Score = e.Score
				}
			}
		}
	}
	inOrder := func(a, b api.Entity) int {
		if a.Start != b.Start {
			return a.Start - b.Start
		}
		return a.End - b.End
	}
	slices.SortStableFunc(all, inOrder)
	letter := func(i int) bool {
		return i >= 0 && i < len(points) &&
			(unicode.IsLetter(points[i]) || unicode.Is(unicode.No, points[i]))
	}
	var runs [][2]int
	for i := 0; i < len(points); i++ {
		from := i
		for letter(i) {
			i++
		}
		if i-from >= letters {
			runs = append(runs, [2]int{from, i})
		}
	}
	best := map[string]float64{}
	for _, e := range all {
		inside := []rune(e.Text)
		for i := 0; e.Label == label && i < len(inside); i++ {
			from := i
			for i < len(inside) && letter(e.Start+i) {
				i++
			}
			if i-from >= letters {
				name := string(inside[from:i])
				best[name] = max(best[name], e.Score)
			}
		}
	}
	union := slices.Clone(all)
	for _, run := range runs {
		name := string(points[run[0]:run[1]])
		inside := slices.ContainsFunc(all, func(e api.Entity) bool {
			return e.Start <= run[0] && e.End >= run[1]
		})
		if score, is := best[name]; is && !inside {
			union = append(union, api.Entity{
				Text: name, Label: label, Score: score, Start: run[0], End: run[1],
			})
		}
	}
	slices.SortStableFunc(union, inOrder)
	return union
}

// plainWindows are the windows of words of a text whose words are runs of letters and digits.
func plainWindows(text string, size, overlap int) [][2]int {
	points := []rune(text)
	var words [][2]int
	for i := 0; i < len(points); i++ {
		from := i
		for i < len(points) && points[i] != ' ' {
			i++
		}
		if i > from {
			words = append(words, [2]int{from, i})
		}
	}
	if len(words) <= size {
		return [][2]int{{0, len(points)}}
	}
	var out [][2]int
	for first := 0; ; first += size - overlap {
		last := min(first+size, len(words)) - 1
		out = append(out, [2]int{words[first][0], words[last][1]})
		if last == len(words)-1 {
			return out
		}
	}
}

// A union's answers are those that its members give under their own ids, put together, for texts of
// up to 10,000 words; and no answer depends on its neighbours.
func TestUnionOfMembersAnswers(t *testing.T) {
	r := unionRig(t, nil)
	rng := rand.New(rand.NewPCG(22, 4))
	names := []string{"Angela", "Merkel", "Berlin", "Ann", "Bob", "Анна", "Москву", "東京都", "met",
		"in", "at", "pay5", "x"}
	labels := []string{"person", "city", "job title"}
	type one struct {
		text string
		want []api.Entity
	}
	merged := 0
	for _, c := range []struct {
		words, size, overlap, letters int
		floor                         float64
		joins                         bool // the second member joins neighbours
	}{{1, 300, 50, 3, 0.6, false}, {30, 7, 3, 1, 0.5, false}, {30, 7, 3, 1, 0.5, true},
		{80, 20, 19, 2, 0.6, false}, {300, 300, 50, 3, 0.6, false}, {301, 300, 50, 3, 0.6, true},
		{10_000, 300, 50, 3, 0.6, false}} {
		var items []one
		for range 3 {
			var b strings.Builder
			for range c.words {
				b.WriteString(names[rng.IntN(len(names))] + strings.Repeat(" ", 1+rng.IntN(2)))
			}
			text := strings.TrimSuffix(b.String(), " ")
			windows := plainWindows(text, c.size, c.overlap)
			var parts []string
			for _, w := range windows {
				parts = append(parts, string([]rune(text)[w[0]:w[1]]))
			}
			var found [][][]api.Entity
			members := []string{unionSpan, unionToken}
			if c.joins {
				slices.Reverse(members)
			}
			for _, member := range members {
				joins := c.joins && member == unionSpan
				res, err := r.Extract(t.Context(), &ExtractRequest{Model: "acme/" + member, Texts: parts,
					Labels: labels, Options: map[string]any{"merge_adjacent_entities": joins}})
				if err != nil {
					t.Fatal(err)
				}
				if joins {
					apart, err := r.Extract(t.Context(),
						&ExtractRequest{Model: "acme/" + member, Texts: parts, Labels: labels})
					if err != nil {
						t.Fatal(err)
					}
					if fmt.Sprint(apart.Found) != fmt.Sprint(res.Found) {
						merged++
					}
				}
				var lists [][]api.Entity
				for _, f := range res.Found {
					lists = append(lists, f.Entities)
				}
				found = append(found, lists)
			}
			items = append(items, one{text, plainUnion(text, windows, found, c.floor, "person", c.letters)})
			if c.words > 1000 {
				break // one is enough
			}
		}
		options := map[string]any{"score_floor": c.floor, "window_words": c.size,
			"window_overlap": c.overlap, "name_min_letters": c.letters}
		var texts []string
		for _, item := range items {
			texts = append(texts, item.text, " ")
		}
		model := "a-union"
		if c.joins {
			model = "c-union"
		}
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: model, Texts: texts, Labels: labels,
			Options: options})
		if err != nil {
			t.Fatal(err)
		}
		for i, item := range items {
			if got := res.Found[2*i].Entities; fmt.Sprint(got) != fmt.Sprint(item.want) {
				t.Errorf("%+v: got %d entities, want %d:\n%.300v\n%.300v",
					c, len(got), len(item.want), got, item.want)
			}
			place := fmt.Sprintf("items[%d]", 2*i+1)
			if e := res.Found[2*i+1].Err; e == nil || !strings.Contains(e.Message, place) {
				t.Errorf("a blank neighbour: %v", e)
			}
		}
		if c.words > 1000 && len(items[0].want) == 0 {
			t.Error("nothing is found in 10,000 words")
		}
	}
	if merged == 0 {
		t.Error("no member joins anything: its option proves nothing")
	}
}

// dropping returns a copy of a model whose tokenizer leaves nothing of a soft hyphen.
func dropping(t *testing.T, name string) string {
	t.Helper()
	dir := copyModel(t, name)
	edit(t, filepath.Join(dir, "tokenizer.json"), map[string]any{"normalizer": map[string]any{
		"type": "Replace", "pattern": map[string]any{"String": "\u00ad"}, "content": "",
	}})
	return dir
}

// Windows of which a member's tokenizer leaves no token have nothing that it finds; other windows
// and other members are read. An input of which no member has a token is answered with an error.
func TestUnionOfDroppedWords(t *testing.T) {
	dir, both := dropping(t, unionSpan), dropping(t, unionToken)
	labels := []string{"person", "city"}
	options := map[string]any{"score_floor": 0.5, "window_words": 3, "window_overlap": 1,
		"name_min_letters": 40}
	gone := strings.Repeat("\u00ad ", 7) // three windows of their own, and half of another
	for _, c := range []struct {
		name  string
		token string // the directory of the second member
		alone bool   // the second member finds something in what the first one drops
	}{{"both drop them", both, false}, {"one drops them", golden.Open(t, unionToken).Dir, true}} {
		r := start(t, nil, nil, memberIn(t, unionSpan, dir), memberIn(t, unionToken, c.token),
			unionEntry(t, "a-union", unionSpan, unionToken, false))
		ask := func(id string, texts ...string) []task.Extracted {
			t.Helper()
			var o map[string]any
			if id == "a-union" {
				o = options
			}
			res, err := r.Extract(t.Context(),
				&ExtractRequest{Model: id, Texts: texts, Labels: labels, Options: o})
			if err != nil {
				t.Fatal(c.name, err)
			}
			return res.Found
		}
		texts := []string{gone + "Angela Merkel met Bob", "Angela Merkel met " + gone + "Bob",
			"met Bob " + gone}
		found := 0
		for i, got := range ask("a-union", append(slices.Clone(texts), gone, "Berlin")...) {
			if i == len(texts)+1 {
				continue
			}
			text := append(texts, gone)[i]
			windows := plainWindows(text, 3, 1)
			var lists [][][]api.Entity
			for _, member := range []string{"acme/" + unionSpan, "acme/" + unionToken} {
				var of [][]api.Entity
				for _, w := range windows {
					of = append(of, ask(member, string([]rune(text)[w[0]:w[1]]))[0].Entities)
				}
				lists = append(lists, of)
			}
			if want := plainUnion(text, windows, lists, 0.5, "person", 40); i < len(texts) {
				found += len(want)
				if got.Err != nil || fmt.Sprint(got.Entities) != fmt.Sprint(want) {
					t.Errorf("%s: %q: %v\n got %v\nwant %v", c.name, text, got.Err, got.Entities, want)
				}
			}
			if i == len(texts) && (got.Err == nil) != c.alone {
				t.Errorf("%s: dropped words alone: %v", c.name, got.Err)
			}
			if e := got.Err; i == len(texts) && e != nil && !strings.Contains(e.Message, "items[3]") {
				t.Errorf("%s: %v", c.name, e)
			}
		}
		if found == 0 {
			t.Errorf("%s: nothing is found: the test proves too little", c.name)
		}
	}
}

// A request without labels asks for the default ones in their order, one that names others does
// not. What a member finds wrong with a text names the text and not a window.
func TestUnionDefaults(t *testing.T) {
	r := unionRig(t, nil)
	const text = "Angela Merkel lived in Berlin, not in New York. Ann met Bob at x-1"
	ask := func(labels ...string) string {
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "a-union", Texts: []string{text},
			Labels: labels})
		if err != nil || len(res.Found[0].Entities) == 0 {
			t.Fatal(err, res)
		}
		return fmt.Sprint(res.Found)
	}
	if got := ask(); got != ask("person", "city") || got == ask("city", "person") {
		t.Errorf("without labels: %s", got)
	}
	r = start(t, nil, nil, memberIn(t, unionSpan, dropping(t, unionSpan)),
		memberIn(t, unionToken, dropping(t, unionToken)),
		unionEntry(t, "a-union", unionToken, unionSpan, false))
	res, err := r.Extract(t.Context(), &ExtractRequest{Model: "a-union",
		Texts:   []string{strings.Repeat("Ann ", 5), "\u00ad", strings.Repeat("a b ", 5)},
		Options: map[string]any{"window_words": 3, "window_overlap": 1}})
	if err != nil {
		t.Fatal(err)
	}
	if e := res.Found[1].Err; e == nil || !strings.Contains(e.Message, "'items[1]'") {
		t.Errorf("a text that the tokenizer drops: %v", e)
	}
	if res.Found[0].Err != nil || res.Found[2].Err != nil {
		t.Errorf("its neighbours: %v, %v", res.Found[0].Err, res.Found[2].Err)
	}
}

// Each member is loaded once, whoever asks first, and lives or goes under its own id. A union is
// loaded when all its members are; an unloaded one is loaded again by the next request.
func TestUnionSharesItsMembers(t *testing.T) {
	r := unionRig(t, nil)
	ask := func(model string) {
		t.Helper()
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: model, Texts: []string{"Angela met Bob"},
			Labels: []string{"person"}})
		if err != nil || res.Found[0].Err != nil {
			t.Fatal(model, err)
		}
	}
	if s := r.State("a-union"); s != registry.Available {
		t.Errorf("before any request: %s", s)
	}
	ask("acme/" + unionToken)
	for _, id := range []string{"a-union", "acme/" + unionSpan} {
		if s := r.State(id); s != registry.Available {
			t.Errorf("one member is loaded: %s is %s", id, s)
		}
	}
	for _, id := range []string{"a-union", "b-union", "acme/" + unionSpan, "c-union"} {
		ask(id)
		if s := r.State(id); s != registry.Loaded {
			t.Errorf("%s is %s", id, s)
		}
	}
	for _, member := range []string{unionSpan, unionToken} {
		if n := r.Loads("acme/" + member); n != 1 {
			t.Errorf("%s was loaded %d times", member, n)
		}
	}
	a, err := r.Ask(r.Entry("a-union"))
	if err != nil || !a.Loaded || a.BatchTokens == 0 {
		t.Errorf("%+v, %v", a, err)
	}
	// A catalog without one of the members unloads it; one with it again has it loaded again.
	c, err := catalog.Of(memberEntry(t, unionSpan))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetCatalog(c); err != nil {
		t.Fatal(err)
	}
	c, err = catalog.Of(memberEntry(t, unionSpan), memberEntry(t, unionToken),
		unionEntry(t, "a-union", unionSpan, unionToken, false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetCatalog(c); err != nil {
		t.Fatal(err)
	}
	ask("a-union")
	if n := r.Loads("acme/" + unionToken); n != 2 {
		t.Errorf("the member that left was loaded %d times", n)
	}
}

// The error of a member is the union's, and names the member; what works goes on working.
func TestUnionOfABrokenMember(t *testing.T) {
	broken := memberEntry(t, unionToken)
	broken.WeightsPath = t.TempDir()
	r := start(t, nil, nil, memberEntry(t, unionSpan), broken,
		unionEntry(t, "a-union", unionSpan, unionToken, false))
	_, err := r.Extract(t.Context(), &ExtractRequest{Model: "a-union", Texts: []string{"Berlin"}})
	e := errs.As(err)
	if err == nil || e.Code != errs.ModelLoadFailed || e.Load == nil ||
		!strings.Contains(e.Message, "'a-union'") || !strings.Contains(e.Message, "'acme/"+unionToken+"'") {
		t.Errorf("%v", err)
	}
	if s := r.State("a-union"); s != registry.Failed {
		t.Errorf("the union is %s", s)
	}
	info, err := r.Model("a-union")
	if err != nil || info.LastError == nil || !strings.Contains(info.LastError.Message, "acme/"+unionToken) {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := r.Ask(r.Entry("a-union")); err == nil || !strings.Contains(err.Error(), "acme/"+unionToken) {
		t.Errorf("asked: %v", err)
	}
	err = r.Preload(t.Context(), "a-union")
	if err == nil || !strings.Contains(err.Error(), "acme/"+unionToken) {
		t.Errorf("preloaded: %v", err)
	}
	res, err := r.Extract(t.Context(), &ExtractRequest{Model: "acme/" + unionSpan, Texts: []string{"Berlin"},
		Labels: []string{"city"}})
	if err != nil || res.Found[0].Err != nil {
		t.Errorf("the other member: %v", err)
	}
}

// Members that fit one by one and not together are an error that says so, and not a server that
// loads them in turn forever.
func TestUnionThatNeverFits(t *testing.T) {
	r := unionRig(t, nil)
	var sizes []int64
	for _, member := range []string{unionSpan, unionToken} {
		if err := r.Preload(t.Context(), "acme/"+member); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, r.Copy("acme/"+member).Bytes())
	}
	r = unionRig(t, func(o *Options) {
		o.MemoryBudget, o.LoadWait = sizes[0]+sizes[1]-1, time.Millisecond
	})
	var err error
	testrig.Until(t, "another answer than that a member is loading", func() bool {
		_, err = r.Extract(t.Context(), &ExtractRequest{Model: "a-union", Texts: []string{"Berlin"}})
		return err == nil || errs.As(err).Code != errs.ModelLoading
	})
	if e := errs.As(err); err == nil || e.Code != errs.ModelLoadFailed || e.Load.Class != "PLACEMENT" ||
		!strings.Contains(e.Message, "--memory-budget") {
		t.Errorf("%v", err)
	}
	fits := unionRig(t, func(o *Options) { o.MemoryBudget = sizes[0] + sizes[1] })
	if err := fits.Preload(t.Context(), "a-union"); err != nil {
		t.Error(err)
	}
}

// Bad requests are refused with the field before any model is loaded.
func TestUnionRefuses(t *testing.T) {
	r := unionRig(t, nil)
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprint("l", i)
	}
	for what, c := range map[string]struct {
		labels  []string
		options map[string]any
		want    string
	}{
		"no labels":        {nil, map[string]any{"default_labels": nil}, "requires labels"},
		"empty defaults":   {nil, map[string]any{"default_labels": []any{}}, "options.default_labels"},
		"blank default":    {nil, map[string]any{"default_labels": []any{" "}}, "default_labels[0] is blank"},
		"twice":            {[]string{"a", "a"}, nil, "params.labels[0] again"},
		"129 characters":   {[]string{strings.Repeat("é", 129)}, nil, "at most 128"},
		"1,001 labels":     {many, nil, "1000"},
		"a floor above 1":  {nil, map[string]any{"score_floor": 1.5}, "options.score_floor"},
		"a window of one":  {nil, map[string]any{"window_words": 1}, "options.window_words"},
		"half an overlap":  {nil, map[string]any{"window_overlap": 2.5}, "options.window_overlap"},
		"all is overlap":   {nil, map[string]any{"window_overlap": 300}, "window_overlap is 300"},
		"no letters":       {nil, map[string]any{"name_min_letters": 0}, "options.name_min_letters"},
		"a label's type":   {nil, map[string]any{"propagate_label": 5}, "options.propagate_label"},
		"a member's value": {nil, map[string]any{"threshold": 0.5}, "has no use for it"},
		"a misspelt one":   {nil, map[string]any{"window_word": 5}, "did you mean 'window_words'"},
	} {
		_, err := r.Extract(t.Context(), &ExtractRequest{Model: "a-union", Texts: []string{"Berlin"},
			Labels: c.labels, Options: c.options})
		if e := errs.As(err); err == nil || e.Info().Status != 400 || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v; want a 400 with %q", what, err, c.want)
		}
	}
	if s := r.State("acme/" + unionSpan); s != registry.Available {
		t.Errorf("a refused request loaded a member: %s", s)
	}
	// A marker is known when the member's files are, and a text of too many windows without them.
	_, err := r.Extract(t.Context(), &ExtractRequest{Model: "a-union", Texts: []string{"Berlin"},
		Labels: []string{"a <<ENT>> b"}})
	if e := errs.As(err); err == nil || e.Info().Status != 400 || !strings.Contains(e.Message, "<<ENT>>") {
		t.Errorf("a marker: %v", err)
	}
	res, err := r.Extract(t.Context(), &ExtractRequest{Model: "a-union",
		Texts:   []string{"Angela met Bob", strings.Repeat("a ", 129)},
		Options: map[string]any{"window_words": 2, "window_overlap": 1}})
	if err != nil {
		t.Fatal(err)
	}
	if e := res.Found[1].Err; res.Found[0].Err != nil || e != nil {
		t.Errorf("128 windows: %v, neighbour %v", e, res.Found[0].Err)
	}
	res, err = r.Extract(t.Context(), &ExtractRequest{Model: "a-union",
		Texts:   []string{"Angela met Bob", strings.Repeat("a ", 130)},
		Options: map[string]any{"window_words": 2, "window_overlap": 1}})
	if err != nil {
		t.Fatal(err)
	}
	if e := res.Found[1].Err; res.Found[0].Err != nil || e == nil || e.Code != errs.InputTooLong {
		t.Errorf("129 windows: %v, neighbour %v", e, res.Found[0].Err)
	}
}
