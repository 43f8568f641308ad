package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every test that the compatibility page names exists.
func TestDocumentedTestsExist(t *testing.T) {
	const page = "docs/compatibility.md"
	root := root(t)
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	missing := make(map[string]bool)
	for _, name := range regexp.MustCompile(`\b(Test[A-Z]|test_)\w+`).FindAllString(string(text), -1) {
		missing[name] = true
	}
	if len(missing) < 40 {
		t.Fatalf("%s names %d tests; is it still a table of them?", page, len(missing))
	}
	for _, part := range []string{
		"catalog", "cmd", "configd", "gateway", "internal", "runtime", "sidecar", "tools", "weights",
	} {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, d fs.DirEntry, err error) error {
			name := d.Name()
			if err != nil || d.IsDir() ||
				!strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "test_") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, m := range regexp.MustCompile(`(?m)^(?:func|def) (\w+)\(`).FindAllSubmatch(source, -1) {
				delete(missing, string(m[1]))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range missing {
		t.Errorf("%s: there is no test %s", page, name)
	}
}

// The page about the architecture names the ABI that the header has, wherever it names one.
func TestTheArchitectureNamesTheABI(t *testing.T) {
	root := root(t)
	header, err := os.ReadFile(filepath.Join(root, "csrc/include/sie.h"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	is := regexp.MustCompile(`(?m)^#define SIE_ABI_VERSION (\d+)u$`).FindSubmatch(header)
	said := regexp.MustCompile(`ABI (\d+)`).FindAllSubmatch(page, -1)
	if is == nil || len(said) == 0 {
		t.Fatalf("the header's number: %q; the page's: %q", is, said)
	}
	for _, n := range said {
		if string(n[1]) != string(is[1]) {
			t.Errorf("ARCHITECTURE.md has %s; the header has ABI %s", n[0], is[1])
		}
	}
}

// The weak points of the reference's cluster that the data path mends have a row each, with a test.
func TestWeakPointsHaveARow(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs/compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|.+\| .*Test\w+.* \|$`).FindAllSubmatch(text, -1) {
		if rows[string(m[1])] {
			t.Errorf("weak point %s has two rows", m[1])
		}
		rows[string(m[1])] = true
	}
	mended := []int{19, 20, 21, 22, 23, 24, 26, 28, 29, 30, 31}
	for n := 1; n <= 18; n++ {
		mended = append(mended, n)
	}
	for _, n := range mended {
		if !rows[strconv.Itoa(n)] {
			t.Errorf("weak point %d has no row with a test", n)
		}
	}
}
