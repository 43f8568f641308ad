package arch_test

import (
	"fmt"
	"log"

	"github.com/sie-engine/sie/runtime/arch"
)

// The task of a directory is read from its configuration, without its weights. A head that
// classifies has labels.
func ExampleDetect() {
	for _, name := range []string{"st-mean", "splade-bert", "rerank-sigmoid", "classify-bert", "tag-bert"} {
		task, labels, err := arch.Detect("../../testdata/golden/" + name)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, task, len(labels))
	}
	// Output:
	// st-mean embed 0
	// splade-bert splade 0
	// rerank-sigmoid classify 1
	// classify-bert classify 3
	// tag-bert tag 0
}
