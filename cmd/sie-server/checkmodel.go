package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/task"
	"github.com/sie-engine/sie/weights/hub"
)

type checkModelCmd struct {
	sourceFlags  `embed:""`
	computeFlags `embed:""`

	Model   []string `arg:"" help:"Directories, ids of the catalog or of the hub; all: every text model of the catalog with a recorded number, with --compare."`
	Compare bool     `help:"Download and load each model, encode the reference's probe texts, and compare with the numbers that the reference recorded."`
}

// maxListed bounds the names that check-model prints of one kind.
const maxListed = 40

// Run looks at models without reading their weights, or with --compare runs them. It fails if one
// of them cannot be served, or differs.
func (c *checkModelCmd) Run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if c.Compare {
		return c.compare(ctx, os.Stdout)
	}
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
	return c.check(ctx, os.Stdout, dev, compute)
}

// check looks at each model in turn.
func (c *checkModelCmd) check(
	ctx context.Context, w io.Writer, dev *engine.Device, compute engine.Compute,
) error {
	resolver, _, err := c.hub(nil, nil)
	if err != nil {
		return err
	}
	defer resolver.Close()
	var failures []error
	for i, ref := range c.Model {
		if len(c.Model) > 1 {
			fmt.Fprintf(w, "%s%s\n", strings.Repeat("\n", min(i, 1)), ref)
		}
		err := c.look(ctx, w, resolver, ref, dev, compute)
		if err != nil && len(c.Model) > 1 {
			fmt.Fprintf(w, "%v\n", err)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// look prints what one model holds.
func (c *checkModelCmd) look(
	ctx context.Context, w io.Writer, resolver *hub.Resolver, ref string,
	dev *engine.Device, compute engine.Compute,
) error {
	m, err := c.entry(ref)
	if err != nil {
		return err
	}
	if len(m.Members) == 0 {
		return c.lookAt(ctx, w, resolver, ref, m, dev, compute)
	}
	for i, one := range m.Members {
		fmt.Fprintf(w, "%smember        %s\n", strings.Repeat("\n", min(i, 1)), one.ID)
		if err := c.lookAt(ctx, w, resolver, one.ID, one, dev, compute); err != nil {
			return err
		}
	}
	return nil
}

// lookAt prints what the weights of an entry hold, which the user calls ref.
func (c *checkModelCmd) lookAt(
	ctx context.Context, w io.Writer, resolver *hub.Resolver, ref string, m *catalog.Resolved,
	dev *engine.Device, compute engine.Compute,
) error {
	var err error
	dir := m.WeightsPath
	if dir == "" {
		var remove func()
		if dir, remove, err = resolver.Headers(ctx, m.HFID, m.Revision); err != nil {
			return err
		}
		defer remove()
	}
	return checkModel(w, ref, dir, m, dev, compute)
}

// source returns the flags with the model of a reference among those that they select. A bundle,
// which may come from the environment, is no reason to refuse a model that is named.
func (c *checkModelCmd) source(ref string) sourceFlags {
	s := c.sourceFlags
	if s.Bundle != "" {
		s.preload, s.preloadFlag = []string{ref}, "--models"
	} else {
		s.Models = append(slices.Clip(s.Models), ref)
	}
	return s
}

// entry returns the catalog's entry for a reference, or an ad-hoc one.
func (c *checkModelCmd) entry(ref string) (*catalog.Resolved, error) {
	source := c.source(ref)
	cat, err := source.catalog()
	if err != nil {
		return nil, err
	}
	m, err := cat.Resolve(refID(ref))
	if err != nil {
		return nil, err
	}
	if err := m.Usable(); err != nil {
		return nil, err
	}
	if m.WeightsPath == "" && m.HFID == "" {
		return nil, fmt.Errorf("%s: the model has no weights", ref)
	}
	return m, nil
}

// checkModel prints what the files in dir hold for the model m, which the user calls ref.
func checkModel(
	w io.Writer, ref, dir string, m *catalog.Resolved, dev *engine.Device, compute engine.Compute,
) error {
	_, labels, err := arch.Detect(dir)
	if err != nil {
		return err
	}
	o := checkOptions(m, compute)
	r, err := arch.Check(dir, dev, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "architecture  %s, %d blocks, up to %d tokens\n", r.Arch, r.Layers, r.Tokens)
	fmt.Fprintf(w, "task          %s%s\n", o.Task, listOf(", labels ", labels))
	fmt.Fprintf(w, "parts         %s\n", strings.Join(r.Parts, ", "))
	fmt.Fprintf(w, "tensors       %d read, %d wrong or missing, %d left over\n",
		r.Read, len(r.Problems), len(r.LeftOver))
	fmt.Fprintf(w, "memory        %d MiB in %s, and %d MiB more while it is packed\n",
		mebibytes(r.Size.Packed), r.Compute, mebibytes(r.Size.Passing))
	for i, says := range differences(m, r) {
		fmt.Fprintf(w, "%-14s%s\n", []string{"reference", ""}[min(i, 1)], says)
	}
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
		return fmt.Errorf("%s cannot be served: %d tensors are wrong or missing", ref, len(r.Problems))
	}
	return nil
}

// checkOptions returns the options with which a model is looked at.
func checkOptions(m *catalog.Resolved, compute engine.Compute) arch.Options {
	o := arch.Options{Task: task.Tasks()[m.Family], Compute: compute, MaxSeqLen: m.MaxSequenceLength,
		Dense: m.Loadtime.DenseProjectionPath}
	if m.Judging().Format != "" { // which tokens they are does not change what is read
		o.Answers = []int32{0, 1}
	}
	return o
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
