package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// GTE and NomicBERT.
var postNormCases = []string{"gte-multilingual", "gte-en", "gte-types", "gte-arctic",
	"nomic-v15", "nomic-biases", "nomic-saved"}

// oddPostNorms have heads without a GPU kernel.
var oddPostNorms = []string{"gte-saved"}

func TestPostNormStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev *engine.Device, compute engine.Compute) {
		for _, name := range slices.Concat(postNormCases, oddPostNorms) {
			c := golden.Open(t, name)
			m, r := loadStates(t, dev, c.Dir, compute)
			if err := compareStates(t, m, r, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The goldens' attention is neither uniform, which would hide a wrong score, nor one-hot.
func TestPostNormGoldensAttend(t *testing.T) {
	for _, name := range slices.Concat(postNormCases, oddPostNorms) {
		shares := golden.Open(t, name).Notes["attention_entropy"].(map[string]any)
		for block, share := range shares {
			if s := share.(float64); s < 0.3 || s > 0.8 {
				t.Errorf("%s: attention of %s has %v of the entropy of uniform rows", name, block, s)
			}
		}
	}
}

// A mistake in these architectures is seen in the numbers of every golden that has what it is
// about. Each fault is planted in a loaded model, whose program is then recorded with it.
func TestPostNormFaultsAreSeen(t *testing.T) {
	dev := open(t, engine.Options{})
	each := func(change func(*postNormBlock)) func(*postNorm, *packer) {
		return func(m *postNorm, _ *packer) {
			for i := range m.blocks {
				change(&m.blocks[i])
			}
		}
	}
	turn := func(change func(*rope)) func(*postNorm, *packer) {
		return func(m *postNorm, p *packer) {
			change(&m.config.rope)
			m.rotary = p.rope(&m.config.rope, m.config.headDim(), m.config.positions)
		}
	}
	faults := map[string]struct {
		in    string // the kind of goldens that must see it; "": any
		plant func(m *postNorm, p *packer)
	}{
		"no rotation":         {"", func(m *postNorm, _ *packer) { m.rotary = rotary{} }},
		"another base":        {"gte-arctic", turn(func(r *rope) { r.theta *= 1.05 })},
		"no stretching":       {"gte-multilingual", turn(func(r *rope) { r.kind = "default" })},
		"no mixed stretching": {"gte-types", turn(func(r *rope) { r.mixed = 0 })},
		"a factor of one":     {"gte-en", turn(func(r *rope) { r.factor = 1 })},
		"no types":            {"gte-types", func(m *postNorm, _ *packer) { m.types = nil }},
		"one type left out":   {"gte-multilingual", func(m *postNorm, _ *packer) { m.types = nil }},
		"another epsilon":     {"gte-types", func(m *postNorm, _ *packer) { m.config.eps *= 3 }},
		"norms exchanged": {"", each(func(b *postNormBlock) {
			b.attGamma, b.blockGamma = b.blockGamma, b.attGamma
		})},
		"betas left out":        {"", each(func(b *postNormBlock) { b.blockBeta = nil })},
		"another small base":    {"nomic", turn(func(r *rope) { r.theta *= 1.05 })},
		"the gate's biases out": {"nomic-biases", each(func(b *postNormBlock) { b.gatedBias = nil })},
		"biases out": {"nomic-biases", each(func(b *postNormBlock) {
			b.qkvBias, b.outBias = nil, nil
		})},
		"biases of q, k, v out": {"gte", each(func(b *postNormBlock) { b.qkvBias = nil })},
		"bias of attention out": {"gte", each(func(b *postNormBlock) { b.outBias = nil })},
		"bias of the MLP out":   {"gte", each(func(b *postNormBlock) { b.downBias = nil })},
		"another function of a gate": {"", func(m *postNorm, _ *packer) {
			m.config.gate = map[engine.Gate]engine.Gate{engine.GEGLU: engine.GEGLUTanh,
				engine.GEGLUTanh: engine.SwiGLU, engine.SwiGLU: engine.GEGLU}[m.config.gate]
		}},
		"gate and multiplier exchanged": {"", func(m *postNorm, p *packer) {
			for i := range m.blocks {
				at, f := fmt.Sprintf("%s%d.", m.names.layers, i), m.config.inner
				halves := m.names.halves(f)
				m.blocks[i].gated = p.gated(f, m.config.hidden,
					gateHalf{at + m.names.up + ".weight", halves.up},
					gateHalf{at + m.names.gate + ".weight", halves.gate})
			}
		}},
		"keys and values exchanged": {"", func(m *postNorm, p *packer) {
			c := m.config.hidden
			for i := range m.blocks {
				m.blocks[i].qkv = exchanged(p, m.names, i, c)
			}
		}},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			for _, of := range slices.Concat(postNormCases, oddPostNorms) {
				if !strings.HasPrefix(of, fault.in) {
					continue
				}
				c := golden.Open(t, of)
				m, r := loadStates(t, dev, c.Dir, engine.ComputeF32)
				p := gatedPacker(t, dev, c.Dir)
				p.prefix = m.packer.prefix
				fault.plant(m.encoder.(*postNorm), p)
				if p.err != nil {
					t.Fatal(p.err)
				}
				if err := compareStates(t, m, r, c); err == nil {
					t.Errorf("%s does not see it", of)
				} else {
					t.Logf("%s: %v", of, err)
				}
			}
		})
	}
}

// exchanged packs the projections of a block with keys and values exchanged.
func exchanged(p *packer, n *postNormNames, block int, c int64) *engine.Weight {
	at := fmt.Sprintf("%s%d.", n.layers, block)
	if len(n.qkv) == 3 {
		return p.linear(c, c, at+n.qkv[0]+".weight", at+n.qkv[2]+".weight", at+n.qkv[1]+".weight")
	}
	shape, name := []int64{3 * c, c}, at+n.qkv[0]+".weight"
	return p.packParts(engine.WeightSpec{Kind: engine.LinearWeight, Compute: p.compute, K: c},
		[]part{{name, shape, 0, c}, {name, shape, 2 * c, c}, {name, shape, c, c}})
}

// What published directories are for is read from their files, whatever class config.json names.
func TestPostNormDetection(t *testing.T) {
	for name, want := range map[string]Task{
		"gte-multilingual": Tag, // NewForTokenClassification alone is a tagger
		"classify-gte":     Classify, "tag-nomic": Tag, "text-gte-embed": Embed, "text-gte-stella": Embed,
		"text-gte-rerank": Classify, "text-gte-sparse": Splade, "text-nomic": Embed, "nomic-v15": Embed,
	} {
		if task, _, err := Detect(golden.Open(t, name).Dir); err != nil || task != want {
			t.Errorf("%s: %s, %v; want %s", name, task, err, want)
		}
	}
	// gte-multilingual-base names that class beside its modules.
	dir := edit(t, golden.Open(t, "text-gte-embed").Dir, configFile,
		map[string]any{"architectures": []string{"NewForTokenClassification"}})
	if task, _, err := Detect(dir); err != nil || task != Embed {
		t.Errorf("%s, %v", task, err)
	}
}
