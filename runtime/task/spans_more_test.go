package task_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/task"
)

// spansIn is the entry of a GLiNER in a folder, with load-time options.
func spansIn(t *testing.T, id, dir, loadtime string) *catalog.Model {
	t.Helper()
	m, warn, err := catalog.ParseModel("test.yaml", fmt.Appendf(nil, `sie_id: %s
weights_path: %s
max_sequence_length: 6
tasks: {extract: {}}
profiles:
  default:
    adapter_path: "sie_server.adapters.gliner:GLiNERAdapter"
    max_batch_tokens: 4096
    compute_precision: float32
    adapter_options: {loadtime: {%s}, runtime: {}}
`, id, dir, loadtime))
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// longCase is a case of tools/golden/gliner_long.py.
type longCase struct {
	Recipe     [3]any
	Labels     []string
	Threshold  float64
	FlatNER    bool `json:"flat_ner"`
	MultiLabel bool `json:"multi_label"`
	Windows    int
	Entities   [][4]float64
}

// text makes the text of a recipe.
func (c *longCase) text() string {
	vocabulary := strings.Split("Berlin Bob pay Ann York state_of-the-art re-use , . 50 $ % ( ) "+
		"\u0410\u043d\u043d\u0430 \u041c\u043e\u0441\u043a\u0432\u0443 \u6771\u4eac\u90fd\u306b\u4f4f\u3080 "+
		"caf\u00e9 e\u0301 \U0001f642 \u0645\u0631\u062d\u0628\u0627 one two three", " ")
	state, words := uint64(c.Recipe[0].(float64)), int(c.Recipe[1].(float64))
	var out []string
	for i := range words {
		state = state*6364136223846793005 + 1442695040888963407
		out = append(out, vocabulary[(state>>33)%uint64(len(vocabulary))])
		if c.Recipe[2] == "word" && i == words/2 {
			out = append(out, strings.Repeat("Bob2", 1250))
		}
	}
	return strings.Join(out, " ")
}

// Texts of up to 10,000 words, and one with a word of 5,000 characters, have the entities that the
// package finds in the published server's windows, put together as that server does. The entry's
// max_sequence_length of 6 changes nothing: the published server does not read it for GLiNER.
func TestLongSpansEqualReference(t *testing.T) {
	r := start(t, nil, nil, spansIn(t, "long", golden.Open(t, "gliner-deberta-span").Dir, ""))
	several, found := 0, 0
	for i, c := range golden.JSON[[]longCase](t, "gliner-long", "cases.json") {
		text := c.text()
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "long", Labels: c.Labels,
			Texts: []string{text}, Options: map[string]any{"threshold": c.Threshold, "flat_ner": c.FlatNER,
				"multi_label": c.MultiLabel}})
		if err != nil || res.Found[0].Err != nil {
			t.Fatal(err, res)
		}
		if c.Windows > 1 {
			several++
		}
		found += len(c.Entities)
		got, points := res.Found[0].Entities, []rune(text)
		if len(got) != len(c.Entities) {
			t.Errorf("case %d: %d entities, want %d", i, len(got), len(c.Entities))
			continue
		}
		for k, e := range c.Entities {
			g := got[k]
			if g.Start != int(e[0]) || g.End != int(e[1]) || g.Label != c.Labels[int(e[2])] ||
				math.Abs(g.Score-e[3]) > 1e-4 || g.Text != string(points[g.Start:g.End]) {
				t.Errorf("case %d: entity %d is %v, want %v", i, k, g, e)
				break
			}
		}
	}
	if several < 5 || found < 150 {
		t.Errorf("%d texts of several windows, %d entities: the cases prove little", several, found)
	}
}

