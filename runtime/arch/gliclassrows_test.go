package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
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

// readChanged reads the golden model's config.json with changes, and without keys.
func readChanged(t *testing.T, changes map[string]any, without ...string) (gliclassConfig, error) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(golden.Open(t, "gliclass-modern").Dir, configFile))
	if err != nil {
		t.Fatal(err)
	}
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
	maps.Copy(all, changes)
	if b, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	return readGLiClassConfig(fstest.MapFS{configFile: {Data: b}})
}

// An absent key of config.json has the package's default, which the golden model's file writes.
func TestGLiClassDefaults(t *testing.T) {
	read := func(without ...string) gliclassConfig {
		t.Helper()
		c, err := readChanged(t, nil, without...)
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

// A marker without a number is behind the vocabulary, class, text and example in this order, as the
// package counts them: no text has such an example, and no model can read such a class.
func TestGLiClassMarkersByDefault(t *testing.T) {
	c, err := readChanged(t, nil, "example_token_index")
	if err != nil || int64(c.ExampleToken) != c.Vocab+2 {
		t.Errorf("the example is %d of %d, %v", c.ExampleToken, c.Vocab, err)
	}
	for i, key := range []string{"class_token_index", "text_token_index"} {
		_, err := readChanged(t, nil, key)
		want := fmt.Sprintf("%s: is %d; the vocabulary has the ids 0 to %d", key, c.Vocab+int64(i), c.Vocab-1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v, want %q", key, err, want)
		}
	}
}

// Layers are squeezed where none is named alone.
func TestGLiClassSqueezesAllLayersOrNone(t *testing.T) {
	for layer, want := range map[int]bool{-1: true, 0: false, 1: false} {
		c, err := readChanged(t, map[string]any{"squeeze_layers": true, "encoder_layer_id": layer})
		if err != nil || c.Squeeze != want {
			t.Errorf("encoder_layer_id %d: squeezed is %t, %v", layer, c.Squeeze, err)
		}
	}
}

// The LSTM has half of the columns in each direction.
func TestGLiClassLSTMNeedsTwoHalves(t *testing.T) {
	for size, ok := range map[int]bool{32: true, 33: false, 1: false} {
		_, err := readChanged(t, map[string]any{"use_lstm": true, "hidden_size": size,
			"encoder_config": map[string]any{"model_type": "modernbert", "hidden_size": size,
				"num_hidden_layers": 2, "vocab_size": 1000}})
		var bad *ModelError
		if (err == nil) != ok || !ok && (!errors.As(err, &bad) || bad.Field != "use_lstm") {
			t.Errorf("%d columns: %v", size, err)
		}
	}
}
