package main

import (
	"fmt"
	"io"
	"os"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
)

// program prints the program that a model directory is recorded as on the first chosen device, and
// the memory that its batches take there.
func (c *doctorCmd) program(w io.Writer) error {
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
	compute := engine.Compute(0)
	if c.Precision != "auto" {
		k, ok := engine.ParseCompute(c.Precision)
		if !ok || !info.Supports(k) {
			return fmt.Errorf("--precision %s is not available here", c.Precision)
		}
		compute = k
	}
	task, _, err := arch.Detect(c.Program)
	if err != nil {
		return err
	}
	m, err := arch.Load(c.Program, dev, arch.Options{Task: task, Compute: compute})
	if err != nil {
		return err
	}
	defer m.Close()
	lanes := info.Threads
	if c.ProgramThreads > 0 && info.Kind != engine.CUDA {
		lanes = c.ProgramThreads
	}
	return printProgram(w, m.Program(), m.Compute, lanes)
}

func printProgram(w io.Writer, p *engine.Program, compute engine.Compute, lanes int) error {
	space := p.Workspace()
	_, err := fmt.Fprintf(w,
		"%s\nin %s on %d threads: lanes of %d bytes, a region of %d bytes, %d bytes (%d MiB) in all\n",
		p.Describe(), compute, lanes, space.Lane, space.Region, space.Bytes(lanes),
		(space.Bytes(lanes)+1<<20-1)>>20)
	return err
}

// Run prints the program of a model directory if one is given, and otherwise what the machine
// offers.
func (c *doctorCmd) Run() error {
	if c.Program != "" {
		return c.program(os.Stdout)
	}
	return c.machine()
}
