package main

import (
	"fmt"
	"io"
	"os"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
)

// program prints the program that a model directory is recorded as on the first chosen device, and
// the memory that its batches take there; then the same for what texts begin with, where they share
// it, and for longer texts, where the model takes any.
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
	compute, err := c.compute(info)
	if err != nil {
		return err
	}
	if c.ProgramThreads > 0 && info.Kind != engine.CUDA {
		info.Threads = c.ProgramThreads
	}
	task, _, err := arch.Detect(c.Program)
	if err != nil {
		return err
	}
	m, err := arch.Load(c.Program, dev, arch.Options{Task: task, Compute: compute,
		MaxTokens: arch.TokensFor(info, 0)})
	if err != nil {
		return err
	}
	defer m.Close()
	lanes := info.Threads
	if err := printProgram(w, m.Program(), m.Compute, lanes); err != nil {
		return err
	}
	own := m.Own()
	if m.SharesPrefixes(own) {
		if err := printPrefixes(w, m, lanes); err != nil {
			return err
		}
	}
	if m.MaxSeqLen == m.ShortLen {
		return nil
	}
	own.Long = true
	long, err := m.Record(own)
	if err != nil {
		return err
	}
	defer long.Close()
	if _, err = fmt.Fprintf(w, "\ntexts of %d to %d tokens:\n", m.ShortLen+1, m.MaxSeqLen); err != nil {
		return err
	}
	return printProgram(w, long, m.Compute, lanes)
}

// compute returns the class that --precision names, or 0 for the device's default.
func (f *computeFlags) compute(info engine.Info) (engine.Compute, error) {
	if f.Precision == "auto" || f.Precision == "" {
		return 0, nil
	}
	k, ok := engine.ParseCompute(f.Precision)
	if !ok || !info.Supports(k) {
		return 0, fmt.Errorf("--precision %s is not available here", f.Precision)
	}
	return k, nil
}

func printProgram(w io.Writer, p *engine.Program, compute engine.Compute, lanes int) error {
	space := p.Workspace()
	_, err := fmt.Fprintf(w,
		"%s\nin %s on %d threads: lanes of %d bytes, a region of %d bytes, %d bytes (%d MiB) in all\n",
		p.Describe(), compute, lanes, space.Lane, space.Region, space.Bytes(lanes),
		(space.Bytes(lanes)+1<<20-1)>>20)
	return err
}

// printPrefixes prints the program of what texts begin with, and the state that it writes.
func printPrefixes(w io.Writer, m *arch.Model, lanes int) error {
	p, err := m.RecordPrefixes(nil)
	if err != nil {
		return err
	}
	defer p.Close()
	if _, err = fmt.Fprintf(w, "\nwhat texts begin with, once for all of a batch:\n"); err != nil {
		return err
	}
	if err := printProgram(w, p, m.Compute, lanes); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "its keys and values: %d bytes (%d MiB) for each batch in flight\n",
		p.StateBytes(), (p.StateBytes()+1<<20-1)>>20)
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
