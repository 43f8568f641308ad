package configd_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sie-engine/sie/catalog"
)

// What was added stays what it was when the built-in models change: a newer one that contradicts it
// yields and is logged, and one that goes leaves only what stands on its own; nothing is lost.
func TestBuiltInModelsChangeBelowWhatWasAdded(t *testing.T) {
	s, ask := start(t, directory(t, t.TempDir()), nil)
	b, err := catalog.LoadBundlesDir("testdata/bundles")
	if err != nil {
		t.Fatal(err)
	}
	set := func(docs ...string) {
		t.Helper()
		files := fstest.MapFS{}
		for i, d := range docs {
			files[string(rune('a'+i))+".yaml"] = &fstest.MapFile{Data: []byte(d)}
		}
		c, err := catalog.Load(files)
		if err == nil {
			err = s.Set(c, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	z := "  z: {extends: default, max_batch_tokens: 5}\n"
	set(document("org/a", 8))
	if a, _ := ask("POST", modelsPath, "", "sie_id: org/a\nprofiles:\n"+z); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, c := range []struct {
		docs     []string
		want     string
		problems int
	}{
		{[]string{document("org/a", 9)}, "max_batch_tokens: 9", 0},
		{[]string{document("org/a", 9) + strings.Replace(z, "5", "6", 1)}, "max_batch_tokens: 5", 1},
		{[]string{document("org/b", 9)}, "", 1}, // z extends a profile that is gone
		{[]string{document("org/a", 8)}, "max_batch_tokens: 5", 0},
	} {
		set(c.docs...)
		a, _ := ask("GET", modelsPath+"/org/a", "", "")
		if n := len(s.Content().Problems()); n != c.problems || !strings.Contains(string(a.body), c.want) ||
			(a.status == 404) != (c.want == "") {
			t.Errorf("%.60q: %d problems, %d %s, want %s", c.docs, n, a.status, a.body, c.want)
		}
	}
}