// A model of the first releases has the keys of its training in gliner_config.json and a tokenizer
// without the markers, which get the ids behind it. It finds what the same weights find in the form
// of today.
func TestSpansOfFirstReleases(t *testing.T) {
	const name = "gliner-bert-span"
	dir := copyModel(t, name)
	edit(t, filepath.Join(dir, "gliner_config.json"), map[string]any{"class_token_index": -1,
		"vocab_size": -1, "lr_encoder": "1e-5", "train_data": "x.json", "size_sup": -1, "root_dir": "logs",
		"shuffle_types": true, "random_drop": true, "prev_path": "none"})
	path := filepath.Join(dir, "tokenizer.json")
	var tokenizer map[string]any
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &tokenizer)
	}
	if err != nil {
		t.Fatal(err)
	}
	added := tokenizer["added_tokens"].([]any)
	kept := slices.DeleteFunc(slices.Clone(added), func(v any) bool {
		return slices.Contains([]any{"[FLERT]", "<<ENT>>", "<<SEP>>"}, v.(map[string]any)["content"])
	})
	if len(kept) != len(added)-3 {
		t.Fatalf("%d tokens of %d are left", len(kept), len(added))
	}
	edit(t, path, map[string]any{"added_tokens": kept})
	r := start(t, nil, nil, spansEntry(t, name), spansIn(t, "first", dir, ""))
	ask := &ExtractRequest{Labels: []string{"city", "person"}, Options: map[string]any{"threshold": 0.3},
		Texts: []string{"Angela Merkel lived in Berlin, not in New York.", "pay Bob 5"}}
	var found []string
	for _, ask.Model = range []string{name, "first"} {
		res, err := r.Extract(t.Context(), ask)
		if err != nil || len(res.Found[0].Entities) == 0 {
			t.Fatal(err, res)
		}
		found = append(found, fmt.Sprint(res.Found))
	}
	if found[0] != found[1] {
		t.Errorf("the form of the first releases finds %s, that of today %s", found[1], found[0])
	}
}

// Labels and options are refused without a model: this one has no files. So are those of a profile.
func TestSpansAreCheckedBeforeLoading(t *testing.T) {
	r := start(t, nil, nil, spansIn(t, "none", filepath.Join(t.TempDir(), "none"), "max_prompt_tokens: 8"))
	for what, c := range map[string]struct {
		labels  []string
		options map[string]any
		want    string // in the error; "": the missing files are found
	}{
		"good":               {[]string{"a"}, nil, ""},
		"no labels":          {nil, nil, "requires labels"},
		"blank":              {[]string{"a", "\u3000"}, nil, "params.labels[1] is blank"},
		"empty":              {[]string{""}, nil, "params.labels[0] is blank"},
		"twice":              {[]string{"a", "a"}, nil, "again"},
		"128 characters":     {[]string{strings.Repeat("é", 128)}, nil, ""},
		"129 characters":     {[]string{strings.Repeat("é", 129)}, nil, "max_label_chars"},
		"a marker":           {[]string{"<<ENT>>"}, nil, `marker "<<ENT>>"`},
		"a marker in a name": {[]string{"a<<SEP>>"}, nil, `marker "<<SEP>>"`},
		"256 characters":     {[]string{strings.Repeat("a", 128), strings.Repeat("b", 128)}, nil, ""},
		"257 characters": {[]string{strings.Repeat("a", 128), strings.Repeat("b", 128), "c"}, nil,
			"8 tokens (max_prompt_tokens)"},
		"threshold 0":        {[]string{"a"}, map[string]any{"threshold": 0.0}, ""},
		"threshold 1":        {[]string{"a"}, map[string]any{"threshold": 1.0}, ""},
		"threshold below":    {[]string{"a"}, map[string]any{"threshold": -1e-9}, "from 0 to 1"},
		"threshold above":    {[]string{"a"}, map[string]any{"threshold": 1.0000001}, "from 0 to 1"},
		"threshold NaN":      {[]string{"a"}, map[string]any{"threshold": math.NaN()}, "threshold"},
		"threshold infinite": {[]string{"a"}, map[string]any{"threshold": math.Inf(1)}, "threshold"},
		"threshold as text":  {[]string{"a"}, map[string]any{"threshold": "0.5"}, "threshold"},
		"threshold as truth": {[]string{"a"}, map[string]any{"threshold": true}, "threshold"},
		"flat_ner as text":   {[]string{"a"}, map[string]any{"flat_ner": "yes"}, "flat_ner"},
		"multi_label a list": {[]string{"a"}, map[string]any{"multi_label": []any{}}, "multi_label"},
		"merge as a number": {[]string{"a"}, map[string]any{"merge_adjacent_entities": 2},
			"merge_adjacent"},
		"an unknown option": {[]string{"a"}, map[string]any{"treshold": 0.5}, "treshold"},
		"another's option": {[]string{"a"}, map[string]any{"label_groups": map[string]any{}},
			"label_groups"},
		"windows by a client": {[]string{"a"}, map[string]any{"max_windows": 500}, "max_windows"},
	} {
		_, err := r.Extract(t.Context(), &ExtractRequest{Model: "none", Texts: []string{"Berlin"},
			Labels: c.labels, Options: c.options})
		e := errs.As(err)
		switch {
		case e == nil:
			t.Errorf("%s: no error", what)
		case c.want == "" && e.Info().Status == 400:
			t.Errorf("%s: %v; the model's missing files are the only fault", what, e)
		case c.want != "" && (e.Info().Status != 400 || !strings.Contains(e.Message, c.want)):
			t.Errorf("%s: %v; want a 400 with %q", what, e, c.want)
		}
	}
}

