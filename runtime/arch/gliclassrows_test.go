package arch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/sie-engine/sie/internal/golden"
)

// The rows of a sequence, by hand: 9 marks a label, 8 the text, 7 an example.
func TestLabelRows(t *testing.T) {
	ids := []int32{1, 9, 2, 3, 9, 4, 8, 5, 6, 8, 1}
	example := []int32{9, 2, 8, 5, 7, 1, 8}
	for _, c := range []struct {
		what   string
		layout LabelLayout
		ids    []int32
		want   LabelRows
	}{
		{"markers", LabelLayout{}, ids, LabelRows{First: []int32{1, 4}, Last: []int32{1, 4}}},
		{"behind them", LabelLayout{After: true}, ids, LabelRows{First: []int32{2, 5}, Last: []int32{2, 5}}},
		{"means", LabelLayout{Average: true}, ids, LabelRows{First: []int32{1, 4}, Last: []int32{3, 10}}},
		{"means behind them", LabelLayout{Average: true, After: true}, ids,
			LabelRows{First: []int32{2, 5}, Last: []int32{3, 10}}},
		{"means up to the text", LabelLayout{Average: true, ToText: true}, ids,
			LabelRows{First: []int32{1, 4}, Last: []int32{3, 5}}},
		{"text before its labels", LabelLayout{Average: true, ToText: true}, []int32{8, 5, 9, 2},
			LabelRows{First: []int32{2}, Last: []int32{3}}},
		{"all rows", LabelLayout{TextRows: true}, []int32{9, 8, 5},
			LabelRows{First: []int32{0}, Last: []int32{0}, Text: []int32{0, 1, 2}}},
		{"rows from the first separator on", LabelLayout{TextRows: true, ToText: true}, ids,
			LabelRows{First: []int32{1, 4}, Last: []int32{1, 4}, Text: []int32{6, 7, 8, 9, 10}}},
		{"zeros for those before", LabelLayout{TextRows: true, ToText: true, Filled: true},
			[]int32{9, 2, 8, 5}, LabelRows{First: []int32{0}, Last: []int32{0}, Text: []int32{2, 3, -1, -1}}},
		{"no separator", LabelLayout{TextRows: true, ToText: true, Filled: true}, []int32{9, 2},
			LabelRows{First: []int32{0}, Last: []int32{0}, Text: []int32{0, 1}}},
		{"no row behind the last marker", LabelLayout{After: true}, []int32{9, 2, 9},
			LabelRows{First: []int32{1}, Last: []int32{1}}},
		{"no row between two markers", LabelLayout{After: true, Average: true}, []int32{9, 2, 9, 9, 3},
			LabelRows{First: []int32{1}, Last: []int32{1}}},
		{"nothing", LabelLayout{TextRows: true}, nil, LabelRows{}},
		{"segments", LabelLayout{Segments: true}, []int32{9, 2, 8, 5},
			LabelRows{First: []int32{0}, Last: []int32{0}, Segments: []int32{0, 0, 1, 1}}},
		// as the package finds the first of the examples: the first token that begins none
		{"segments of examples", LabelLayout{Segments: true}, example,
			LabelRows{First: []int32{0}, Last: []int32{0}, Segments: []int32{2, 2, 2, 2, 2, 2, 2}}},
	} {
		c.layout.Label, c.layout.Sep, c.layout.Example = 9, 8, 7
		got := c.layout.Rows(c.ids)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// An absent key of config.json has the package's default, which the golden model's file writes.
func TestGLiClassDefaults(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(golden.Open(t, "gliclass-modern").Dir, configFile))
	if err != nil {
		t.Fatal(err)
	}
	read := func(without ...string) gliclassConfig {
		t.Helper()
		all := map[string]any{}
		if err := json.Unmarshal(b, &all); err != nil {
			t.Fatal(err)
		}
		for _, key := range without {
			if _, ok := all[key]; !ok {
				t.Errorf("the file has no %s", key)
			}
			delete(all, key)
		}
		changed, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		c, err := readGLiClassConfig(fstest.MapFS{configFile: {Data: changed}})
		if err != nil {
			t.Fatalf("without %v: %v", without, err)
		}
		c.Encoder = nil
		return c
	}
	keys := []string{"architecture_type", "hidden_size", "pooling_strategy", "class_token_pooling",
		"embed_class_token", "extract_text_features", "normalize_features", "use_lstm", "squeeze_layers",
		"encoder_layer_id", "use_segment_embeddings", "scorer_type", "scorer_num_heads",
		"scorer_mlp_hidden_size", "projector_hidden_act", "max_labels_alloc", "use_calibrator"}
	whole := read()
	for _, key := range keys {
		if got := read(key); !reflect.DeepEqual(got, whole) {
			t.Errorf("without %s: %+v, want %+v", key, got, whole)
		}
	}
	if got := read(keys...); !reflect.DeepEqual(got, whole) {
		t.Errorf("without any: %+v, want %+v", got, whole)
	}
}
