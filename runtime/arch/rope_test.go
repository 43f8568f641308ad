package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/cmplx"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sie-engine/sie/internal/golden"
)

// The angles are those of transformers. They are within 5e-7 of its float32, whose own rounding is
// up to half of that.
func TestRopeAngles(t *testing.T) {
	c := golden.Open(t, "rope")
	data, err := os.ReadFile(filepath.Join(c.Dir, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Config       json.RawMessage
		HeadDim      int64 `json:"head_dim"`
		Length       int64
		Theta, Scale float64
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 40 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	worst := 0.0
	for i, one := range cases {
		want, _ := c.Float32(fmt.Sprintf("angles_%d", i))
		r, err := readRope(fstest.MapFS{configFile: {Data: one.Config}}, one.Theta)
		if err != nil {
			t.Errorf("case %d, %s: %v", i, one.Config, err)
			continue
		}
		got, scale := r.frequencies(one.HeadDim, one.Length)
		if len(got) != len(want) || math.Abs(scale-one.Scale) > 1e-12 {
			t.Errorf("case %d, %s: %d pairs and scale %v; expected %d and %v",
				i, one.Config, len(got), scale, len(want), one.Scale)
			continue
		}
		for j, angle := range got {
			off := math.Abs(angle-float64(want[j])) / float64(want[j])
			if worst = max(worst, off); off > 5e-7 {
				t.Errorf("case %d, %s: pair %d turns by %v; expected %v", i, one.Config, j, angle, want[j])
				break
			}
		}
	}
	t.Logf("%d cases, worst %.2g of the angle", len(cases), worst)
}

// A row of the tables is the rotation by one position, as often as the row's number says.
func TestRopeTables(t *testing.T) {
	r := newRope(10000, 64)
	r.kind, r.factor, r.attention = "yarn", 4, 0.5
	const positions, pairs = 300, 16
	cos, sin := r.tables(2*pairs, positions)
	angles, _ := r.frequencies(2*pairs, positions)
	if len(cos) != positions*pairs || len(sin) != len(cos) {
		t.Fatalf("%d and %d entries; expected %d", len(cos), len(sin), positions*pairs)
	}
	for i, angle := range angles {
		turned, step := complex(0.5, 0), cmplx.Rect(1, angle)
		for position := range positions {
			at := position*pairs + i
			if d := cmplx.Abs(complex(float64(cos[at]), float64(sin[at])) - turned); d > 6e-8 {
				t.Fatalf("position %d, pair %d: (%v, %v), expected %v", position, i, cos[at], sin[at], turned)
			}
			turned *= step
		}
	}
}

// A row of turns is the angles of one length: as often as a position's number says, without whole
// turns, they are the rotation by it.
func TestRopeTurns(t *testing.T) {
	r := newRope(1000, 2048)
	r.kind, r.factor = "dynamic", 2
	const pairs = 32
	turns := r.turns(2*pairs, 2048, 8192)
	if len(turns) != (8192-2048)*2*pairs {
		t.Fatalf("%d entries", len(turns))
	}
	for _, length := range []int64{2049, 2050, 3000, 8192} {
		row := turns[(length-2049)*2*pairs:][:2*pairs]
		base := 1000 * math.Pow(2*float64(length)/2048-1, 64.0/62)
		for i := range pairs {
			turn := uint64(uint32(row[i]))<<32 | uint64(uint32(row[pairs+i]))
			for _, position := range []int64{0, 1, 2047, length - 1} {
				got := 2 * math.Pi * math.Ldexp(float64(uint64(position)*turn), -64)
				want := float64(position) * math.Pow(base, -float64(i)/pairs)
				if d := cmplx.Abs(cmplx.Rect(1, got) - cmplx.Rect(1, want)); d > 1e-11 {
					t.Errorf("length %d, pair %d, position %d: off by %g", length, i, position, d)
				}
			}
		}
	}
}

// The packer refuses heads that the embeddings do not fit, and lengths that one table cannot serve.
func TestRopePackerRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change            func(*rope)
		headDim, position int64
	}{
		"an odd head":   {func(*rope) {}, 5, 8},
		"a small share": {func(r *rope) { r.part = 0.05 }, 32, 8},
		"a long text":   {func(r *rope) { r.kind, r.factor = "dynamic", 2 }, 32, 65},
	} {
		r, p := newRope(10000, 64), packer{}
		c.change(&r)
		if p.rope(&r, c.headDim, c.position); p.err == nil {
			t.Errorf("%s was packed", name)
		}
	}
}

