package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"

	"github.com/schollz/progressbar/v3"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/weights/hub"
)

type modelsCmd struct {
	sourceFlags `embed:""`

	Documents string `help:"Write the file of each listed model to this directory, and print the ids of -m in their order, instead of the list: for sie-config and gateways, which cannot look into a directory or a repository of -m themselves." type:"path"`
}

func (c *modelsCmd) Run() error {
	cat, err := c.catalog()
	if err != nil {
		return err
	}
	if c.Documents != "" {
		if err := writeDocuments(c.Documents, cat); err != nil {
			return err
		}
		defaults, err := defaultModels(nil, ids(c.Models), cat)
		for _, id := range defaults {
			fmt.Println(id)
		}
		return err
	}
	_, opt, err := c.hub(nil, nil)
	if err != nil {
		return err
	}
	opt.Offline, opt.Bucket = true, nil // look only at this machine
	cache, err := hub.New(opt)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "MODEL\tOUTPUTS\tDIM\tTOKENS\tWEIGHTS\tNOTE")
	for _, m := range cat.List() {
		note := ""
		if err := m.Usable(); err != nil {
			_, note, _ = strings.Cut(err.Error(), ": ")
		}
		where := "on the hub"
		switch {
		case m.WeightsPath != "":
			where = m.WeightsPath
		case m.HFID == "":
			where = "none needed"
		default:
			if cached(cache, m) {
				where = "cached"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n",
			m.ID, strings.Join(m.Outputs, ","), dims(m), orDash(m.MaxSequenceLength), where, note)
	}
	return t.Flush()
}

// cached reports whether the weights of an entry, or of all members of a union, are on this
// machine.
func cached(cache *hub.Resolver, m *catalog.Resolved) bool {
	for _, one := range append([]*catalog.Resolved{m}, m.Members...) {
		if _, err := cache.Resolve(context.Background(), one.HFID, one.Revision); err != nil {
			return false
		}
	}
	return true
}

// writeDocuments writes the source of every model of a catalog to a directory, which it makes.
func writeDocuments(dir string, cat *catalog.Catalog) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, m := range cat.Models() {
		name := filepath.Join(dir, strings.ReplaceAll(m.ID, "/", "__")+".yaml")
		if err := os.WriteFile(name, m.Source(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func dims(m *catalog.Resolved) string {
	var out []string
	for _, o := range m.Outputs {
		if d := m.Dims[o]; d > 0 {
			out = append(out, fmt.Sprint(d))
		}
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, ",")
}

func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

type pullCmd struct {
	sourceFlags `embed:""`

	Model []string `arg:"" help:"Model ids."`
	Quiet bool     `help:"Print nothing; the exit status tells." short:"q"`
}

func (c *pullCmd) Run() error {
	cat, err := c.catalog()
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	bars := &downloadBars{quiet: c.Quiet}
	h, _, err := c.hub(bars.update, nil)
	if err != nil {
		return err
	}
	for _, id := range c.Model {
		var dirs []string
		switch m, err := cat.Resolve(id); {
		case err == nil && m.HFID == "":
			return fmt.Errorf("model %s has no weights on the hub", id)
		case err != nil && !strings.Contains(id, "/"):
			return fmt.Errorf("%s: not in the catalog%s", id, hint(cat, id))
		case err != nil:
			dirs, err = pullRepo(ctx, h, id)
			if err != nil {
				return c.failed(err)
			}
		default:
			if dirs, err = model.Pull(ctx, h, m); err != nil {
				return c.failed(err)
			}
		}
		for _, dir := range dirs {
			if !c.Quiet {
				fmt.Println(dir)
			}
		}
	}
	h.Shutdown(ctx)
	return nil
}

// failed returns the error of a download, or ends the process where nothing may be printed.
func (c *pullCmd) failed(err error) error {
	if c.Quiet {
		os.Exit(1)
	}
	return err
}

// pullRepo downloads a repository that no model file names and, where it holds an adapter, its
// base.
func pullRepo(ctx context.Context, h *hub.Resolver, id string) (dirs []string, err error) {
	ctx, end := hub.Together(ctx, id)
	found, err := h.Resolve(ctx, id, "")
	if err != nil {
		return nil, err
	}
	defer found.Release()
	dirs = append(dirs, found.Dir)
	a, isAdapter, err := arch.ReadAdapterBase(found.Dir)
	if err != nil {
		return nil, err
	}
	if isAdapter { // a model of two repositories
		base, err := h.Resolve(ctx, a.Model, a.Revision)
		if err != nil {
			return nil, err
		}
		base.KeepWith(found)
		base.Release()
		dirs = append(dirs, base.Dir)
	}
	end()
	return dirs, nil
}

// downloadBars shows one progress bar per model.
type downloadBars struct {
	quiet bool
	mu    sync.Mutex
	bars  map[string]*progressbar.ProgressBar
}

func (d *downloadBars) update(p hub.Progress) {
	if d.quiet {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bars == nil {
		d.bars = map[string]*progressbar.ProgressBar{}
	}
	total := p.Total
	if p.Stage != hub.StageDone {
		total++ // a full bar is finished, and more of the model may come
	}
	b := d.bars[p.Model]
	if b == nil {
		b = progressbar.DefaultBytes(total, p.Model)
		d.bars[p.Model] = b
	}
	b.ChangeMax64(total)
	_ = b.Set64(p.Bytes)
}

func has(list []*catalog.Resolved, id string) bool {
	for _, m := range list {
		if m.ID == id {
			return true
		}
	}
	return false
}
