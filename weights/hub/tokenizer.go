package hub

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
)

// tokenizerFiles lists the files of a tokenizer, at the top of a repository.
var tokenizerFiles = []string{
	"added_tokens.json", "bpe.codes", "chat_template.jinja", "config.json", "merges.txt",
	"sentencepiece.bpe.model", "special_tokens_map.json", "spiece.model", "spm.model", "tokenizer.json",
	"tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt",
}

// Vocabularies are those of tokenizerFiles of which a tokenizer has one at least.
var Vocabularies = []string{
	"sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.json", "tokenizer.model", "vocab.json",
	"vocab.txt",
}

// ResolveTokenizer returns a directory with the tokenizer of a repository, as Resolve does for a
// model. Only the files of the tokenizer are downloaded. A repository without one is refused.
func (r *Resolver) ResolveTokenizer(ctx context.Context, id, revision string) (Resolved, error) {
	ref, err := tokenizerRef(id, revision)
	var found Resolved
	if err == nil {
		found, err = r.search(ctx, ref)
	}
	return found, named(id, err)
}

// FindTokenizer looks for the tokenizer of a repository on this machine, as Find does for a model.
func (r *Resolver) FindTokenizer(
	ctx context.Context, id, revision string,
) (found Resolved, ok bool, err error) {
	ref, err := tokenizerRef(id, revision)
	if err == nil {
		found, ok, err = r.onDisk(ctx, ref)
	}
	return found, ok, named(id, err)
}

func tokenizerRef(id, revision string) (modelRef, error) {
	ref, err := parseRef(id, revision)
	ref.tokenizer = true
	return ref, err
}

// named gives an error the name of the model.
func named(id string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Model = short(id)
	}
	return err
}

// asTokenizer removes all files but the tokenizer's from a listing. It fails when there is none.
func (l *listing) asTokenizer() error {
	whole := len(l.files)
	l.files = slices.DeleteFunc(l.files,
		func(f remoteFile) bool { return !slices.Contains(tokenizerFiles, f.name) })
	isVocabulary := func(f remoteFile) bool { return slices.Contains(Vocabularies, f.name) }
	if !slices.ContainsFunc(l.files, isVocabulary) {
		return fail(ClassConfig, nil, "has no tokenizer: one of %q is wanted", Vocabularies)
	}
	l.part = l.part || len(l.files) < whole
	return nil
}

// findTokenizer looks for a complete tokenizer in the snapshot of a commit. files are those of its
// manifest, or nil when it has none.
func (c repoCache) findTokenizer(commit string, files map[string]int64) cached {
	dir := c.snapshot(commit)
	here := func(name string) bool { return exists(filepath.Join(dir, name)) }
	if !slices.ContainsFunc(Vocabularies, here) {
		return cached{commit: commit, missing: "the cached snapshot lacks a tokenizer"}
	}
	own := maps.Clone(files)
	maps.DeleteFunc(own, func(name string, _ int64) bool { return !slices.Contains(tokenizerFiles, name) })
	if missing := c.missingFile(commit, own); missing != "" {
		return cached{commit: commit, missing: missing}
	}
	return cached{dir: dir, commit: commit}
}
