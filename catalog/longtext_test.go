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
	got := m.WithWeights("/x").Document()
	maps.DeleteFunc(got, func(key string, _ any) bool { return key == "weights_path" })
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
