package lora

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
)

// encoder returns the linears of the golden models: C = 64, F = 100, two layers.
func encoder(layers int) map[string]Shape {
	out := map[string]Shape{}
	for i := range layers {
		at := fmt.Sprintf("encoder.layer.%d.", i)
		for _, name := range []string{
			"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
		} {
			out[at+name] = Shape{64, 64}
		}
		out[at+"intermediate.dense"] = Shape{100, 64}
		out[at+"output.dense"] = Shape{64, 100}
	}
	return out
}

// The adapters that PEFT wrote change the linears that PEFT changes, by the same amounts.
func TestGolden(t *testing.T) {
	for name, unused := range map[string][]string{
		"lora-bert": {"pooler.dense"}, "lora-xlm-roberta": {"classifier.dense", "classifier.out_proj"},
	} {
		c := golden.Open(t, name)
		data, _ := json.Marshal(c.Notes["adapters"])
		var adapters map[string][]string
		if err := json.Unmarshal(data, &adapters); err != nil || len(adapters) < 2 {
			t.Fatalf("%s: %v, %d adapters", name, err, len(adapters))
		}
		for adapter, linears := range adapters {
			a, err := Read(filepath.Join(c.Dir, "adapters", adapter),
				Base{Linears: encoder(2), Unused: unused})
			if err != nil {
				t.Errorf("%s, %s: %v", name, adapter, err)
				continue
			}
			linears = slices.DeleteFunc(linears, func(l string) bool { return slices.Contains(unused, l) })
			if got := slices.Sorted(maps.Keys(a.Pairs)); !slices.Equal(got, linears) {
				t.Errorf("%s, %s: linears %v, PEFT has %v", name, adapter, got, linears)
			}
			var bytes int64
			var rank int
			for linear, p := range a.Pairs {
				want, _ := c.Float32(adapter + ".delta." + linear)
				if d := golden.Compare(apply(p, probe(p.K)), want); d.MaxAbs > 1e-6 || d.MaxRel > 1e-4 {
					t.Errorf("%s, %s, %s: %v", name, adapter, linear, d)
				}
				if p.Shape != encoder(2)[linear] || len(p.A) != p.Rank*p.K || len(p.B) != p.N*p.Rank {
					t.Errorf("%s, %s, %s: %v of rank %d with %d and %d numbers",
						name, adapter, linear, p.Shape, p.Rank, len(p.A), len(p.B))
				}
				bytes += int64(4 * (len(p.A) + len(p.B)))
				rank = max(rank, p.Rank)
			}
			if a.Bytes != bytes || a.Rank != rank || a.BaseModel != "tiny" {
				t.Errorf("%s, %s: %d bytes, rank %d, base %q; want %d, %d, tiny",
					name, adapter, a.Bytes, a.Rank, a.BaseModel, bytes, rank)
			}
		}
	}
}

func probe(k int) []float64 {
	out := make([]float64, k)
	for i := range out {
		out[i] = float64(i%7-3) / 4
	}
	return out
}

// apply returns B·(A·x).
func apply(p Pair, x []float64) []float32 {
	inner := make([]float64, p.Rank)
	for r := range inner {
		for k, v := range x {
			inner[r] += float64(p.A[r*p.K+k]) * v
		}
	}
	out := make([]float32, p.N)
	for n := range out {
		var s float64
		for r, v := range inner {
			s += float64(p.B[n*p.Rank+r]) * v
		}
		out[n] = float32(s)
	}
	return out
}

// A fused linear's pair gives the stacked results of the pairs of its parts.
func TestFused(t *testing.T) {
	c := golden.Open(t, "lora-bert")
	read := func(adapter string) *Adapter {
		a, err := Read(filepath.Join(c.Dir, "adapters", adapter),
			Base{Linears: encoder(2), Unused: []string{"pooler.dense"}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	const at = "encoder.layer.1.attention.self."
	parts := []string{at + "query", at + "key", at + "value"}
	for adapter, rank := range map[string]int{"rank13": 39, "rank4": 8, "patterns": 3, "layer1": 2} {
		a := read(adapter)
		p, ok := a.Fused(parts...)
		if !ok || p.Rank != rank || p.Shape != (Shape{192, 64}) {
			t.Fatalf("%s: %t, rank %d, %v; want rank %d", adapter, ok, p.Rank, p.Shape, rank)
		}
		var want []float32
		for _, name := range parts {
			if one, ok := a.Pairs[name]; ok {
				want = append(want, apply(one, probe(64))...)
			} else {
				want = append(want, make([]float32, 64)...)
			}
		}
		if d := golden.Compare(apply(p, probe(64)), want); d.MaxAbs > 1e-7 {
			t.Errorf("%s: %v", adapter, d)
		}
	}
	a := read("layer1")
	if _, ok := a.Fused("encoder.layer.0.attention.self.query", "encoder.layer.0.attention.self.key"); ok {
		t.Error("a fused linear without any part has a pair")
	}
	one, ok := a.Fused(at + "value")
	if !ok || &one.A[0] != &a.Pairs[at+"value"].A[0] {
		t.Error("a linear that is not fused has another pair")
	}
	for _, wrong := range [][]string{{"pooler.dense"}, {at + "query", "encoder.layer.1.output.dense"}} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "cannot be fused") {
					t.Errorf("%v: %s", wrong, text)
				}
			}()
			a.Fused(wrong...)
		}()
	}
}

// The scale is alpha over the rank, or over its root.
func TestScale(t *testing.T) {
	for _, c := range []struct {
		config config
		want   float64
	}{
		{config{rank: 4, alpha: 8}, 2},
		{config{rank: 16, alpha: 8, rslora: true}, 2},
		{config{rank: 8, alpha: -4}, -0.5},
	} {
		if _, got := c.config.of("m"); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%+v: %v", c.config, got)
		}
	}
}
