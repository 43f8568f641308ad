package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
)

type checkModelCmd struct {
	computeFlags `embed:""`

	Dir string `arg:"" help:"Directory of the model." type:"existingdir"`
}

// maxListed bounds the names that check-model prints of one kind.
const maxListed = 40

// Run looks at a model directory without reading its weights. It fails if the model cannot be
// served.
func (c *checkModelCmd) Run() error {
	chosen, err := c.devices()
	if err != nil {
		return err
	}
	dev, err := engine.Open(chosen.options[0])
	if err != nil {
		return err
	}
	defer dev.Close()
	info, err := dev.Info()
	if err != nil {
		return err
	}
	compute, err := c.compute(info)
	if err != nil {
		return err
	}
	return checkModel(os.Stdout, c.Dir, dev, compute)
}

func checkModel(w io.Writer, dir string, dev *engine.Device, compute engine.Compute) error {
	task, labels, err := arch.Detect(dir)
	if err != nil {
		return err
	}
	r, err := arch.Check(dir, dev, arch.Options{Task: task, Compute: compute})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "architecture  %s, %d blocks, up to %d tokens\n", r.Arch, r.Layers, r.Tokens)
	fmt.Fprintf(w, "task          %s%s\n", task, listOf(", labels ", labels))
	fmt.Fprintf(w, "parts         %s\n", strings.Join(r.Parts, ", "))
	fmt.Fprintf(w, "tensors       %d read, %d wrong or missing, %d left over\n",
		r.Read, len(r.Problems), len(r.LeftOver))
	fmt.Fprintf(w, "memory        %d MiB in %s, and %d MiB more while it is packed\n",
		mebibytes(r.Size.Packed), r.Compute, mebibytes(r.Size.Passing))
	for i, p := range r.Problems {
		if i == maxListed {
			fmt.Fprintf(w, "  and %d more\n", len(r.Problems)-i)
			break
		}
		fmt.Fprintf(w, "  %v\n", p)
	}
	for i, name := range r.LeftOver {
		if i == maxListed {
			fmt.Fprintf(w, "  and %d more left over\n", len(r.LeftOver)-i)
			break
		}
		fmt.Fprintf(w, "  left over: %.120q\n", name)
	}
	if len(r.Problems) > 0 {
		return fmt.Errorf("%s cannot be served: %d tensors are wrong or missing", dir, len(r.Problems))
	}
	return nil
}

// listOf returns the first names of a list behind a word, or "" without any.
func listOf(word string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	if len(names) > maxListed {
		names = names[:maxListed]
	}
	return word + strings.Join(names, ", ")
}

func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }
