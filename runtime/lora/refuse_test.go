package lora

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// The base of these tests has q [2, 3] and v [4, 3] in two layers, and a head.
var tinyBase = Base{
	Linears: map[string]Shape{
		"layer.0.q": {2, 3}, "layer.0.v": {4, 3}, "layer.1.q": {2, 3}, "layer.1.v": {4, 3}, "head": {5, 3},
	},
	Unused: []string{"pooler"},
	Fixed:  map[string]string{"decoder": "it is in use"},
}

// adapterFiles holds the files of an adapter. tinyAdapter returns a valid one: rank 1 for q of both
// layers.
type adapterFiles struct {
	config  map[string]any
	tensors map[string]weightstest.Tensor
}

func tinyAdapter() adapterFiles {
	f := adapterFiles{map[string]any{
		"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": []string{"q"}, "bias": "none",
	}, map[string]weightstest.Tensor{}}
	f.module("base_model.model.layer.0.q", 1, 2, 3)
	f.module("base_model.model.layer.1.q", 1, 2, 3)
	return f
}

func (f adapterFiles) set(name string, shape ...int64) {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	f.tensors[name] = weightstest.Float32(name, shape, slices.Repeat([]float32{0.5}, int(n))...)
}

func (f adapterFiles) module(name string, rank, n, k int64) {
	f.set(name+".lora_A.weight", rank, k)
	f.set(name+".lora_B.weight", n, rank)
}

func (f adapterFiles) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	config, err := json.Marshal(f.config)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		configFile:     config,
		tensorFiles[0]: weightstest.Encode(nil, slices.Collect(maps.Values(f.tensors))...),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A key or tensor that makes PEFT compute something else, or that PEFT ignores, is refused by name.
