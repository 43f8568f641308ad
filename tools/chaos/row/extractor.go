package row

import (
	"os"
	"path/filepath"
)

// Extractor is the id of the model of extract requests. The built-in catalog has none, so the
// cluster is given a directory, whose name is the id: the null device needs no weights.
const Extractor = "chaos-labels"

// extractorConfig makes it a model of natural language inference, which scores the labels that a
// request names.
const extractorConfig = `{"architectures": ["BertForSequenceClassification"], "model_type": "bert",
 "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
 "vocab_size": 100, "max_position_embeddings": 512, "type_vocab_size": 2,
 "id2label": {"0": "contradiction", "1": "neutral", "2": "entailment"}}
`

// writeExtractor makes the directory of Extractor in dir and returns its path.
func writeExtractor(dir string) (string, error) {
	path := filepath.Join(dir, Extractor)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(filepath.Join(path, "config.json"), []byte(extractorConfig), 0o644)
}