// The labels of a request take at most max_prompt_tokens, their markers and the separator included,
// and 1,024 of them unless the model's entry says otherwise.
func TestSpansPromptTokens(t *testing.T) {
	dir := golden.Open(t, "gliner-deberta-span").Dir
	entries := []*catalog.Model{spansIn(t, "usual", dir, "")}
	for n := 2; n < 40; n++ {
		entries = append(entries, spansIn(t, fmt.Sprint("at", n), dir, fmt.Sprint("max_prompt_tokens: ", n)))
	}
	r := start(t, nil, nil, entries...)
	ask := func(model string, labels []string) string {
		res, err := r.Extract(t.Context(),
			&ExtractRequest{Model: model, Texts: []string{"x"}, Labels: labels})
		if err == nil && res.Found[0].Err == nil {
			return ""
		}
		return fmt.Sprint(err)
	}
	tokens := 2
	for labels := []string{"city", "person"}; ask(fmt.Sprint("at", tokens), labels) != ""; tokens++ {
		if message := ask(fmt.Sprint("at", tokens), labels); !strings.Contains(message,
			fmt.Sprintf("at most %d (max_prompt_tokens)", tokens)) {
			t.Fatal(message)
		}
	}
	if tokens < 5 { // two labels, two markers and the separator
		t.Errorf("the prompt takes %d tokens", tokens)
	}
	var labels []string
	for i := 0; ask("usual", append(labels, fmt.Sprint("l", i))) == ""; i++ {
		labels = append(labels, fmt.Sprint("l", i))
	}
	message := ask("usual", append(labels, fmt.Sprint("l", len(labels))))
	var took, most int
	at := strings.Index(message, "params.labels take")
	if at < 0 {
		t.Fatal(message)
	}
	if _, err := fmt.Sscanf(message[at:], "params.labels take %d tokens; the labels of a request may take at most %d",
		&took, &most); err != nil || most != 1024 || took <= 1024 || took > 1024+5 {
		t.Errorf("%d labels fit; %v: %s", len(labels), err, message)
	}
}

// More spans above the threshold than there may be are an error of their item; as many as there may
// be are found, in a first run or, where it had too little room, in a second.
func TestSpansAreCut(t *testing.T) {
	r := start(t, nil, nil, spansIn(t, "many", golden.Open(t, "gliner-deberta-span").Dir, ""))
	var labels []string
	for i := range rune(240) {
		labels = append(labels, string('\u4e00'+i))
	}
	options := map[string]any{"threshold": 0.0, "flat_ner": false, "multi_label": true}
	most := strings.TrimSpace(strings.Repeat("a ", 384)) // 384·12 − 66 spans for each label
	ask := func(texts []string, labels []string) *Result {
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "many", Texts: texts, Labels: labels,
			Options: options})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := ask([]string{"Berlin", most}, labels); res.Found[0].Err != nil || res.Found[1].Err == nil ||
		!strings.Contains(res.Found[1].Err.Message, "1090080 spans of 384 words and 240 labels") {
		t.Errorf("1,090,080 spans: %v", res.Found[1].Err)
	}
	few := ask([]string{most}, labels[:3]) // 13,626 spans, which grow the room
	if again := ask([]string{most}, labels[:3]); fmt.Sprint(few.Found) != fmt.Sprint(again.Found) {
		t.Error("a text is found otherwise where there is room in the first run")
	}
	first := ask([]string{most}, labels[:60]) // 272,520 spans, for which no first run has room
	// Their room is asked for: of each text as many as run at a time.
	var held int64
	hold := func(bytes int64, _ int) error { held += bytes; return nil }
	if _, err := r.With(hold).Extract(t.Context(), &ExtractRequest{Model: "many",
		Texts: []string{most, "a", most}, Labels: labels[:60], Options: options}); err != nil ||
		held < 2*4*4*272_520 {
		t.Errorf("two results of 272,520 spans: %d bytes are held, %v", held, err)
	}
	// So is that of what waits until all texts that are read together are, 128 at most, beside what
	// their answers hold.
	wait := int64(len(first.Found[0].Entities))*160 - 64<<10 // for a text
	asked := func(texts []string, refuse error) (times int, err error) {
		_, err = r.With(func(bytes int64, _ int) error {
			if bytes != wait {
				return nil
			}
			times++
			return refuse
		}).Extract(t.Context(), &ExtractRequest{Model: "many", Texts: texts, Labels: labels[:60],
			Options: options})
		return times, err
	}
	three := []string{most, most, most}
	apart := append(append([]string{most}, slices.Repeat([]string{"a"}, 127)...), most)
	for want, texts := range map[int][]string{3: three, 1: apart} {
		if times, err := asked(texts, nil); times != want || err != nil {
			t.Errorf("room for what a text found is asked for %d times, not %d: %v", times, want, err)
		}
	}
	refused := errors.New("not now")
	if times, err := asked(three, refused); times != 1 || !errors.Is(err, refused) {
		t.Errorf("asked %d times, then %v", times, err)
	}
	if _, err := asked(three, errs.AnswerTooLarge("items", 2, 1, 0)); errs.As(err).Status != 400 ||
		errs.As(err).Param != "options.threshold" {
		t.Errorf("more than there may be: %v", err)
	}
	// No two spans that cross are kept; all of one word are, each with both labels.
	singles := 0
	for _, e := range first.Found[0].Entities {
		if e.End-e.Start == 1 {
			singles++
		}
	}
	if singles != 384*60 {
		t.Errorf("%d entities of one word in 384 words with 60 labels", singles)
	}
}

