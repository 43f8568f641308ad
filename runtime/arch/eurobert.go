package arch

import (
	"io/fs"

	"github.com/sie-engine/sie/runtime/engine"
)

// EuroBERT (Boizard 2025, arXiv:2503.05500) is a Llama whose tokens see both ways: Qwen2's blocks
// without biases. Texts are classified by a layer with GELU before the logits, of the first token
// or of the mean of all, or by the mean of every token's logits.

var eurobertFamily = &qwenFamily{bidirectional: true, eps: 1e-5}

// eurobert is the encoder, with the names of its heads.
type eurobert struct {
	*qwen
	pooling string // classifier_pooling
	logits  string
}

// eurobertPoolings maps classifier_pooling to the rows that are read.
var eurobertPoolings = map[string]engine.Pooling{
	"bos": engine.PoolCLS, "mean": engine.PoolMean, "late": engine.PoolMean,
}

// loadEurobert packs an encoder. It leaves p.prefix at the prefix of the encoder's tensors.
func loadEurobert(dir fs.FS, p *packer) (encoder, error) {
	c := struct {
		Pooling string  `json:"classifier_pooling"`
		Own     *string `json:"clf_pooling"` // in the code of the first repositories
	}{Pooling: "late"}
	if err := needJSON(dir, configFile, &c); err != nil {
		return nil, err
	}
	if err := checkNamed("classifier_pooling", c.Pooling, eurobertPoolings); err != nil {
		return nil, err
	}
	if c.Own != nil && *c.Own != c.Pooling {
		return nil, refuse(configFile, "clf_pooling",
			"is %.60q, and classifier_pooling, which transformers reads, is %q; let them say the same",
			*c.Own, c.Pooling)
	}
	m, err := eurobertFamily.load(dir, p)
	if err != nil {
		return nil, err
	}
	e := &eurobert{qwen: m.(*qwen), pooling: c.Pooling, logits: "classifier"}
	if _, first := p.from.Tensor("out_proj.weight"); first { // the name in that code
		e.logits = "out_proj"
	}
	return e, nil
}

func (m *eurobert) heads() headNames {
	return headNames{
		pooler:  transformNames{dense: "dense", act: engine.GELU},
		pooling: eurobertPoolings[m.pooling],
		late:    m.pooling == "late",
		logits:  m.logits,
		tag:     "classifier",
		masked:  maskedNames{words: decoderTable, decoder: "lm_head"},
	}
}
