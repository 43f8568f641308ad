//go:build native && cuda

package arch

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// The same architecture files, goldens and bounds on GPUs: the host's first one, or, in a build
// with emulated kernels, one for each family of kernels (eachCard). No test here is parallel: they
// share the GPU.

func TestGPUHiddenStates(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for i, name := range bertCases {
			for _, compute := range classesOfCase(t, dev, name, i) {
				t.Run(fmt.Sprintf("%s/%s", name, compute), func(t *testing.T) {
					checkHiddenStates(t, dev, golden.Open(t, name), compute)
				})
			}
		}
	})
}

func TestGPUStates(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for i, name := range slices.Concat(modernbertCases, jinaBertCases,
			postNormCases, jinaXLMRCases, mpnetCases, debertaCases, moreDebertas) {
			for _, compute := range classesOfCase(t, dev, name, i) {
				t.Run(fmt.Sprintf("%s/%s", name, compute), func(t *testing.T) {
					c := golden.Open(t, name)
					m, r := loadStates(t, dev, c.Dir, compute)
					if err := compareStates(t, m, r, c); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}

// Qwen2, Qwen3 and EuroBERT: every state, the bits of the row that is read of each text, and
// those of a text in any company.
func TestGPUQwen(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		direct := open(t, engine.Options{Kind: engine.CUDA, NoGraphs: true})
		for i, name := range qwenCases {
			if name == "qwen2-both-ways" { // its heads have 16 columns
				continue
			}
			c := golden.Open(t, name)
			for _, compute := range classesOfCase(t, dev, name, i) {
				t.Run(fmt.Sprintf("%s/%s", name, compute), func(t *testing.T) {
					checkQwenStates(t, dev, c, compute)
					o := Options{Task: Embed, Compute: compute, Pooling: engine.PoolLast}
					comparePruning(t, dev, c, o)
					m, r := load(t, dev, c.Dir, o)
					m1, r1 := load(t, direct, c.Dir, o)
					checkInvariance(t, goldenBatch(c), m, r, m1, r1, 2)
				})
			}
		}
	})
}

// The sum that blocks add to is f32 in every class of a GPU: its numbers, and the bits of the row
// that is read of each text.
func TestGPUDeepNets(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		direct := open(t, engine.Options{Kind: engine.CUDA, NoGraphs: true})
		for _, compute := range classesOfCase(t, dev, "deep", 0) {
			t.Run(compute.String(), func(t *testing.T) {
				checkDeep(t, dev, compute)
				for name, pooling := range deepCases {
					c := golden.Open(t, name)
					o := Options{Task: Embed, Compute: compute, Pooling: pooling}
					comparePruning(t, dev, c, o)
					m, r := load(t, dev, c.Dir, o)
					m1, r1 := load(t, direct, c.Dir, o)
					checkInvariance(t, goldenBatch(c), m, r, m1, r1, 2)
				}
			})
		}
	})
}

// Every head in every class of a GPU.
func TestGPUHeads(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for i, head := range []struct {
			what  string
			check func(*testing.T, *engine.Device, engine.Compute)
		}{
			{"classify", checkClassification},
			{"tag", checkTagging},
			{"masked", checkMasked},
			{"splade", checkSPLADE},
			{"vectors", checkTokenVectors},
			{"bge-m3", checkBGEM3},
			{"maxsim", checkMaxSim},
			{"folded", checkFolded},
			{"adapted", checkAdaptedHeads},
			{"tasks", checkTasks},
		} {
			for _, compute := range classesOfCase(t, dev, head.what, i) {
				t.Run(fmt.Sprintf("%s/%s", head.what, compute), func(t *testing.T) {
					head.check(t, dev, compute)
				})
			}
		}
	})
}

// A text has the same bits from a head alone, in any batch and order, with and without a graph. A
// sixth of the models are in a turn.
func TestGPUHeadsAlone(t *testing.T) {
	const parts = 6
	inTurn(t, parts, func(t *testing.T, dev *engine.Device, compute engine.Compute, part int) {
		direct := open(t, engine.Options{Kind: engine.CUDA, NoGraphs: true})
		for i, name := range slices.Sorted(maps.Keys(headModels)) {
			if i%parts == part && !headModels[name].odd {
				checkHeadAlone(t, dev, direct, compute, name)
			}
		}
	})
}

// Adapters in one batch and each alone, in every class of a GPU.
func TestGPUAdapters(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for i, name := range loraCases {
			for _, compute := range classesOfCase(t, dev, name, i) {
				t.Run(fmt.Sprintf("%s/%s", name, compute), func(t *testing.T) {
					checkAdapters(t, dev, golden.Open(t, name), compute)
				})
			}
		}
	})
}