func TestRefusals(t *testing.T) {
	const q0, q1 = "base_model.model.layer.0.q", "base_model.model.layer.1.q"
	set := func(key string, value any) func(adapterFiles) {
		return func(f adapterFiles) { f.config[key] = value }
	}
	type list = []any
	type object = map[string]any
	for _, c := range []struct {
		change func(adapterFiles)
		want   string
	}{
		{func(adapterFiles) {}, ""},
		{set("peft_type", "IA3"), `adapter_config.json: peft_type: is "IA3"; only "LORA"`},
		{func(f adapterFiles) { delete(f.config, "peft_type") }, "peft_type: is missing"},
		{set("bias", "all"), `bias: is "all"`},
		{set("bias", "lora_only"), `bias: is "lora_only"`},
		{set("bias", nil), ""},
		{set("use_dora", true), "use_dora: is true: DoRA"},
		{set("use_qalora", true), "use_qalora: is true: QALoRA"},
		{set("use_bdlora", object{"a": 1}), "use_bdlora"},
		{set("use_dora", false), ""},
		{set("use_something_new", true), "use_something_new: is true: this variant of LoRA is not known"},
		{set("lora_bias", true), "lora_bias"},
		{set("modules_to_save", list{"classifier"}),
			`modules_to_save: is ["classifier"]: the adapter replaces whole modules`},
		{set("modules_to_save", list{}), ""},
		{set("layer_replication", list{list{0, 1}}), "layer_replication"},
		{set("trainable_token_indices", list{1}), "trainable_token_indices"},
		{set("target_parameters", list{"w"}), "target_parameters"},
		{set("alora_invocation_tokens", list{1}), "alora_invocation_tokens"},
		{set("arrow_config", object{"a": 1}), "arrow_config"},
		{set("kasa_config", object{"a": 1}), "kasa_config"},
		{set("monteclora_config", object{"a": 1}), "monteclora_config"},
		{set("init_lora_weights", "pissa"),
			`init_lora_weights: is "pissa", which changes the base's weights`},
		{set("init_lora_weights", "gaussian"), ""},
		{set("init_lora_weights", true), ""},
		{set("qalora_group_size", 16), ""},
		{set("fan_in_fan_out", true), ""},
		{set("r", 0), "r: is 0; a whole number from 1 to 512"},
		{set("r", 513), "r: is 513"},
		{set("r", "8"), `r: is "8", of the wrong type`},
		{set("r", nil), "rank 8 of the configuration"},
		{set("lora_alpha", "8"), "lora_alpha"},
		{set("lora_alpha", 1.5), ""},
		{set("use_rslora", "yes"), "use_rslora"},
		{set("rank_pattern", object{"q": 0}), "rank_pattern.q: is 0"},
		{set("rank_pattern", object{"q": 1.5}), "rank_pattern.q: is 1.5"},
		{set("rank_pattern", object{"q": 2}), "rank 2 of the configuration"},
		{set("rank_pattern", object{"ayer.0.q": 2}), ""}, // the end of a name must begin after a dot
		{set("rank_pattern", list{1}), "rank_pattern: is [1]; an object"},
		{set("alpha_pattern", object{"q": "2"}), "alpha_pattern"},
		{set("alpha_pattern", object{"(": 2}),
			"alpha_pattern.(: has a regular expression that is not supported"},
		{set("target_modules", "layer.*(?<!v)"), "target_modules: has a regular expression"},
		{set("target_modules", "layer.*"), ""},
		// an expression must match the whole name
		{set("target_modules", "layer"), q0 + ".lora_A.weight: is there, but target_modules"},
		{set("target_modules", ".*q"), ""},
		{set("target_modules", "all-linear"), ""},
		{set("target_modules", nil), ""},
		{set("target_modules", 4), "target_modules: is 4"},
		{set("target_modules", list{"v"}), "is there, but target_modules"},
		{set("exclude_modules", list{"layer.1.q"}), q1 + ".lora_A.weight: is there, but"},
		{set("exclude_modules", `layer\.1.*`), q1 + ".lora_A.weight: is there, but"},
		// "layer.0." has no layer number, "x.layer.0." has one
		{set("layers_to_transform", list{0}), q0 + ".lora_A.weight: is there, but"},
		{set("layers_to_transform", "0"), `layers_to_transform: is "0"`},
		{set("layers_pattern", 3), "layers_pattern: is 3"},
		{set("layers_pattern", list{"("}), "layers_pattern: has a regular expression"},

		{func(f adapterFiles) { delete(f.tensors, q1+".lora_B.weight") },
			"layer.1.q: has only one of lora_A.weight and lora_B.weight"},
		{func(f adapterFiles) { f.set(q0+".lora_A.weight", 2, 3) }, q0 +
			".lora_A.weight: has shape [2 3]; rank 1 of the configuration and the base's layer.0.q, of 2 outputs and 3 inputs, ask for [1 3]"},
		{func(f adapterFiles) { f.set(q0+".lora_A.weight", 1, 4) }, "has shape [1 4]"},
		{func(f adapterFiles) { f.set(q0+".lora_B.weight", 4, 1) }, q0 + ".lora_B.weight: has shape [4 1]"},
		{func(f adapterFiles) { f.set(q0+".lora_B.weight", 2) }, "has shape [2]"},
		{func(f adapterFiles) { f.set(q0+".lora_embedding_A", 1, 3) },
			q0 + ".lora_embedding_A: is an adapter of an embedding table"},
		{func(f adapterFiles) { f.set(q0+".lora_magnitude_vector.weight", 2) }, "is a part of DoRA"},
		{func(f adapterFiles) { f.set(q0+".lora_B.bias", 2) }, "is a bias on B"},
		{func(f adapterFiles) { f.set("base_model.model.head.weight", 5, 3) },
			"head.weight: is not lora_A.weight or lora_B.weight"},
		{func(f adapterFiles) { f.module("base_model.model.layer.2.q", 1, 2, 3) },
			"layer.2.q: the base has no such linear; it has 2 whose names end in \"q\", from layer.0.q to layer.1.q: was the adapter made for a larger model?"},
		{func(f adapterFiles) { f.config["target_modules"] = nil; f.module("head.out.q_proj", 1, 2, 3) },
			`the base has no linear whose name ends in "q_proj": the adapter is for another architecture`},
		{func(f adapterFiles) {
			f.config["target_modules"] = nil
			f.module("my.lm.headless.head_.x.head", 1, 5, 3)
		}, ""},
		{func(f adapterFiles) { f.config["target_modules"] = nil; f.module("heads.0", 1, 5, 3) },
			`no linear whose name ends in "0"`},
		{func(f adapterFiles) { f.module("encoder.layer.0.q", 1, 2, 3) },
			"encoder.layer.0.q: and layer.0.q are both the base's layer.0.q"},
		{func(f adapterFiles) {
			delete(f.tensors, q1+".lora_A.weight")
			delete(f.tensors, q1+".lora_B.weight")
		},
			"layer.1.q: is missing, though layer.0.q is there and target_modules names both: was the adapter made for a smaller model?"},
		{func(f adapterFiles) {
			clear(f.tensors)
			f.config["target_modules"] = `bert\.layer\.\d\.q`
			f.module("base_model.model.bert.layer.1.q", 1, 2, 3)
		}, "bert.layer.0.q: is missing, though bert.layer.1.q is there"},
		{func(f adapterFiles) { clear(f.tensors) }, "has no tensor for a linear"},
		{func(f adapterFiles) {
			clear(f.tensors)
			f.config["target_modules"] = list{"pooler"}
			f.module("base_model.model.pooler", 1, 3, 3)
		}, "has no tensor for a linear that the base computes with"},
		{func(f adapterFiles) {
			f.config["target_modules"] = list{"q", "decoder"}
			f.module("base_model.model.cls.decoder", 1, 3, 3)
		}, "cls.decoder: cannot be adapted: it is in use"},
		{func(f adapterFiles) {
			f.tensors["a"] = weightstest.Float32(q0+".lora_A.weight", []int64{1, 3}, 1,
				float32(math.NaN()), 2)
			delete(f.tensors, q0+".lora_A.weight")
		}, q0 + ".lora_A.weight: has NaN at 1"},
		{set("lora_alpha", 1e39), q0 + ".lora_B.weight: has 0.5 at 0, times the scale 1e+39"},
		{func(f adapterFiles) {
			f.tensors[q0+".lora_A.weight"] = weightstest.Tensor{
				Name: q0 + ".lora_A.weight", DType: weights.I32, Shape: []int64{1, 3}, Data: make([]byte, 12),
			}
		}, q0 + ".lora_A.weight: has dtype I32"},
	} {
		f := tinyAdapter()
		c.change(f)
		a, err := Read(f.write(t), tinyBase)
		var refused *Error
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", f.config, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: %v, want %q", f.config, err, c.want)
		case c.want != "" && (a != nil || !errors.As(err, &refused)):
			t.Errorf("%v: %T with an adapter %v", f.config, err, a)
		}
	}
}

