package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/service/servicetest"
	"github.com/sie-engine/sie/weights/hub/hubtest"
)

// A model without a tokenizer takes that of the repository that hf_tokenizer_dependencies pins; of
// that repository only the tokenizer is downloaded, and a later server finds both on the disk.
func TestTokenizerOfAnotherRepository(t *testing.T) {
	server := hubtest.New(t)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_OFFLINE", "0")
	whole := published(t, "st-mean")
	bare := maps.Clone(whole)
	maps.DeleteFunc(bare, func(name string, _ []byte) bool { return strings.Contains(name, "token") })
	server.Add("acme/whole", whole)
	server.Add("acme/bare", bare)
	lender := server.Add("acme/lender", whole)
	coded := maps.Clone(whole)
	coded["tokenizer_config.json"] = []byte(`{"auto_map": {"AutoTokenizer": ["tok_x.X", null]}}`)
	strange := server.Add("acme/coded", coded)
	dir, cache := t.TempDir(), t.TempDir()
	for _, m := range []struct{ id, more string }{
		{"whole", ""}, {"bare", "hf_tokenizer_dependencies: {acme/lender: " + lender.Commit + "}\n"},
		{"lost", "hf_tokenizer_dependencies: {acme/none: " + strings.Repeat("a", 40) + "}\n"},
		{"strange", "hf_tokenizer_dependencies: {acme/coded: " + strange.Commit + "}\n"},
		{"own", "hf_tokenizer_dependencies: {acme/none: " + strings.Repeat("a", 40) + "}\n"},
	} {
		repo := strings.NewReplacer("lost", "bare", "strange", "bare", "own", "whole").Replace(m.id)
		yaml := fmt.Sprintf(`sie_id: acme/%s
hf_id: acme/%s
%stasks: {encode: {dense: {dim: 32}}}
max_sequence_length: 40
profiles:
  default: {adapter_path: "sie_server.adapters.sentence_transformer:X", max_batch_tokens: 4096}
`, m.id, repo, m.more)
		if err := os.WriteFile(filepath.Join(dir, m.id+".yaml"), []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		src := &sourceFlags{ModelsDir: dir, LocalCache: cache, HFFallback: round == 0}
		cat, err := src.catalog()
		if err != nil {
			t.Fatal(err)
		}
		service := openWorker(t, src, cat)
		w := servicetest.Of(service)
		if !slices.Equal(vectorOf(t, w, "acme/bare", nil), vectorOf(t, w, "acme/whole", nil)) {
			t.Error("with the tokenizer of another repository the vector is another one")
		}
		// it has its own tokenizer, and needs no other
		if !slices.Equal(vectorOf(t, w, "acme/own", nil), vectorOf(t, w, "acme/whole", nil)) {
			t.Error("a model with a tokenizer takes another one")
		}
		_, err = w.Encode(t.Context(), &servicetest.Request{Model: "acme/lost", Texts: []string{"a"}})
		if e := errs.As(err); e == nil || e.Status != 502 || !strings.Contains(e.Message, "acme/none") {
			t.Errorf("a tokenizer that is nowhere: %v", err)
		}
		_, err = w.Encode(t.Context(), &servicetest.Request{Model: "acme/strange", Texts: []string{"a"}})
		if e := errs.As(err); e == nil || e.Status != 502 || !strings.Contains(e.Message, "tok_x.py: X") {
			t.Errorf("a tokenizer of another repository's code: %v", err)
		}
		service.Close()
		asked := server.Requests()
		if round == 1 && len(asked) > 0 {
			t.Errorf("the second server asked for %v", asked)
		}
		for _, q := range asked {
			if strings.HasPrefix(q.Path, "/acme/lender/") && strings.Contains(q.Path, "safetensors") {
				t.Errorf("asked for %s", q.Path)
			}
		}
	}
}
