package arch

import (
	"io/fs"
	"math"

	"github.com/sie-engine/sie/runtime/engine"
)

// MPNet (Song 2020, arXiv:2004.09297) is RoBERTa with a bias of attention in addition to its
// positions: one table, shared by all blocks, says how much each head prefers a key at each
// distance. Far distances share rows. There are no token types. It is the encoder of
// all-mpnet-base-v2, multi-qa-mpnet and paraphrase-mpnet.

// The table of distances. These and the place of the padding token are constants in the model's
// code, whatever the configuration says.
const (
	mpnetBuckets = 32
	mpnetReach   = 128 // from this distance on, all have one row
	mpnetPad     = 1
	mpnetTable   = "encoder.relative_attention_bias.weight"
)

var mpnetNames = &bertFamily{
	prefixes: []string{"", "mpnet.", "model.", "0.auto_model."},
	block:    encoderLayer,
	names: bertTensors{
		query:         "attention.attn.q",
		key:           "attention.attn.k",
		value:         "attention.attn.v",
		out:           "attention.attn.o",
		attentionNorm: "attention.LayerNorm",
		up:            "intermediate.dense",
		down:          "output.dense",
		blockNorm:     "output.LayerNorm",
	},
	heads:             robertaNames.heads,
	convert:           readMPNetConfig,
	positionsAfterPad: true,
}

// readMPNetConfig reads the keys that MPNet has.
func readMPNetConfig(dir fs.FS) (bertConfig, error) {
	c := struct {
		bertConfig
		Buckets int64 `json:"relative_attention_num_buckets"`
	}{bertConfig{HiddenAct: "gelu", LayerNormEps: 1e-12}, mpnetBuckets}
	if err := needJSON(dir, configFile, &c); err != nil {
		return c.bertConfig, err
	}
	if c.Buckets != mpnetBuckets {
		return c.bertConfig, refuse(configFile, "relative_attention_num_buckets",
			"is %d; the model's code uses %d, and so does this server", c.Buckets, mpnetBuckets)
	}
	c.TypeVocabSize, c.PadTokenID, c.PositionEmbeddingType = 0, mpnetPad, "absolute"
	return c.bertConfig, nil
}

// loadMPNet packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func loadMPNet(dir fs.FS, p *packer) (encoder, error) {
	e, err := mpnetNames.load(dir, p)
	if err != nil {
		return nil, err
	}
	b := e.(*bert)
	if err := p.checkDistances(b.config.headDim(), "num_attention_heads"); err != nil {
		return nil, err
	}
	heads := b.config.Heads
	table := p.hostTensor(mpnetTable, mpnetBuckets, heads)
	if p.err != nil {
		return nil, p.err
	}
	by := biasByDistance(table, int(heads), mpnetBuckets, mpnetReach)
	b.bias = p.data(2*mpnetReach+1, engine.F32, littleEndian(by))
	return b, p.err
}

// biasByDistance spreads a table [buckets, heads] over the distances from −reach to reach,
// [heads, 2·reach + 1].
func biasByDistance(table []float32, heads, buckets, reach int) []float32 {
	out := make([]float32, 0, heads*(2*reach+1))
	for head := range heads {
		for distance := -reach; distance <= reach; distance++ {
			out = append(out, table[distanceBucket(distance, buckets, reach)*heads+head])
		}
	}
	return out
}

// distanceBucket returns the row for a key that stands distance places behind the query, as T5
// counts them: half of the rows for keys ahead of it, and of each half one row for each of the
// nearest distances, a quarter of all rows; the others grow by a constant factor up to reach. The
// logarithm is taken in float32, like the reference's. buckets is a multiple of 4; a quarter of it
// is less than reach.
func distanceBucket(distance, buckets, reach int) int {
	half, exact := buckets/2, buckets/4
	first, n := 0, -distance
	if distance > 0 {
		first, n = half, distance
	}
	if n < exact {
		return first + n
	}
	far := float64(float32(n) / float32(exact))
	grown := float32(math.Log(far)) / float32(math.Log(float64(reach)/float64(exact)))
	return first + min(half-1, exact+int(grown*float32(half-exact)))
}
