package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/docform"
)

// A text may be as long as the longest template, in YAML and in JSON, although a line may not: what
// Text and docform.OfJSON write of it reads back as it was, wherever its lines are broken.
func TestLongTextsReadBack(t *testing.T) {
	for _, piece := range []string{"word ", " ", "--- ", "% ", "\\", "\"", "é", "😀 ", "\n", "\t", "\u0080",
		"\u2028", "a\\u0041", "{text} '", "x", "# "} {
		text := strings.Repeat(piece, maxTemplateBytes/len(piece))
		for shift := range 8 { // what is broken is another byte of the piece
			want := map[string]any{"sie_id": "org/a",
				"x": map[string]any{"y": []any{strings.Repeat("-", shift) + text}}}
			asJSON, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			for name, src := range map[string][]byte{
				"Text": Text(want), "OfJSON": docform.OfJSON(asJSON, ""),
			} {
				got, err := Document{Name: name, Source: src}.Content()
				if len(src) > maxFileBytes {
					continue // a text of escapes alone; other pieces have them, too
				}
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s of %q, shifted by %d: %v", name, piece, shift, err)
				}
			}
		}
	}
}

// A model whose file has a long text on many lines is the same model after its document was written
// again, as for weights in another place.
func TestALongTemplateIsWrittenAgain(t *testing.T) {
	line := "    " + strings.Repeat("Given a web search query, retrieve passages. ", 4) + "\n"
	src := fmt.Sprintf(`sie_id: org/a
hf_id: org/a
inputs: {text: true}
tasks: {encode: {dense: {dim: 8}}}
profiles:
  default:
    adapter_path: sie_server.adapters.bert_flash:A
    max_batch_tokens: 8
    adapter_options:
      runtime:
        query_template: |
%s          {text}
`, strings.Repeat("      "+line, 80))
	m, _, err := ParseModel("a.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	want := m.Document()
	moved, err := m.WithWeights("/x")
	if err != nil {
		t.Fatal(err)
	}
	got := moved.Document()
	maps.DeleteFunc(got, func(key string, _ any) bool { return key == "weights_path" })
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// A file whose texts have more bytes once they are escaped is refused where it is written anew
// beyond the bound, and never a model whose document cannot be read.
func TestWeightsOfALongFile(t *testing.T) {
	refused := 0
	for quotes := 10; quotes <= 250; quotes += 60 {
		src := "sie_id: org/a\nhf_id: org/a\ninputs: {text: true}\ntasks: {encode: {dense: {dim: 8}}}\nprofiles:\n"
		for i := range 60 {
			name := "default"
			if i > 0 {
				name = fmt.Sprintf("p%d", i)
			}
			src += fmt.Sprintf("  %s:\n    adapter_path: sie_server.adapters.bert_flash:A\n    max_batch_tokens: 8\n"+
				"    adapter_options: {runtime: {query_template: '%s {text}', doc_template: '%s {text}'}}\n",
				name, strings.Repeat(`"`, quotes), strings.Repeat(`"`, quotes))
		}
		m, _, err := ParseModel("a.yaml", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		moved, err := m.WithWeights("/x")
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), "the limit is 65536") {
				t.Error(err)
			}
			continue
		}
		if got := moved.Document()["weights_path"]; got != "/x" {
			t.Errorf("%d quotes: %v", quotes, got)
		}
	}
	if refused == 0 || refused == 5 {
		t.Errorf("%d of 5 files were refused", refused)
	}
}
