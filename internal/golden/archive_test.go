package golden

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
)

// TestUnpacked compares testdata/golden with testdata/packed. Git tracks the archives only, so a
// file that differs from its archive is tested here and nowhere else.
func TestUnpacked(t *testing.T) {
	root := filepath.Join(testrig.Root(t), "testdata", "golden")
	byCase, err := archives(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(byCase) < 200 {
		t.Errorf("%d archives: some are missing", len(byCase))
	}
	packed := map[string]bool{}
	for name, path := range byCase {
		sums, err := archive(path)
		if err != nil {
			t.Fatal(err)
		}
		for file, want := range sums {
			path := filepath.Join(root, name, file)
			packed[path] = true
			data, err := os.ReadFile(path)
			if err != nil {
				t.Errorf("%v: run `make testdata`", err)
				continue
			}
			if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
				t.Errorf("%s/%s differs from its archive: `make testdata` restores it; a maker packs what it makes, and "+
					"`python3 tools/golden/packed.py pack %s` what was made otherwise", name, file, name)
			}
		}
	}
	patterns := ignored(t, root)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || packed[path] {
			return err
		}
		matches := func(pattern string) bool {
			ok, _ := filepath.Match(pattern, d.Name())
			return ok
		}
		if slices.ContainsFunc(patterns, matches) {
			rel, _ := filepath.Rel(root, path)
			name, _, _ := strings.Cut(rel, string(filepath.Separator))
			t.Errorf("git ignores %s, and no archive has it: `python3 tools/golden/packed.py pack %s` packs it", rel, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ignored returns the patterns of testdata/golden/.gitignore.
func ignored(t *testing.T, root string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, line)
		}
	}
	if len(patterns) == 0 {
		t.Fatal("testdata/golden/.gitignore has no patterns")
	}
	return patterns
}

// TestWhatIsMissingIsNamed takes a file away from a copy of a case.
func TestWhatIsMissingIsNamed(t *testing.T) {
	source := filepath.Join(testrig.Root(t), "testdata")
	work := t.TempDir()
	root := filepath.Join(work, "golden")
	for _, dir := range []string{filepath.Join(root, "st-mean"), filepath.Join(work, "packed")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(work, "packed", "st-mean.packed")
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(filepath.Join(source, "packed", "st-mean.packed"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unpacked(root); err == nil || !strings.Contains(err.Error(), "restore testdata/packed") {
		t.Errorf("no archives: %v", err)
	}
	checked.Delete(root)
	write(path, whole)
	if err := unpacked(root); err == nil || !strings.Contains(err.Error(), "run `make testdata`") ||
		!strings.Contains(err.Error(), "st-mean.packed") {
		t.Errorf("nothing unpacked: %v", err)
	}
	sums, err := archive(path)
	if err != nil {
		t.Fatal(err)
	}
	for file := range sums {
		checked.Delete(root)
		if err := unpacked(root); err == nil || !strings.Contains(err.Error(), "run `make testdata`") {
			t.Errorf("before %s is there: %v", file, err)
		}
		write(filepath.Join(root, "st-mean", file), nil)
	}
	checked.Delete(root)
	if err := unpacked(root); err != nil {
		t.Errorf("all is there: %v", err)
	}
	for name, data := range map[string][]byte{
		"empty": nil, "of another kind": []byte("nonsense"), "cut in its index": whole[:40],
		"with another index": append(append([]byte(nil), whole[:30]...), make([]byte, len(whole)-30)...),
	} {
		write(path, data)
		checked.Delete(root)
		if err := unpacked(root); err == nil || !strings.Contains(err.Error(), "restore it with git") {
			t.Errorf("an archive %s: %v", name, err)
		}
	}
}
