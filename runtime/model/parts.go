package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/tokenizer"
	"github.com/sie-engine/sie/weights/hub"
)

// parts are the repositories that a model is loaded from: its own; those that lend it their
// tokenizer, ordered by id; and those of the adapters that its profiles name. A model has lenders
// if it lacks a tokenizer, of its texts or of its label tower. All are held together.
type parts struct {
	model    hub.Resolved
	lenders  []hub.Resolved
	lent     []string // the lenders' ids
	adapters []hub.Resolved
}

// needed names the repositories of a model.
type needed struct {
	id, revision string
	lenders      map[string]string // id → commit
	adapters     []LoRAKey
	strict       bool // an adapter that cannot be had is an error
}

// find finds all parts on this machine. It reports false where one is missing.
func (p *parts) find(ctx context.Context, h *hub.Resolver, n needed) (ok bool, err error) {
	if p.model, ok, err = h.Find(ctx, n.id, n.revision); !ok || err != nil {
		return false, err
	}
	if ok, err = p.findTokenizers(ctx, h, n.lenders); !ok || err != nil {
		return false, err
	}
	for _, key := range n.adapters {
		found, here, err := h.FindAdapter(ctx, key.onHub())
		if err == nil && here {
			p.adapters = append(p.adapters, found)
		}
		ok = ok && (here || err != nil) // an error is told when the adapter is loaded
	}
	p.keepTogether()
	return ok, nil
}

// fetch finds or downloads all parts, which report as one download. An adapter that cannot be had
// is an error only where n is strict: a server's model is of use without it, and the adapter's own
// load says why.
func (p *parts) fetch(ctx context.Context, h *hub.Resolver, name string, n needed) (err error) {
	ctx, end := hub.Together(ctx, name)
	if p.model, err = h.Resolve(ctx, n.id, n.revision); err != nil {
		return err
	}
	if err := p.fetchTokenizers(ctx, h, n.lenders); err != nil {
		return err
	}
	for _, key := range n.adapters {
		found, err := h.ResolveAdapter(ctx, key.onHub())
		if err == nil {
			p.adapters = append(p.adapters, found)
		} else if n.strict {
			return err
		}
	}
	p.keepTogether()
	end()
	return nil
}

// keepTogether has the parts stay in the cache with their model.
func (p *parts) keepTogether() { p.model.KeepWith(slices.Concat(p.lenders, p.adapters)...) }

// Pull downloads all parts of a model that this machine lacks, as one download, and returns their
// directories.
func Pull(ctx context.Context, h *hub.Resolver, m *catalog.Resolved) (dirs []string, err error) {
	var p parts
	defer p.release()
	n := needed{id: m.HFID, revision: m.Revision, lenders: m.Model.HFTokenizerDependencies,
		adapters: adapterKeysOf([]*catalog.Resolved{m}), strict: true}
	if len(m.Members) > 0 {
		for _, one := range m.Members {
			more, err := Pull(ctx, h, one)
			if err != nil {
				return nil, err
			}
			dirs = append(dirs, more...)
		}
		return dirs, nil
	}
	if err := p.fetch(ctx, h, m.ID, n); err != nil {
		return nil, err
	}
	for _, part := range slices.Concat([]hub.Resolved{p.model}, p.lenders, p.adapters) {
		dirs = append(dirs, part.Dir)
	}
	return dirs, nil
}

// lendersOf returns the ids of from, or nil if the model has its own tokenizers. Of several, it is
// the one alone that the files of a model with one tokenizer name: a union's are those of all its
// members.
func (p *parts) lendersOf(from map[string]string) []string {
	own, err := arch.TokenizerFolder(p.model.Dir)
	tower, labels, failed := arch.LabelTokenizer(p.model.Dir)
	if err != nil || failed != nil { // load reports the error
		return nil
	}
	if hasTokenizer(own) && (tower == "" || labels != "") {
		return nil
	}
	if name := arch.Backbone(p.model.Dir); tower == "" && from[name] != "" {
		return []string{name}
	}
	return slices.Sorted(maps.Keys(from))
}

// findTokenizers finds the lenders, whose commits are pinned, on this machine. It reports false
// where one is missing.
func (p *parts) findTokenizers(ctx context.Context, h *hub.Resolver, from map[string]string) (bool, error) {
	for _, id := range p.lendersOf(from) {
		found, ok, err := h.FindTokenizer(ctx, id, from[id])
		if !ok || err != nil {
			return false, ofLender(id, err)
		}
		p.lenders, p.lent = append(p.lenders, found), append(p.lent, id)
	}
	return true, nil
}

// fetchTokenizers finds or downloads the lenders.
func (p *parts) fetchTokenizers(ctx context.Context, h *hub.Resolver, from map[string]string) error {
	for _, id := range p.lendersOf(from) {
		found, err := h.ResolveTokenizer(ctx, id, from[id])
		if err != nil {
			return ofLender(id, err)
		}
		p.lenders, p.lent = append(p.lenders, found), append(p.lent, id)
	}
	return nil
}

// ofLender says in an error which repository it is about.
func ofLender(id string, err error) error {
	if e, ok := errors.AsType[*hub.Error](err); ok {
		e.Message = "hf_tokenizer_dependencies: " + id + " " + e.Message
	}
	return err
}

// tokenizerFolder returns the folder of the model's own tokenizer, or of the first lender's where
// the model has none. The lender of a label tower is none where there is another.
func (p *parts) tokenizerFolder() (string, error) {
	own, err := arch.TokenizerFolder(p.model.Dir)
	if err != nil || len(p.lenders) == 0 || hasTokenizer(own) {
		return own, err
	}
	tower, _, err := arch.LabelTokenizer(p.model.Dir)
	if err != nil {
		return "", err
	}
	lender := 0
	if len(p.lent) > 1 && p.lent[0] == tower {
		lender = 1
	}
	folder := p.lenders[lender].Dir
	return folder, arch.CheckTokenizer(folder)
}

// labelTokenizer loads the tokenizer of the model's label tower: the model's own, or that of the
// lender that has the encoder's name, or of the only one. It returns nil without a label tower.
func (p *parts) labelTokenizer() (*tokenizer.Tokenizer, error) {
	tower, folder, err := arch.LabelTokenizer(p.model.Dir)
	if err != nil || tower == "" {
		return nil, err
	}
	if i := slices.Index(p.lent, tower); folder == "" && i >= 0 {
		folder = p.lenders[i].Dir
	} else if folder == "" && len(p.lenders) == 1 {
		folder = p.lenders[0].Dir
	}
	if folder == "" {
		return nil, &arch.ModelError{File: "gliner_config.json", Field: "labels_encoder", Reason: fmt.Sprintf(
			"is %.100q, whose tokenizer is not among the model's files; name it with its commit under hf_tokenizer_dependencies of the model's entry",
			tower)}
	}
	if err := arch.CheckTokenizer(folder); err != nil {
		return nil, err
	}
	t, err := tokenizer.Load(folder)
	if err != nil {
		return nil, tokenizerError{err}
	}
	return t, nil
}

// hasTokenizer reports whether a folder has a vocabulary.
func hasTokenizer(dir string) bool {
	return slices.ContainsFunc(hub.Vocabularies, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// release ends the use of all repositories, the model's last.
func (p *parts) release() {
	for _, part := range slices.Concat(p.lenders, p.adapters, []hub.Resolved{p.model}) {
		part.Release()
	}
	*p = parts{}
}
