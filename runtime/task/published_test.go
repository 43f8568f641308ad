package task_test

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/task"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// leftAlone are parts of the names of tensors that a checkpoint has and its model does not use.
var leftAlone = []string{"pooler.dense.", "position_ids", "cls.predictions.", "lm_head.",
	"head.dense.", "head.norm.", "decoder.bias", "classifier.", "logit_scale",
	"encoder.embed_tokens."}

func publishedFolder(t *testing.T) string { return filepath.Join(golden.Root(t), "..", "published") }

// answers stands in for the tokens of a judge's answers, which come from its tokenizer.
func answers(m *catalog.Resolved) []int32 {
	if m.Judging().Format == "" {
		return nil
	}
	return []int32{0, 1}
}

// Every text model of the catalog loads from the tensors that its checkpoint has: none is missing,
// none has another shape, and those left over are known. The checkpoints have headers only.
func TestPublishedNames(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing runs at once here: without -short it takes seconds, under the race detector minutes")
	}
	dev, err := engine.Open(engine.Options{Threads: 1})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(dev.Close)
	all := weightstest.ReadPublished(t, publishedFolder(t))
	models, err := catalog.LoadDir("../../catalog/models")
	if err != nil {
		t.Fatal(err)
	}
	tasks := task.Tasks()
	served := 0
	for _, m := range models.List() {
		if m.ID != m.BaseID {
			continue
		}
		for _, member := range m.Members { // a union has no tensors of its own
			if own, err := models.Resolve(member.ID); err != nil || !own.Offers(member) {
				t.Errorf("%s: its member %s@%s is not in the catalog: %v", m.ID, member.HFID,
					member.Revision, err)
			}
		}
		if len(m.Members) > 0 {
			continue
		}
		p := all[m.ID]
		if p == nil {
			t.Errorf("%s is in the catalog and not in testdata/published: see tools/published", m.ID)
			continue
		}
		served++
		t.Run(m.ID, func(t *testing.T) {
			dir := t.TempDir()
			p.Write(t, dir)
			r, err := arch.Check(dir, dev, arch.Options{Task: tasks[m.Family], MaxSeqLen: m.MaxSequenceLength,
				Answers: answers(m), Dense: m.Loadtime.DenseProjectionPath})
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range r.Problems {
				t.Error(problem)
			}
			towers := strings.Contains(string(p.Files["gliner_config.json"]), `"labels_encoder": "`)
			for _, name := range r.LeftOver {
				known := func(part string) bool { return strings.Contains(name, part) }
				if towers && strings.HasPrefix(name, "rnn.lstm.") { // the package saves it and never runs it
					continue
				}
				if !slices.ContainsFunc(leftAlone, known) {
					t.Errorf("%s is left over", name)
				}
			}
			if dim, ok := m.Dims["dense"]; ok && r.Dim != dim {
				t.Errorf("%d columns; the catalog says %d", r.Dim, dim)
			}
			if r.Size.Packed == 0 || r.Read == 0 {
				t.Errorf("%+v", r)
			}
		})
	}
	if served == 0 {
		t.Fatal("no model")
	}
	for id, p := range all {
		if _, err := models.Resolve(id); err != nil {
			t.Run(id, func(t *testing.T) { checkUnlisted(t, dev, p) })
		}
		for _, part := range append(slices.Sorted(maps.Keys(p.Files)), "names", "shapes", "dtype") {
			from := p.Source[part]
			if !strings.HasPrefix(from, "read") && !strings.HasPrefix(from, "derived: ") {
				t.Errorf("%s: %s does not say whether it was read or derived: %q", id, part, from)
			}
		}
	}
}

// unserved are the keys of configurations by which a model of another kind is refused.
var unserved = []string{"model_type", "auto_map", "relations_layer", "labels_encoder"}

// checkUnlisted looks at a model that the catalog does not have yet. Its architecture is refused by
// name, or finds all of its tensors.
func checkUnlisted(t *testing.T, dev *engine.Device, p *weightstest.Published) {
	dir := t.TempDir()
	p.Write(t, dir)
	kind, _, err := arch.Detect(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := arch.Check(dir, dev, arch.Options{Task: kind})
	var refused *arch.ModelError
	switch {
	case errors.As(err, &refused) &&
		slices.Contains(unserved, refused.Field[strings.LastIndex(refused.Field, ".")+1:]):
		t.Logf("not served: %v", err)
	case err != nil:
		t.Fatal(err)
	case len(r.Problems) > 0:
		t.Error(r.Problems)
	}
}

// What testdata/published says of all-MiniLM-L6-v2 is what its file says.
func TestPublishedNamesOfARealModel(t *testing.T) {
	real, err := weights.Open("../../build/models/all-MiniLM-L6-v2")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no MiniLM: run `make minilm`")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	all := weightstest.ReadPublished(t, publishedFolder(t))
	p := all["sentence-transformers/all-MiniLM-L6-v2"]
	listed := p.Weights[0].All()
	if len(listed) != len(real.Names()) {
		t.Errorf("%d tensors; the file has %d", len(listed), len(real.Names()))
	}
	for _, x := range listed {
		if r, ok := real.Tensor(x.Name); !ok || r.DType != x.DType || !slices.Equal(r.Shape, x.Shape) {
			t.Errorf("%s is %s %v; in the file %s %v", x.Name, x.DType, x.Shape, r.DType, r.Shape)
		}
	}
}
