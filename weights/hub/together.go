package hub

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// A model may need more than one repository: its own, and others that lend it a tokenizer or an
// adapter, its parts. They are shown as one download (Together), and leave the disk with the model
// and not before it (KeepWith).

type togetherKey struct{}

// together adds up the downloads of one model. It is safe for concurrent use.
type together struct {
	model string
	mu    sync.Mutex          // guards the rest and serialises calls
	repos map[string]Progress // the newest report of each repository
	call  func(Progress)      // nil until the first report
	all   Progress            // as reported last
}

// Together returns a context in which all downloads report as one, of the named model, whose bytes
// and files are added up. end reports that it is done, unless nothing was downloaded.
func Together(ctx context.Context, model string) (_ context.Context, end func()) {
	t := &together{model: model, repos: make(map[string]Progress)}
	return context.WithValue(ctx, togetherKey{}, t), t.end
}

// reportsOf returns the function that gets the reports of one repository: call, or what adds them
// to those of the context's model.
func reportsOf(ctx context.Context, call func(Progress)) func(Progress) {
	t, ok := ctx.Value(togetherKey{}).(*together)
	if !ok || call == nil {
		return call
	}
	return func(p Progress) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.call = call
		t.repos[p.Model] = p
		t.all = Progress{Model: t.model, Stage: p.Stage, File: p.File}
		if p.Stage == StageDone { // others may follow
			t.all.Stage = StageDownloading
		}
		for one := range maps.Values(t.repos) {
			t.all.Bytes += one.Bytes
			t.all.Total += one.Total
			t.all.Files += one.Files
			t.all.Of += one.Of
		}
		call(t.all)
	}
}

func (t *together) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.call != nil {
		t.all.Stage = StageDone
		t.call(t.all)
	}
}

// KeepWith records in the cache that parts belong to the model r. A part is not removed while its
// model is there, and it is removed with its model unless it has been used later, or belongs to
// another model, too. Directories outside the cache are no parts.
func (r Resolved) KeepWith(parts ...Resolved) {
	if r.held == nil {
		return
	}
	for _, part := range parts {
		if part.held == nil || part.repo() == r.repo() {
			continue
		}
		at := filepath.Join(partsDir(r.repo()), filepath.Base(part.repo()))
		if createRecord(at) != nil { // the cache is read-only: nothing is removed from it
			return
		}
	}
	touch(r.held.record) // not before its parts
}

// repo returns the folder of a held repository in the cache.
func (r Resolved) repo() string { return filepath.Dir(filepath.Dir(r.held.record)) }

// partsDir returns the folder that has a file for each part of a repository, with the name of the
// part's folder.
func partsDir(repo string) string { return filepath.Join(repo, ".sie", "parts") }

// owners returns the repositories of the cache that have parts: part → owners. A repository that is
// itself a part owns nothing, so that none keep each other forever.
func (d disk) owners() map[string][]string {
	all := make(map[string][]string)
	dirs, _ := filepath.Glob(filepath.Join(d.dir, "models--*", ".sie", "parts", "models--*"))
	for _, at := range dirs {
		owner := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(at))))
		all[filepath.Base(at)] = append(all[filepath.Base(at)], owner)
	}
	owners := make(map[string][]string)
	for part, of := range all {
		of = slices.DeleteFunc(slices.Clone(of), func(owner string) bool { return all[owner] != nil })
		if len(of) > 0 {
			owners[part] = of
		}
	}
	return owners
}

// partsOf returns the repositories that leave the disk with the candidate c.
func (d disk) partsOf(c candidate, owners map[string][]string) (parts []candidate) {
	entries, _ := os.ReadDir(partsDir(filepath.Join(d.dir, c.folder)))
	for _, e := range entries {
		if of := owners[e.Name()]; len(of) != 1 || of[0] != c.folder {
			continue
		}
		if part, ok := d.candidate(e.Name()); ok && !part.used.After(c.used) {
			parts = append(parts, part)
		}
	}
	return parts
}
