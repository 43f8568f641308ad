package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/task"
	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/hub"
)

// modelSelection is the part of the catalog that the flags ask for, with the models that they add.
type modelSelection struct {
	catalog *catalog.Catalog
	preload []string // ids of --preload
	bundle  *catalog.Bundle
	hash    string // of the bundle's models; "" without one
}

// catalog reads the catalog that the flags describe.
func (f *sourceFlags) catalog() (*catalog.Catalog, error) {
	all, err := f.files()
	if err != nil {
		return nil, err
	}
	s, err := f.narrow(context.Background(), all)
	return s.catalog, err
}

// files reads the model files that the flags name, or else the built-in ones.
func (f *sourceFlags) files() (*catalog.Catalog, error) {
	switch {
	case f.ModelsDir == "":
		return catalog.Builtin()
	case bucket.IsURL(f.ModelsDir):
		return loadFromBucket(f.ModelsDir)
	}
	return catalog.LoadDir(kong.ExpandPath(f.ModelsDir))
}

// narrow keeps the models of all that the flags ask for. It adds the models that the flags name and
// that have no model file. ctx bounds the questions to the hub.
func (f *sourceFlags) narrow(ctx context.Context, all *catalog.Catalog) (s modelSelection, err error) {
	r := refs{all: all, onHub: func(id string) (*catalog.Model, error) { return f.adHocHub(ctx, id) },
		onAdapter: func(id, dir string, a arch.AdapterBase) (*catalog.Model, error) {
			resolver, _, err := f.hub(nil, nil)
			if err != nil {
				return nil, err
			}
			defer resolver.Close()
			return withAdapter(ctx, id, dir, a, resolver)
		}}
	var served []string
	for _, ref := range ids(f.Models) {
		id, err := r.add("--models", ref)
		if err != nil {
			return s, err
		}
		served = append(served, id)
	}
	for _, ref := range ids(f.preload) {
		if _, err := all.Resolve(ref); err != nil && slices.Contains(f.known, ref) {
			continue // its file is gone
		}
		id, err := r.add(cmp.Or(f.preloadFlag, "--preload"), ref)
		if err != nil {
			return s, err
		}
		s.preload = append(s.preload, id)
	}
	s.catalog = all
	switch {
	case f.Bundle != "":
		bundles, err := catalog.BuiltinBundles()
		if err != nil {
			return s, err
		}
		if s.bundle, err = bundles.ByName(f.Bundle); err != nil {
			return s, fmt.Errorf("--bundle: %w", err)
		}
		s.catalog = all.InBundle(s.bundle)
		s.hash = s.catalog.BundleConfigHash(s.bundle)
		if s.catalog, err = r.merged(s.catalog, s.preload); err != nil {
			return s, err
		}
	case len(served) > 0:
		s.catalog, _ = all.Select(append(served, s.preload...))
	}
	if len(r.extra) > 0 {
		s.catalog, err = s.catalog.With(r.extra...)
	}
	return s, err
}

// refs reads references to models, in the forms that --models and --preload accept:
//   - a catalog id;
//   - "id=directory", which takes the model's weights from the directory;
//   - a directory;
//   - the id of a hub repository, for which onHub makes a model.
type refs struct {
	all   *catalog.Catalog
	onHub func(id string) (*catalog.Model, error)
	// onAdapter makes a model of a directory that holds an adapter of a.Model.
	onAdapter func(id, dir string, a arch.AdapterBase) (*catalog.Model, error)
	extra     []*catalog.Model // models that are not in all, or that differ from those in it
}

// add reads a reference of a flag and returns the id that the model is served under.
func (r *refs) add(flag, ref string) (string, error) {
	id, dir, pinned := strings.Cut(ref, "=")
	switch {
	case pinned:
		m, err := withWeights(r.all, id, dir)
		return id, r.put(flag, ref, m, err)
	case isPathRef(ref):
		id = catalog.AdHocID(ref)
		m, err := r.inDir(id, ref)
		return id, r.put(flag, ref, m, err)
	}
	base, profile, variant := strings.Cut(ref, ":")
	if i := r.index(base); i >= 0 {
		if m := r.extra[i]; variant && m.Profile(profile) == nil {
			return "", fmt.Errorf("%s %s: %s has no profile %q", flag, ref, base, profile)
		}
		return ref, nil
	}
	if _, missing := r.all.Select([]string{ref}); len(missing) == 0 {
		return ref, nil
	}
	if why := catalog.Later(ref); why != "" {
		return "", fmt.Errorf("%s %s: %s", flag, ref, why)
	}
	if variant || !strings.Contains(base, "/") {
		return "", fmt.Errorf("%s %s: not in the catalog%s", flag, ref, hint(r.all, ref))
	}
	m, err := r.onHub(ref)
	return ref, r.put(flag, ref, m, err)
}

// put keeps a model that a reference names. Naming a model twice is fine; two different models with
// one id are an error.
func (r *refs) put(flag, ref string, m *catalog.Model, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w", flag, ref, err)
	}
	i := r.index(m.ID)
	switch {
	case i < 0:
		r.extra = append(r.extra, m)
	case r.extra[i].WeightsPath != m.WeightsPath:
		return fmt.Errorf("%s %s: the id %s is that of %s already; give one of them another by id=directory",
			flag, ref, m.ID, r.extra[i].WeightsPath)
	}
	return nil
}

