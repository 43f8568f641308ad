package task_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// poolingText is a text of testdata/golden/st-pool-*: with a prompt by name, in words, or the
// model's default.
type poolingText struct {
	Text   string
	Name   *string `json:"prompt_name"`
	Prompt string
}

// request asks for the text as a client does. plain is the prompt of texts that name none.
func (p poolingText) request(model, plain string) *Request {
	yes := true
	r := &Request{Model: model, Texts: []string{p.Text}}
	switch {
	case p.Prompt != "":
		said := "find what answers it"
		r.IsQuery, r.Instruction = &yes, &said
		r.Options = map[string]any{"query_template": "Instruct: {instruction}\nQuery: {text}"}
	case p.Name == nil:
		r.Options = map[string]any{"doc_template": plain + "{text}"}
	case *p.Name == "query":
		r.IsQuery = &yes
	}
	return r
}

// Requests give the vectors of sentence-transformers: with prompts by name, with an instruction and
// with a template; whichever tokens a model leaves out of pooling, and all of them.
func TestPoolingsEqualTheLibrary(t *testing.T) {
	for name, plain := range map[string]string{
		"st-pool-all": "", "st-pool-behind": "", "st-pool-xlmr": "other text: ", "st-pool-weighted": "",
	} {
		t.Run(name, func(t *testing.T) {
			c := golden.Open(t, name)
			r := start(t, nil, nil, adHoc(t, "m", c.Dir))
			r.Vectors("m", "load")
			want, shape := c.Float32("vectors")
			nothing := 0 // texts of which no token is left
			for i, p := range readTexts[poolingText](t, name) {
				theirs := want[i*shape[1] : (i+1)*shape[1]]
				ours := float32s(r.Rows(p.request("m", plain)))[0]
				largest := float64(max(slices.Max(theirs), -slices.Min(theirs)))
				if d := golden.Compare(ours, theirs); d.MaxAbs > 1e-5*largest {
					t.Errorf("%+v: %v", p, d)
				}
				if largest == 0 {
					nothing++
				}
			}
			if (nothing > 0) != (name == "st-pool-weighted") {
				t.Errorf("%d texts have no token besides their prompt's", nothing)
			}
		})
	}
}

// The default prompt of the files is left out as one by name is. Token ids have no prompt, and all
// of them are pooled.
func TestPromptsThatAreLeftOut(t *testing.T) {
	dir := copyModel(t, "st-pool-xlmr")
	edit(t, filepath.Join(dir, "config_sentence_transformers.json"),
		map[string]any{"prompts": map[string]any{"other": "other text: "}})
	r := start(t, nil, nil, adHoc(t, "m", dir))
	c := golden.Open(t, "st-pool-xlmr")
	want, shape := c.Float32("vectors")
	ids, cu := c.Int32("ids"), c.Int32("cu_seqlens")
	for i, p := range readTexts[poolingText](t, "st-pool-xlmr") {
		if p.Name != nil || p.Prompt != "" || p.Text == "" {
			continue
		}
		theirs := want[i*shape[1] : (i+1)*shape[1]]
		if d := golden.Compare(r.Vectors("m", p.Text)[0], theirs); d.MaxAbs > 1e-5 {
			t.Errorf("%q with the default prompt: %v", p.Text, d)
		}
		whole := float32s(r.Rows(&Request{Model: "m", Tokens: [][]int32{ids[cu[i]:cu[i+1]]}}))[0]
		if d := golden.Compare(whole, theirs); d.MaxAbs < 1e-3 {
			t.Errorf("%q as ids leaves tokens out: %v", p.Text, d)
		}
	}
}

// The largest of no token is refused by name, for the item that has none. Of the first token alone
// sentence-transformers gives that of the prompt.
func TestNoTokenBesideThePrompt(t *testing.T) {
	yes := true
	for mode, refused := range map[string]bool{
		`"max"`: true, `["mean","cls"]`: true, `["mean","lasttoken"]`: false, `"cls"`: false, `"mean"`: false,
	} {
		dir := copyModel(t, "st-pool-weighted")
		replace(t, dir, "1_Pooling/config.json", `"weightedmean"`, mode)
		r := start(t, nil, nil, adHoc(t, "m", dir))
		r.Vectors("m", "load")
		res, err := r.Encode(t.Context(), &Request{Model: "m", Texts: []string{"a cat", ""}, IsQuery: &yes})
		if refused != (err != nil) {
			t.Errorf("%s: %v", mode, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "'items[1]' has no token besides those of its prompt") {
				t.Errorf("%s: %v", mode, err)
			}
			continue
		}
		if row := floats(res.Rows[1]); (norm(row) == 0) != (mode != `"cls"`) {
			t.Errorf("%s of no token: %v", mode, row[:4])
		}
	}
}