func TestGPUPruningChangesNoBit(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for i, name := range prunedCases(t, dev) {
			for _, compute := range classesOfCase(t, dev, name, i) {
				checkPruning(t, dev, name, compute)
			}
		}
	})
}

// A text has the same bits alone, in any batch and order, with and without a graph.
func TestGPUBatchInvariance(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		direct := open(t, engine.Options{Kind: engine.CUDA, NoGraphs: true})
		for i, name := range slices.Concat(bertCases[1:], modernbertCases, gemmaCases, postNormCases,
			mixedJinaBerts[:2], jinaXLMRCases[:2], mpnetCases, debertaCases) {
			c := golden.Open(t, name)
			for _, compute := range classesOfCase(t, dev, name, i) {
				t.Run(fmt.Sprintf("%s/%s", name, compute), func(t *testing.T) {
					o := Options{Task: Embed, Compute: compute, Pooling: engine.PoolCLS}
					m, r := load(t, dev, c.Dir, o)
					m1, r1 := load(t, direct, c.Dir, o)
					checkInvariance(t, goldenBatch(c), m, r, m1, r1, 2)
				})
			}
		}
	})
}

// Dense modules are f32 behind a model of any class: their results are as near to
// sentence-transformers as the model's own.
func TestGPUDenseModules(t *testing.T) {
	bounds := map[engine.Compute]float64{
		engine.ComputeBF16: 0.9995, engine.ComputeF16: 0.99999, engine.ComputeFP8: 0.99,
	}
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for i, name := range []string{"st-last-dense-identity", "st-mean-dense-tanh-normalize-prompts"} {
			c := golden.Open(t, name)
			reference, shape := c.Float32("vectors")
			for _, compute := range classesOfCase(t, dev, name, i) {
				t.Run(fmt.Sprintf("%s/%s", name, compute), func(t *testing.T) {
					m, r := load(t, dev, c.Dir, Options{Task: Embed, Compute: compute})
					got := embed(t, m, r, goldenBatch(c), m.Normalize)
					for i := range shape[0] {
						d := golden.Compare(got[i*m.Dim:(i+1)*m.Dim], reference[i*m.Dim:(i+1)*m.Dim])
						if !(d.Cosine >= bounds[compute]) || math.Abs(d.NormRatio-1) > 0.02 {
							t.Errorf("text %d: %v; cosine %v expected", i, d, bounds[compute])
						}
					}
				})
			}
		}
	})
}

func TestGPUGemmaStates(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for _, compute := range classesOfCase(t, dev, "gemma", 0) {
			checkGemmaDeep(t, dev, compute)
		}
		for i, name := range slices.Concat(gemmaCases, t5Cases) { // which have no fp16
			c := golden.Open(t, name)
			for _, compute := range classesOfCase(t, dev, name, i) {
				m, r := loadStates(t, dev, c.Dir, compute)
				if err := compareStates(t, m, r, c); err != nil {
					t.Errorf("%s/%s: %v", name, compute, err)
				}
			}
		}
	})
}

// fp16 is refused where it is asked for, and bf16 takes its place for a checkpoint that is in it.
func TestGPUGemmaRefusesF16(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for _, name := range []string{"gemma-linear", "t5-mt5"} { // the first in fp16
			dir := golden.Open(t, name).Dir
			_, err := Load(dir, dev, Options{Task: Embed, Compute: engine.ComputeF16})
			var e *ModelError
			if !errors.As(err, &e) || !strings.Contains(err.Error(), "fp16 overflows") {
				t.Errorf("%s in fp16: %v", name, err)
			}
			if m, _ := load(t, dev, dir, Options{Task: Embed}); m.Compute != engine.ComputeBF16 {
				t.Errorf("%s is served in %v", name, m.Compute)
			}
		}
	})
}

// Poolings that a GPU's kernel does as it writes the output, and those that are joined first.
func TestGPUPoolings(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for _, compute := range classesOfCase(t, dev, "poolings", 0) {
			checkPoolings(t, dev, compute, 27)
		}
	})
}

// Heads of widths without a GPU kernel are refused by name, before anything is packed.
func TestGPUHeadsOfOtherWidths(t *testing.T) {
	eachCard(t, func(t *testing.T, dev *engine.Device) {
		for _, name := range oddHeads {
			refused(t, dev, golden.Open(t, name).Dir, name, "config.json: num_attention_heads",
				"GPUs have no kernel for", "--device cpu")
		}
		wide := map[string]any{"hidden_size": 256, "num_attention_heads": 1, "pooler_hidden_size": nil}
		refused(t, dev, edit(t, golden.Open(t, "deberta-v3").Dir, configFile, wide), "heads of DeBERTa",
			"config.json: num_attention_heads", "256 columns", "by distance for up to 128", "--device cpu")
	})
}