// inDir makes a model of a directory.
func (r *refs) inDir(id, dir string) (*catalog.Model, error) {
	abs, err := expandDir(dir)
	if err != nil {
		return nil, err
	}
	switch a, isAdapter, err := arch.ReadAdapterBase(abs); {
	case err != nil:
		return nil, err
	case isAdapter:
		return r.onAdapter(id, abs, a)
	}
	return adHocDir(id, dir)
}

func (r *refs) index(id string) int {
	return slices.IndexFunc(r.extra, func(m *catalog.Model) bool { return m.ID == id })
}

// merged adds to c the models of all with these ids that c lacks.
func (r *refs) merged(c *catalog.Catalog, ids []string) (*catalog.Catalog, error) {
	var more []*catalog.Model
	for _, id := range ids {
		m, err := r.all.Resolve(id)
		if _, lacks := c.Resolve(id); err == nil && lacks != nil && !slices.Contains(more, m.Model) {
			more = append(more, m.Model)
		}
	}
	return c.With(more...)
}

// isPathRef reports whether a reference is a directory.
func isPathRef(ref string) bool { return catalog.IsPath(ref) || isModelDir(ref) }

// refID returns the id that a reference is served under.
func refID(ref string) string {
	id, _, pinned := strings.Cut(strings.TrimSpace(ref), "=")
	if !pinned && isPathRef(id) {
		return catalog.AdHocID(id)
	}
	return id
}

// defaultModels returns the ids that routes without a model choose from: those of the flag, which
// must exist, else those of -m.
func defaultModels(flag, refs []string, cat *catalog.Catalog) ([]string, error) {
	var out []string
	for _, id := range flag {
		m, err := cat.Resolve(strings.TrimSpace(id))
		if err != nil {
			return nil, fmt.Errorf("--default-model: %w", err)
		}
		out = append(out, m.ID)
	}
	if out != nil {
		return out, nil
	}
	for _, ref := range refs {
		if m, err := cat.Resolve(refID(ref)); err == nil {
			out = append(out, m.ID)
		}
	}
	return out, nil
}

// ids trims the ids of a list and drops empty ones.
func ids(list []string) []string {
	var out []string
	for _, id := range list {
		if id = strings.TrimSpace(id); id != "" {
			out = append(out, id)
		}
	}
	return out
}

func hint(c *catalog.Catalog, id string) string {
	if near := c.Suggest(id); len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}

// withWeights returns the catalog's entry for id, or an ad-hoc one, with its weights in dir.
func withWeights(all *catalog.Catalog, id, dir string) (*catalog.Model, error) {
	i := slices.IndexFunc(all.Models(), func(m *catalog.Model) bool { return m.ID == id })
	if i < 0 {
		return adHocDir(id, dir)
	}
	abs, err := modelDir(dir)
	if err != nil {
		return nil, err
	}
	return all.Models()[i].WithWeights(abs)
}

// previewTime bounds asking the hub what kind of model a repository holds.
const previewTime = 30 * time.Second

// adHocHub makes a model of a hub repository without a model file, by what the repository's own
// files say. If they cannot be read now, it assumes an encoder of dense vectors; the load refuses
// the model if it is none.
func (f *sourceFlags) adHocHub(ctx context.Context, id string) (*catalog.Model, error) {
	info := catalog.AdHocInfo{HFID: id}
	resolver, _, err := f.hub(nil, nil)
	if err != nil {
		return nil, err
	}
	defer resolver.Close()
	ctx, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	dir, remove, err := resolver.Preview(ctx, id, "", arch.RepoFiles...)
	if errors.Is(err, hub.ErrOnlyAdapter) { // which is no encoder of dense vectors
		return nil, err
	}
	if err != nil {
		fmt.Fprintf(os.Stderr,
			"sie-server: warning: what %s is cannot be seen now, so it is taken for an encoder of dense vectors: %v\n",
			id, err)
		return catalog.AdHoc(id, info)
	}
	defer remove()
	switch a, isAdapter, err := arch.ReadAdapterBase(dir); {
	case err != nil:
		return nil, err
	case isAdapter:
		return withAdapter(ctx, id, id, a, resolver)
	}
	if info.Family, err = task.Detect(dir); err != nil {
		return nil, err
	}
	return catalog.AdHoc(id, info)
}

// adHocDir makes a model of a directory without a model file, by what the directory's files say.
func adHocDir(id, dir string) (*catalog.Model, error) {
	abs, err := modelDir(dir)
	if err != nil {
		return nil, err
	}
	info := catalog.AdHocInfo{WeightsPath: abs}
	if info.Family, err = task.Detect(abs); err != nil {
		return nil, err
	}
	return catalog.AdHoc(id, info)
}

// modelDir returns the absolute path of a directory that holds a model.
func modelDir(dir string) (string, error) {
	abs, err := expandDir(dir)
	if err == nil && !isModelDir(abs) {
		err = errors.New("not a model directory (it has no config.json, modules.json or gliner_config.json)")
	}
	return abs, err
}

// expandDir returns the absolute path of a directory that may begin with ~/.
func expandDir(dir string) (string, error) {
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, rest)
	}
	return filepath.Abs(dir)
}

func isModelDir(dir string) bool {
	for _, name := range []string{"config.json", "modules.json", "gliner_config.json"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() {
			return true
		}
	}
	return false
}
