package task_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// The option task or the name of its prompt chooses an adapter inside the checkpoint and its
// instruction, for requests that run together. A task that a model does not have is refused by
// name.
func TestTaskOfARequest(t *testing.T) {
	c := golden.Open(t, "tasks-jxlmr")
	r := start(t, nil, nil, adHoc(t, "test/v3", c.Dir), adHoc(t, "test/plain", golden.Open(t, "st-mean").Dir))
	texts := []string{"the cat sat on the mat", "a"}
	encode := func(id, task string) (*Result, error) {
		q := &Request{Model: id, Texts: texts}
		if task != "" {
			q.Options = map[string]any{"task": task}
		}
		return r.Encode(t.Context(), q)
	}
	want, shape := c.Float32("vectors")
	plain, err := encode("test/v3", "")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i, task := range []string{
		"retrieval.query", "retrieval.passage", "separation", "classification", "text-matching",
	} {
		all.Go(func() {
			byPrompt, err := r.Encode(t.Context(), &Request{Model: "test/v3", Texts: texts,
				Options: map[string]any{"prompt_name": task}})
			if err != nil {
				t.Error(err)
				return
			}
			res, err := encode("test/v3", task)
			if err != nil {
				t.Error(err)
				return
			}
			for j, row := range res.Rows {
				if !slices.Equal(row, byPrompt.Rows[j]) {
					t.Errorf("%s, %q: its prompt's name gives another vector", task, texts[j])
				}
				at := (2*i + j) * shape[1]
				if d := golden.Compare(floats(row), want[at:at+shape[1]]); d.MaxAbs > 1e-5 {
					t.Errorf("%s, %q: %v", task, texts[j], d)
				}
				if d := golden.Compare(floats(row), floats(plain.Rows[j])); d.MaxAbs < 1e-3 {
					t.Errorf("%s, %q: the vector is that of no task", task, texts[j])
				}
			}
		})
	}
	all.Wait()
	for what, c := range map[string]struct{ model, task, says string }{
		"another task":      {"test/v3", "sorting", "must be one of classification, retrieval.passage"},
		"a model without":   {"test/plain", "separation", "model 'test/plain' has no use for it"},
		"not even a string": {"test/v3", "", ""},
	} {
		if c.says == "" {
			_, err = r.Encode(t.Context(),
				&Request{Model: c.model, Texts: texts, Options: map[string]any{"task": 3}})
			c.says = "options.task"
		} else {
			_, err = encode(c.model, c.task)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for says, options := range map[string]map[string]any{
		"Field 'options.prompt_name' must be one of classification, retrieval.passage": {"prompt_name": "query"},
		"Field 'options.prompt_name' is \"separation\", and 'options.task' is \"classification\"": {
			"prompt_name": "separation", "task": "classification"},
		"Field 'options.prompt_name' chooses an adapter": {"prompt_name": "separation", "lora_id": "acme/a"},
		"Field 'options.prompt_name'":                    {"prompt_name": 3},
	} {
		_, err := r.Encode(t.Context(), &Request{Model: "test/v3", Texts: texts, Options: options})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", options, err)
		}
	}
	_, err = r.Encode(t.Context(),
		&Request{Model: "test/plain", Texts: texts, Options: map[string]any{"prompt_name": "separation"}})
	if err == nil || !strings.Contains(err.Error(), "'options.prompt_name': model 'test/plain' has no use") {
		t.Errorf("a model without tasks: %v", err)
	}
}