// Words that the tokenizer drops have places and no tokens. A text may have many of them in a row,
// more than tokens; its other words are found, and no batch has more words than room.
func TestSpansOfDroppedWords(t *testing.T) {
	for _, name := range []string{"gliner-deberta-span", "gliner-bert-token"} {
		dir := copyModel(t, name)
		edit(t, filepath.Join(dir, "tokenizer.json"), map[string]any{"normalizer": map[string]any{
			"type": "Replace", "pattern": map[string]any{"String": "\u00ad"}, "content": "",
		}})
		var lock sync.Mutex
		fullest := int64(0)
		r := start(t, func(o *Options) {
			o.Intercept = func(b *engine.Batch) error {
				n := int64(len(b.Words.First))
				if n > b.Program.Caps().MaxWords {
					t.Errorf("%s: a batch of %d words; %d have room", name, n, b.Program.Caps().MaxWords)
				}
				lock.Lock()
				defer lock.Unlock()
				fullest = max(fullest, n)
				return nil
			}
		}, nil, spansIn(t, "drops", dir, ""))
		ask := func(texts ...string) []task.Extracted {
			res, err := r.Extract(t.Context(), &ExtractRequest{Model: "drops", Texts: texts,
				Labels: []string{"city", "person"}, Options: map[string]any{"threshold": 0.0}})
			if err != nil {
				t.Fatal(err)
			}
			return res.Found
		}
		dropped := func(n int) string { return strings.Repeat("\u00ad ", n) }
		var texts []string
		for i := range 30 { // with 180 words each: more than a batch has room for
			texts = append(texts, dropped(175+i%2)+"Ann met Bob in Berlin")
		}
		all := ask(append(texts, dropped(1000)+"Berlin", dropped(1000), dropped(1))...)
		for i, text := range texts {
			if all[i].Err != nil || len(all[i].Entities) == 0 {
				t.Fatalf("%s: text %d: %v", name, i, all[i])
			}
			if alone := ask(text)[0]; i < 2 && fmt.Sprint(alone) != fmt.Sprint(all[i]) {
				t.Errorf("%s: text %d in company: %v; alone: %v", name, i, all[i], alone)
			}
			if last := all[i].Entities[len(all[i].Entities)-1]; last.End <= 2*175 ||
				!strings.Contains("Ann met Bob in Berlin", strings.TrimLeft(last.Text, "\u00ad ")) {
				t.Errorf("%s: text %d: the last entity is %v", name, i, last)
			}
		}
		if fullest < 2048 {
			t.Errorf("%s: the fullest batch has %d words: nothing is shown of its room", name,
				fullest)
		}
		if e := all[30].Err; e != nil {
			t.Errorf("%s: a word behind 1,000 that are dropped: %v", name, e)
		}
		for i, e := range []*errs.Error{all[31].Err, all[32].Err} {
			if place := fmt.Sprintf("items[%d]", 31+i); e == nil || !strings.Contains(e.Message, place) ||
				!strings.Contains(e.Message, "drops") {
				t.Errorf("%s: a text of dropped words alone: %v", name, e)
			}
		}
	}
}