// Each broken configuration is refused by the name of its key.
func TestRopeRefuses(t *testing.T) {
	for _, bad := range []struct{ keys, field string }{
		{`"rope_scaling": {"rope_type": "longrope", "short_factor": [1], "long_factor": [1]}`,
			"rope_scaling.rope_type"},
		{`"rope_scaling": {"type": "mrope", "factor": 2}`, "rope_scaling.type"},
		{`"rope_scaling": {"rope_type": 7, "factor": 2}`, "rope_scaling.rope_type"},
		{`"rope_scaling": {"type": "linear"}`, "rope_scaling.factor"},
		{`"rope_scaling": {"type": "linear", "factor": 0}`, "rope_scaling.factor"},
		{`"rope_scaling": {"type": "linear", "factor": -2}`, "rope_scaling.factor"},
		{`"rope_scaling": {"type": "linear", "factor": "2"}`, "rope_scaling.factor"},
		{`"rope_scaling": {"type": "dynamic"}`, "rope_scaling.factor"},
		{`"rope_scaling": {"type": "yarn"}`, "rope_scaling.factor"},
		{`"rope_scaling": {"type": "yarn", "factor": 2, "truncate": 1}`, "rope_scaling.truncate"},
		{`"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 1e9}`, "rope_scaling.beta_fast"},
		{`"rope_scaling": {"type": "yarn", "factor": 0, "original_max_position_embeddings": 64}`,
			"rope_scaling.factor"},
		{`"rope_scaling": {"type": "yarn", "factor": 2, "attention_factor": 0}`,
			"rope_scaling.attention_factor"},
		{`"rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 0}`,
			"rope_scaling.original_max_position_embeddings"},
		{`"rope_scaling": {"type": "ntk", "factor": 2, "mixed_b": 0}`, "rope_scaling.mixed_b"},
		{`"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 1}`,
			"rope_scaling.high_freq_factor"},
		{`"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4}`,
			"rope_scaling.high_freq_factor"},
		{`"rope_scaling": {"type": "linear", "factor": 2, "mrope_section": [1]}`, "rope_scaling.mrope_section"},
		{`"rope_scaling": [1]`, "rope_scaling"},
		{`"rope_theta": 1`, "rope_parameters.rope_theta"},
		{`"rope_theta": -10000`, "rope_parameters.rope_theta"},
		{`"rope_theta": "10000"`, "rope_theta"},
		{`"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.5}`,
			"rope_parameters.partial_rotary_factor"},
		{`"rope_parameters": {"full_attention": {"rope_type": "default"}}`,
			"rope_parameters.full_attention"},
	} {
		config := fmt.Sprintf(`{"max_position_embeddings": 512, %s}`, bad.keys)
		_, err := readRope(fstest.MapFS{configFile: {Data: []byte(config)}}, 10000)
		var refused *ModelError
		if !errors.As(err, &refused) || refused.File != configFile || refused.Field != bad.field ||
			strings.Contains(refused.Reason, "%!") {
			t.Errorf("%s: %v; %s was to be refused", bad.keys, err, bad.field)
		}
	}
}

// Where weights are only counted a rope counts what its tables have, and they are not computed.
func TestRopeIsCounted(t *testing.T) {
	for _, part := range []float64{1, 0.75, 0.55} {
		r := newRope(10000, 512)
		r.part = part
		cos, sin := r.tables(64, 300)
		var s sizing
		p := &packer{sizing: &s}
		got := p.rope(&r, 64, 300)
		want := int64(4 * (len(cos) + len(sin)))
		if p.err != nil || s.packed != want || int(got.columns) != 2*len(cos)/300 {
			t.Errorf("a share of %g: %d bytes of %d columns, %v; want %d",
				part, s.packed, got.columns, p.err, want)
		}
	}
}
