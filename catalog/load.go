package catalog

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

//go:embed models/*.yaml
var builtinModels embed.FS

//go:embed bundles/*.yaml
var builtinBundles embed.FS

// maxFiles bounds a models directory.
const maxFiles = 5000

// Builtin returns the catalog of the files embedded in the binary. It is built once and shared.
var Builtin = sync.OnceValues(func() (*Catalog, error) {
	return loadModels("catalog/models", sub(builtinModels, "models"))
})

// BuiltinBundles returns the bundles embedded in the binary.
var BuiltinBundles = sync.OnceValues(func() (Bundles, error) {
	return loadBundles("catalog/bundles", sub(builtinBundles, "bundles"))
})

func sub(fsys fs.FS, dir string) fs.FS {
	out, err := fs.Sub(fsys, dir)
	if err != nil {
		panic(err) // dir is a constant and embedded
	}
	return out
}

// Load reads the *.yaml files at the top of each file system, without going into folders. Two files
// with one sie_id are an error. The error is a *Problems with everything wrong in all files, those
// that cannot be read included, or says why a whole file system cannot be.
func Load(fsys ...fs.FS) (*Catalog, error) {
	var sources []source
	for _, f := range fsys {
		sources = append(sources, source{fsys: f})
	}
	return loadSources(sources)
}

// LoadDir is Load for a directory, whose path then appears in messages. A user's directory replaces
// the built-in catalog; an empty one gives an empty catalog. Only regular files are read, and links
// to such within the directory; a *.yaml of another kind is a problem. It takes as long as the file
// system does.
func LoadDir(dir string) (*Catalog, error) {
	d, err := openDirectory(dir, "models")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.root.Close() }()
	return loadModels(filepath.ToSlash(filepath.Clean(dir)), d)
}

// ReloadDir is LoadDir for a directory that was loaded before as old: a file that is broken now, or
// cannot be read, counts as what it said then, and what is wrong with it is returned beside the
// catalog; nil when nothing is. An error means that there is no new catalog at all.
func ReloadDir(dir string, old *Catalog) (c *Catalog, broken *Problems, err error) {
	d, err := openDirectory(dir, "models")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = d.root.Close() }()
	before := make(map[string]*Model)
	for _, m := range old.models {
		before[path.Base(m.File)] = m
	}
	all := &Problems{}
	var models []*Model
	var warnings []Problem
	err = source{filepath.ToSlash(filepath.Clean(dir)), d}.each(func(name string, src []byte, err error) {
		var m *Model
		var warn []Problem
		if err == nil {
			m, warn, err = ParseModel(name, src)
		}
		if err == nil {
			_, err = build([]*Model{m}) // its profiles resolve
		}
		if err != nil {
			all.merge(err)
			m = before[path.Base(name)]
		}
		if m != nil {
			models, warnings = append(models, m), append(warnings, warn...)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	if c, err = build(models); err != nil {
		return nil, nil, err
	}
	c.warnings = warnings
	if len(all.List) == 0 {
		return c, nil, nil
	}
	return c, all, nil
}

// LoadBundles reads the *.yaml files at the top of a file system.
func LoadBundles(fsys fs.FS) (Bundles, error) { return loadBundles("", fsys) }

// LoadBundlesDir is LoadBundles for a directory.
func LoadBundlesDir(dir string) (Bundles, error) {
	d, err := openDirectory(dir, "bundles")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.root.Close() }()
	return loadBundles(filepath.ToSlash(filepath.Clean(dir)), d)
}

// source is a file system and the name its files have in messages.
type source struct {
	dir  string
	fsys fs.FS
}

func loadModels(dir string, fsys fs.FS) (*Catalog, error) {
	return loadSources([]source{{dir, fsys}})
}

func loadSources(sources []source) (*Catalog, error) {
	all := &Problems{}
	var models []*Model
	var warnings []Problem
	for _, s := range sources {
		err := s.each(func(name string, src []byte, err error) {
			var m *Model
			var warn []Problem
			if err == nil {
				m, warn, err = ParseModel(name, src)
			}
			warnings = append(warnings, warn...)
			if err != nil {
				all.merge(err)
				return
			}
			models = append(models, m)
		})
		if err != nil {
			return nil, err
		}
	}
	if len(all.List) > 0 {
		return nil, all
	}
	c, err := build(models)
	if err != nil {
		return nil, err
	}
	c.warnings = warnings
	return c, nil
}

func loadBundles(dir string, fsys fs.FS) (Bundles, error) {
	all := &Problems{}
	var out Bundles
	byName := map[string]*Bundle{}
	err := source{dir, fsys}.each(func(name string, src []byte, err error) {
		var b *Bundle
		if err == nil {
			b, err = ParseBundle(name, src)
		}
		if err != nil {
			all.merge(err)
			return
		}
		if first := byName[b.Name]; first != nil {
			all.merge(&Problems{List: []Problem{{File: name, Line: 1, Key: "name",
				Msg: fmt.Sprintf("bundle %q is already defined by %s", b.Name, first.File)}}})
			return
		}
		byName[b.Name] = b
		out = append(out, b)
	})
	if err != nil {
		return nil, err
	}
	if len(all.List) > 0 {
		return nil, all
	}
	slices.SortFunc(out, func(a, b *Bundle) int {
		if a.Priority != b.Priority {
			return a.Priority - b.Priority
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

// each calls visit with every *.yaml file in name order, or with the *Problems of one that cannot
// be read. At most maxFileBytes+1 bytes of each are read, so that an oversized file is seen as
// such.
func (s source) each(visit func(name string, src []byte, err error)) error {
	entries, err := fs.ReadDir(s.fsys, ".")
	if err != nil {
		return fmt.Errorf("read %s: %w", s.dir, err)
	}
	n := 0
	for _, e := range entries {
		if e.IsDir() || path.Ext(e.Name()) != ".yaml" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if n++; n > maxFiles {
			return fmt.Errorf("%s has more than %d YAML files", s.dir, maxFiles)
		}
		name := path.Join(s.dir, e.Name())
		src, err := readFile(s.fsys, e.Name())
		if err != nil {
			err = &Problems{List: []Problem{{File: name, Line: 1, Msg: "the file cannot be read: " + err.Error()}}}
		}
		visit(name, src, err)
	}
	return nil
}

// readFile reads one byte more than a file may have, so that who parses it sees that it is too
// long.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}
