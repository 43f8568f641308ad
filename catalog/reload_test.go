package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReloadDirKeepsWhatIsBroken(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	model := func(id string) string {
		return "sie_id: " + id +
			"\nhf_id: x/y\ntasks: {encode: {dense: {dim: 8}}}\nprofiles:\n  default: {adapter_path: \"sie_server.adapters.bert_flash:BertFlashAdapter\", max_batch_tokens: 1024}\n"
	}
	write("a.yaml", model("x/a"))
	write("b.yaml", model("x/b"))
	old, err := LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	write("a.yaml", "sie_id: x/a\nnonsense: 1\n")
	write("b.yaml", model("x/bb"))
	write("c.yaml", "nonsense: 1\n")
	c, broken, err := ReloadDir(dir, old)
	if err != nil || c.Len() != 2 || broken == nil || !strings.Contains(broken.Error(), "a.yaml") ||
		!strings.Contains(broken.Error(), "c.yaml") {
		t.Fatalf("%v, %v, %v", c, broken, err)
	}
	if m, err := c.Resolve("x/a"); err != nil || m.Dims["dense"] != 8 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := c.Resolve("x/bb"); err != nil {
		t.Error(err)
	}
	if _, err := c.Resolve("x/b"); err == nil {
		t.Error("an id that is gone is still there")
	}
	// A file that stays broken keeps its earlier content through several reloads.
	if c, broken, err = ReloadDir(dir, c); err != nil || c.Len() != 2 || broken == nil {
		t.Errorf("%v, %v, %v", c, broken, err)
	}
	write("d.yaml", model("x/bb"))
	if _, _, err := ReloadDir(dir, c); err == nil || !strings.Contains(err.Error(), "already defined") {
		t.Errorf("two files with one id: %v", err)
	}
}
