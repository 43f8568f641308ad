package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/sie-engine/sie/catalog"
)

// step is one change that brings sie-config to what a directory says.
type step struct {
	verb string // add, replace or remove
	id   string
	body []byte // of add and replace
}

// plan compares a directory of model files with what sie-config exports. With prune, what was added
// there and the directory has not goes; built-in models stay in any case. Steps are ordered by id,
// removals last. An empty directory with prune is an error.
func (r *remote) plan(ctx context.Context, dir string, prune bool) ([]step, error) {
	wanted, err := catalog.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	if prune && len(wanted.Models()) == 0 {
		return nil, fmt.Errorf("--dir %s holds no model file, so that --prune would remove every added model: "+
			"is it the right directory? A single model is removed with DELETE /v1/configs/models/{id}", dir)
	}
	var export struct {
		Models []struct {
			ID     string `json:"model_id"`
			YAML   string `json:"raw_yaml"`
			Source string `json:"source"`
		} `json:"models"`
	}
	if err := r.call(ctx, "GET", "/v1/configs/export", nil, &export); err != nil {
		return nil, fmt.Errorf("read what %s has: %w", r.URL, err)
	}
	has := map[string]map[string]any{}
	var added []string
	for _, m := range export.Models {
		content, err := catalog.Document{Name: m.ID, Source: []byte(m.YAML)}.Content()
		if err != nil {
			return nil, fmt.Errorf("%s exports %q: %w", r.URL, m.ID, err)
		}
		has[m.ID] = content
		if m.Source == "api" {
			added = append(added, m.ID)
		}
	}
	var steps []step
	keep := map[string]bool{}
	for _, m := range wanted.Models() {
		keep[m.ID] = true
		switch old, known := has[m.ID]; {
		case !known:
			steps = append(steps, step{"add", m.ID, m.Source()})
		case !catalog.Equal(old, m.Document()):
			steps = append(steps, step{"replace", m.ID, m.Source()})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.id, b.id) })
	slices.Sort(added)
	for _, id := range added {
		if prune && !keep[id] {
			steps = append(steps, step{"remove", id, nil})
		}
	}
	return steps, nil
}

// show writes the steps, a line each.
func show(to io.Writer, steps []step) {
	for _, s := range steps {
		fmt.Fprintf(to, "%-8s %s\n", s.verb, s.id)
	}
}
