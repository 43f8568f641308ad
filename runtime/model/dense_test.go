package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// Entries that name different Dense modules of one repository are different weights.
func TestDenseModulesOfOneRepository(t *testing.T) {
	dir := copyModel(t, "st-qwen2-dense")
	older := filepath.Join(golden.Root(t), "st-qwen2-dense-torch", "2_Dense_24")
	must(t, os.CopyFS(filepath.Join(dir, "2_Dense_24"), os.DirFS(older)))
	torn := filepath.Join(dir, "2_Dense")
	replace(t, torn, "config.json", "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.ReLU")
	through := func(id, folder string) *catalog.Model {
		return loadtime(t, id, dir, "qwen2_flash", "tasks: {encode: {dense: {dim: 24}}}",
			"{dense_projection_path: "+folder+"}")
	}
	r := start(t, nil, nil, through("test/named", "2_Dense_24"), through("test/chain", "2_Dense"),
		through("test/none", "2_Dense_1024"))
	named, chain := r.vectors("test/named", "a text"), r.vectors("test/chain", "a text")
	if len(named[0]) != 24 || len(chain[0]) != 24 {
		t.Fatalf("%d and %d columns", len(named[0]), len(chain[0]))
	}
	negative := func(v []float32) (n int) {
		for _, x := range v {
			if x < 0 {
				n++
			}
		}
		return n
	}
	if negative(named[0]) == 0 || negative(chain[0]) > 0 {
		t.Errorf("%d and %d negative values; want some and, behind a ReLU, none",
			negative(named[0]), negative(chain[0]))
	}
	e := r.refused(t.Context(), &Request{Model: "test/none", Texts: []string{"a"}}, errs.ModelLoadFailed, 502)
	if !strings.Contains(e.Message, "dense_projection_path") || !strings.Contains(e.Message, "2_Dense_24") {
		t.Errorf("%v", e)
	}
}
