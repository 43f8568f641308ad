package model

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/weights/hub"
)

// parts are the repositories that a model is loaded from: its own, and those that lend it their
// tokenizer, ordered by id; a model with a tokenizer has no lenders. All are held together.
type parts struct {
	model   hub.Resolved
	lenders []hub.Resolved
}

// lendersOf returns the ids of from, or nil if the model has its own tokenizer.
func (p *parts) lendersOf(from map[string]string) []string {
	own, err := arch.TokenizerFolder(p.model.Dir)
	if err != nil || hasTokenizer(own) { // load reports the error
		return nil
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
		p.lenders = append(p.lenders, found)
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
		p.lenders = append(p.lenders, found)
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
// the model has none.
func (p *parts) tokenizerFolder() (string, error) {
	own, err := arch.TokenizerFolder(p.model.Dir)
	if err != nil || len(p.lenders) == 0 {
		return own, err
	}
	return p.lenders[0].Dir, nil
}

// hasTokenizer reports whether a folder has a vocabulary.
func hasTokenizer(dir string) bool {
	return slices.ContainsFunc(hub.Vocabularies, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// release ends the use of all repositories.
func (p *parts) release() {
	p.model.Release()
	for _, l := range p.lenders {
		l.Release()
	}
	*p = parts{}
}