// The longest window of a DeBERTa has 4,096 subtokens, of another encoder 8,192, and 8 for each of
// its words.
func TestSpansSubtokensOfAWindow(t *testing.T) {
	longest := func(name string, words int, text string) (tokens int) {
		dir := copyModel(t, name)
		path := filepath.Join(dir, "gliner_config.json")
		var config struct {
			Encoder map[string]any `json:"encoder_config"`
		}
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &config)
		}
		if err != nil {
			t.Fatal(err)
		}
		config.Encoder["max_position_embeddings"] = 16384
		edit(t, path, map[string]any{"max_len": words, "encoder_config": config.Encoder})
		var lock sync.Mutex
		r := start(t, func(o *Options) {
			o.Intercept = func(b *engine.Batch) error {
				lock.Lock()
				defer lock.Unlock()
				for i, from := range b.CuSeqlens[:len(b.CuSeqlens)-1] {
					tokens = max(tokens, int(b.CuSeqlens[i+1]-from))
				}
				return nil
			}
		}, nil, spansIn(t, "window", dir, ""))
		res, err := r.Extract(t.Context(), &ExtractRequest{Model: "window", Texts: []string{text},
			Labels: []string{"x"}, Options: map[string]any{"threshold": 1.0}})
		if err != nil || res.Found[0].Err != nil {
			t.Fatal(err, res)
		}
		return tokens
	}
	const beside = 16 // tokens of the prompt and the separators, at most
	for _, c := range []struct {
		name                string
		words, bound, inAll int
	}{
		{"gliner-deberta-span", 511, 8 * 511, 24}, {"gliner-deberta-span", 600, 4096, 24},
		{"gliner-modernbert-span", 64, 8 * 64, 24}, {"gliner-modernbert-span", 2048, 8192, 40},
	} {
		text := strings.Repeat(strings.Repeat("BMAN", 64)+" ", c.inAll) // 256 tokens a word
		got := longest(c.name, c.words, text)
		if got > c.bound+beside || got <= c.bound-256 {
			t.Errorf("%s with windows of %d words: one of %d tokens; the bound is %d", c.name, c.words, got,
				c.bound)
		}
	}
}

// A written marker is text: what is found lies in the text, and a text around it keeps its offsets.
func TestWrittenMarkersOfSpans(t *testing.T) {
	const name, text = "gliner-bert-span", "<<ENT>> city <<SEP>> Berlin [FLERT] <<SEP>>"
	r := start(t, nil, nil, spansEntry(t, name))
	res, err := r.Extract(t.Context(), &ExtractRequest{Model: name, Labels: []string{"city", "person"},
		Texts: []string{text}, Options: map[string]any{"threshold": 0.0, "flat_ner": false}})
	if err != nil || res.Found[0].Err != nil || len(res.Found[0].Entities) == 0 {
		t.Fatal(err, res)
	}
	for _, e := range res.Found[0].Entities {
		if text[e.Start:e.End] != e.Text {
			t.Errorf("%v", e)
		}
	}
}

// Spans of a text are the same bit for bit, whatever other texts, labels and models run beside it.
func TestSpansInCompany(t *testing.T) {
	names := []string{"gliner-bert-span", "gliner-modernbert-token", "gliner-deberta-span"}
	r := start(t, nil, nil, spansEntry(t, names[0]), spansEntry(t, names[1]), spansEntry(t, names[2]))
	const text = "Angela Merkel lived in Berlin, not in New York."
	labels := []string{"city", "person", "job title"}
	ask := func(model string, texts, labels []string) (*task.Result, error) {
		return r.Extract(t.Context(), &ExtractRequest{Model: model, Texts: texts, Labels: labels,
			Options: map[string]any{"threshold": 0.3, "flat_ner": false, "multi_label": true}})
	}
	alone := map[string]string{}
	for _, name := range names {
		res, err := ask(name, []string{text}, labels)
		if err != nil || len(res.Found[0].Entities) == 0 {
			t.Fatal(err, res)
		}
		alone[name] = fmt.Sprint(res.Found[0].Entities)
	}
	var all sync.WaitGroup
	for i := range 48 {
		name := names[i%3]
		all.Go(func() {
			if i%2 == 0 { // company
				words := strings.Repeat("Bob pays 5 in York. ", 1+i)
				if _, err := ask(name, []string{words, "x", words[:7*i+5]}, labels[:1+i%3]); err != nil {
					t.Error(err)
				}
				return
			}
			texts := []string{strings.Repeat("one ", i), text, text + " " + text}
			res, err := ask(name, texts, labels)
			if err != nil || fmt.Sprint(res.Found[1].Entities) != alone[name] {
				t.Errorf("%s: in company %v, alone %s: %v", name, res, alone[name], err)
			}
		})
	}
	all.Wait()
}
