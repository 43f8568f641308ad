package inference

import (
	"fmt"
	"strings"
	"testing"
)

func TestWarningIsBounded(t *testing.T) {
	if got := warning([]string{
		"normalize", "top_k",
	}); got != "options of other operations ignored: normalize, top_k" {
		t.Error(got)
	}
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("merge_adjacent_%02d", i))
	}
	got := warning(many)
	named := strings.Count(got, "merge")
	if len(got) > maxWarning || len(got) < maxWarning/2 ||
		!strings.HasSuffix(got, fmt.Sprintf(" and %d more", 60-named)) || named == 0 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
