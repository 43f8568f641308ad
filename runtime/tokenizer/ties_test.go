package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const tiesDir = "../../testdata/golden/tokenizer-ties"

// Where segmentations of a text score the same, the ids are those of transformers' fast class, also
// in texts that are tokenized in pieces. They are those of its slow class, too, where sums of
// scores are exact; where they round, the slow class rounds them to float32 and takes another one
// of equals in some texts (docs/compatibility.md).
func TestTies(t *testing.T) {
	var g struct {
		Texts []string
		Cases map[string]struct{ Fast, Slow []string }
	}
	must(json.Unmarshal(gunzip(filepath.Join(tiesDir, "ids.json.gz")), &g))
	if len(g.Cases) != 4 || len(g.Texts) < 200 {
		t.Fatalf("%d cases, %d texts", len(g.Cases), len(g.Texts))
	}
	for name, c := range g.Cases {
		model, err := os.ReadFile(filepath.Join(tiesDir, name+".model"))
		must(err)
		tok := loadDir(t, modelDir(t, map[string]string{
			"sentencepiece.bpe.model": string(model),
			"tokenizer_config.json":   `{"tokenizer_class": "XLMRobertaTokenizer"}`,
		}))
		var whole, pieces Batch
		others := 0
		for i, text := range g.Texts {
			must(tok.Encode(&whole, []string{text}, Options{}))
			if got := shortIDs(whole.IDs); got != c.Fast[i] {
				t.Errorf("%s, text %d (%.60q): %s, want %s", name, i, text, got, c.Fast[i])
			}
			if c.Fast[i] != c.Slow[i] {
				others++
			}
			must(tok.Encode(&pieces, []string{text}, Options{general: true, piece: 100}))
			if shortIDs(pieces.IDs) != c.Fast[i] {
				t.Errorf("%s, text %d (%.60q): other ids in pieces", name, i, text)
			}
		}
		if exact := strings.HasPrefix(name, "exact"); exact != (others == 0) {
			t.Errorf("%s: transformers' classes differ on %d texts", name, others)
		}
	}
}
