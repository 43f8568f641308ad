package without

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// Patch replaces one piece of one file.
type Patch struct {
	File string // from the top of the tree
	Old  string // matches exactly once
	New  string
}

// apply returns the text of the file with the patch in it.
func (p Patch) apply(text string) (string, error) {
	switch n := strings.Count(text, p.Old); {
	case p.Old == "" || p.Old == p.New:
		return "", fmt.Errorf("%s: the patch changes nothing", p.File)
	case n != 1:
		return "", fmt.Errorf("%s: %q is there %d times, not once", p.File, p.Old, n)
	}
	text = strings.Replace(text, p.Old, p.New, 1)
	if _, err := parser.ParseFile(token.NewFileSet(), p.File, text, parser.SkipObjectResolution); err != nil {
		return "", fmt.Errorf("%s: not Go with the patch in it: %w", p.File, err)
	}
	return text, nil
}

// patched returns the texts of the files that the patches change, by their path from top.
func patched(top string, patches []Patch) (map[string]string, error) {
	if len(patches) == 0 {
		return nil, errors.New("there is no patch")
	}
	out := map[string]string{}
	for _, p := range patches {
		text, ok := out[p.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(top, p.File))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		text, err := p.apply(text)
		if err != nil {
			return nil, err
		}
		out[p.File] = text
	}
	return out, nil
}

// overlay writes the patched files of a fix to dir and returns the file for -overlay.
func overlay(top, dir string, f *Fix) (string, error) {
	texts, err := patched(top, f.Patches)
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.Name, err)
	}
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(top, file)] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, b, 0o644)
}
