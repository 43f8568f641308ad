package weights_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/sie-engine/sie/weights"
)

// Open opens the checkpoint of a directory. Its tensors are read later.
func Example() {
	checkpoint, err := weights.Open("../testdata/golden/st-mean")
	if err != nil {
		log.Fatal(err)
	}
	defer checkpoint.Close()
	tensor, ok := checkpoint.Tensor("embeddings.LayerNorm.weight")
	if !ok {
		log.Fatal("no such tensor")
	}
	fmt.Println(tensor.DType, tensor.Shape, tensor.Bytes(), "bytes")
	values, err := tensor.AppendFloat32(nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(values), "numbers")
	// Only now is it certain that the file did not change during the reads.
	fmt.Println(checkpoint.CheckUnchanged())
	// Output:
	// F32 [32] 128 bytes
	// 32 numbers
	// <nil>
}

// A file that breaks the format gives an error that names the file and the broken rule.
func ExampleFormatError() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "broken.safetensors")
	if err := os.WriteFile(path, []byte("\x02\x00\x00\x00\x00\x00\x00\x00[]"), 0o600); err != nil {
		log.Fatal(err)
	}
	_, err = weights.OpenFile(path)
	var broken *weights.FormatError
	if errors.As(err, &broken) {
		fmt.Println(filepath.Base(broken.File), "is not served:", broken.Reason)
	}
	// Output: broken.safetensors is not served: does not begin with '{'; this is not a safetensors file
}