// Names match as in PEFT: a layer's number is the first one after a dot and a name, and a linear
// may be adapted in some layers only.
func TestLayers(t *testing.T) {
	for _, c := range []struct {
		layers, pattern any
		module          string
		want            bool
	}{
		{[]int{1}, nil, "encoder.layer.1.q", true},
		{[]int{1}, nil, "encoder.layer.0.q", false},
		{1, nil, "encoder.layer.1.q", true},
		{0, nil, "encoder.layer.1.experts.0.q", false},
		{[]int{}, nil, "encoder.layer.7.q", true},
		{[]int{0}, nil, "layer.0.q", false}, // nothing before the name
		{[]int{0}, "layer", "layer.0.q", true},
		{[]int{0}, []string{"h", "layer"}, "encoder.layer.0.q", true},
		{[]int{0}, []string{"h"}, "encoder.layer.0.q", false},
		{[]int{0}, nil, "q", true}, // named as a whole
		{[]int{3}, nil, "encoder.layer.99999999999999999999.q", false},
	} {
		f := tinyAdapter()
		f.config["layers_to_transform"], f.config["layers_pattern"] = c.layers, c.pattern
		config, err := readConfig(f.write(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := config.targets.has(c.module); got != c.want {
			t.Errorf("%v, %v, %s: %t", c.layers, c.pattern, c.module, got)
		}
	}
	// An adapter of one layer of two is whole if its configuration names only that layer.
	f := tinyAdapter()
	f.config["layers_to_transform"], f.config["layers_pattern"] = 0, "layer"
	delete(f.tensors, "base_model.model.layer.1.q.lora_A.weight")
	delete(f.tensors, "base_model.model.layer.1.q.lora_B.weight")
	if a, err := Read(f.write(t), tinyBase); err != nil || len(a.Pairs) != 1 ||
		a.Pairs["layer.0.q"].B[0] != 1 {
		t.Errorf("one layer: %v, %v", a, err)
	}
}

func TestFilesThatAreNotThere(t *testing.T) {
	f := tinyAdapter()
	dir := f.write(t)
	for _, c := range [][2]string{
		{tensorFiles[0], "adapter_model.safetensors: is missing, and so is adapter_model.bin"},
		{configFile, "adapter_config.json: is missing: this is no directory of a PEFT adapter"},
	} {
		if err := os.Remove(filepath.Join(dir, c[0])); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir, tinyBase); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("without %s: %v", c[0], err)
		}
	}
	for text, want := range map[string]string{
		"[]":                          "is not a JSON object",
		"{":                           "is not a JSON object",
		strings.Repeat(" ", 1<<20+1):  "adapter_config.json: is larger than 1048576 bytes",
		`{"peft_type":"LORA","r":{}}`: "r: is {}",
	} {
		dir := f.write(t)
		if err := os.WriteFile(filepath.Join(dir, configFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir, tinyBase); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	dir = f.write(t)
	if err := os.WriteFile(filepath.Join(dir, tensorFiles[0]), []byte("no tensors"), 0o600); err != nil {
		t.Fatal(err)
	}
	var format *weights.FormatError
	if _, err := Read(dir, tinyBase); !errors.As(err, &format) {
		t.Errorf("a broken file: %v", err)
	}
}

// Too many patterns and too large an adapter are refused at their bounds.
func TestBounds(t *testing.T) {
	f := tinyAdapter()
	many := map[string]any{}
	for i := range maxPatterns + 1 {
		many[fmt.Sprint("m", i)] = 1
	}
	f.config["rank_pattern"] = many
	if _, err := Read(f.write(t), tinyBase); err == nil ||
		!strings.Contains(err.Error(), "rank_pattern: has more than 4096 entries") {
		t.Errorf("too many patterns: %v", err)
	}
	f = tinyAdapter()
	r := &reader{config: &config{rank: 1, alpha: 1}, base: tinyBase, file: "f"}
	c, err := weights.OpenFile(filepath.Join(f.write(t), tensorFiles[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := &module{full: "layer.0.q", linear: "layer.0.q"}
	m.a, _ = c.Tensor("base_model.model.layer.0.q.lora_A.weight")
	m.b, _ = c.Tensor("base_model.model.layer.0.q.lora_B.weight")
	if _, err := r.pair(m, 20); err != nil {
		t.Errorf("an adapter that fits: %v", err)
	}
	if _, err := r.pair(m, 19); err == nil ||
		!strings.Contains(err.Error(), "takes more than 1073741824 bytes") {
		t.Errorf("an adapter that is too large: %v", err)
	}
}

// No configuration makes the reader panic or accept a rank beyond its limit.
func FuzzConfig(f *testing.F) {
	for _, c := range []string{"rank4", "rank13", "rslora", "patterns", "layer1"} {
		data, err := os.ReadFile(filepath.Join("../../testdata/golden/lora-bert/adapters", c, configFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "encoder.layer.1.attention.self.key")
	}
	f.Fuzz(func(t *testing.T, data []byte, module string) {
		c, err := parseConfig(data)
		if err != nil {
			return
		}
		c.targets.has(module)
		if rank, _ := c.of(module); rank < 1 || rank > MaxRank {
			t.Errorf("rank %d", rank)
		}
	})
}
