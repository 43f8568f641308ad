package catalog

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"
)

//go:embed models/*.yaml
var builtinModels embed.FS

//go:embed bundles/*.yaml
var builtinBundles embed.FS

// maxFiles bounds the YAML files of a directory.
const maxFiles = 5000

// Builtin returns the catalog of the embedded files. It is built once and shared.
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

// Load reads the *.yaml files at the top of each file system, not in folders. Two files with the
// same sie_id are an error. The error is a *Problems that lists all problems of all files,
// including files that cannot be read, or it says why a whole file system cannot be read.
func Load(fsys ...fs.FS) (*Catalog, error) {
	var sources []source
	for _, f := range fsys {
		sources = append(sources, source{fsys: f})
	}
	return loadSources(sources)
}

// LoadDir loads a directory as Load does and uses its path in messages. A user's directory replaces
// the built-in catalog; an empty one gives an empty catalog. Only regular files are read, and links
// to regular files within the directory. A *.yaml of another kind is a problem. LoadDir waits as
// long as the file system takes.
func LoadDir(dir string) (*Catalog, error) {
	d, err := openDirectory(dir, "models")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.root.Close() }()
	return loadModels(filepath.ToSlash(filepath.Clean(dir)), d)
}

// ReloadDir loads a directory again that was loaded before as old. A file that is now broken or
// unreadable keeps its earlier content. broken lists the problems of these files and is nil when
// there are none. An error means that there is no new catalog.
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

// LoadBundlesDir loads the bundles of a directory as LoadBundles does.
func LoadBundlesDir(dir string) (Bundles, error) {
	d, err := openDirectory(dir, "bundles")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.root.Close() }()
	return loadBundles(filepath.ToSlash(filepath.Clean(dir)), d)
}

// source is a file system and the directory name for its files in messages.
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
	out.Sort()
	return out, nil
}

// each calls visit with every *.yaml file in name order, or with the *Problems of a file that
// cannot be read. It reads at most maxFileBytes+1 bytes of each file, so that the parser can detect
// an oversized one.
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
			err = &Problems{
				List: []Problem{{File: name, Line: 1, Msg: "the file cannot be read: " + err.Error()}},
			}
		}
		visit(name, src, err)
	}
	return nil
}

// readFile reads at most one byte more than a file may have, so that the parser can detect an
// oversized file.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}
