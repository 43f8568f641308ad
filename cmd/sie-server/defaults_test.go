package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
)

func TestDefaultModels(t *testing.T) {
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	const minilm, bge = "sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-small-en-v1.5"
	for _, c := range []struct {
		flag, refs, want []string
		err              string
	}{
		{nil, nil, nil, ""},
		{nil, []string{minilm + "=/some/where", bge}, []string{minilm, bge}, ""},
		{[]string{bge}, []string{minilm}, []string{bge}, ""},
		{[]string{"BAAI/bge-m4"}, []string{minilm}, nil, "--default-model: "},
	} {
		got, err := defaultModels(c.flag, c.refs, cat)
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") ||
			err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%v %v: %v, %v", c.flag, c.refs, got, err)
		}
	}
}
