package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/files"
)

// The bounds of the cache's small files.
const (
	maxRefBytes      = 4096
	maxManifestBytes = 16 << 20
	maxIndexBytes    = 100_000_000
	maxModulesBytes  = 1 << 20
)

// repoCache is one repository's folder in the cache.
type repoCache struct{ dir string }

func (c repoCache) blob(hash string) string       { return filepath.Join(c.dir, "blobs", hash) }
func (c repoCache) snapshot(commit string) string { return filepath.Join(c.dir, "snapshots", commit) }
func (c repoCache) ref(revision string) string {
	return filepath.Join(c.dir, "refs", filepath.FromSlash(revision))
}
func (c repoCache) manifest(commit string) string {
	return filepath.Join(c.dir, ".sie", commit+".json")
}
func (c repoCache) staging(commit string) string {
	return filepath.Join(c.dir, ".sie", commit+".tmp")
}

// manifest lists the files of a complete snapshot: name → size in bytes. It is written before the
// files become visible, so the snapshot counts as complete from the moment its last file is there,
// and not before.
type manifest struct {
	Format int              `json:"format"` // manifestFormat
	Files  map[string]int64 `json:"files"`
	// Adapter is true when only the LoRA adapter or the tokenizer of the repository was downloaded,
	// and a model needs more of its files.
	Adapter bool `json:"adapter,omitempty"`
	// Beside names the files that were wanted with an adapter, sorted; the repository has those of
	// them that are in Files.
	Beside []string `json:"beside,omitempty"`
}

const manifestFormat = 1

// cached is the cache's entry for a revision.
type cached struct {
	dir     string // the snapshot, "" when none is complete
	commit  string // "" when the cache does not know the revision
	missing string // why dir is ""
	doubt   bool   // seems complete, but only the hub's list of files can confirm it
}

// find looks for a complete snapshot of the revision.
func (c repoCache) find(ref modelRef) cached {
	commit := ref.revision
	if !ref.isCommit() {
		raw, err := files.Read(c.ref(ref.revision), maxRefBytes)
		if err != nil {
			return cached{missing: fmt.Sprintf("the cache has no revision %q of it", ref.revision)}
		}
		if commit = strings.TrimSpace(string(raw)); !commitPattern.MatchString(commit) {
			return cached{missing: fmt.Sprintf("the cache's ref %q does not hold a commit", ref.revision)}
		}
	}
	return c.findCommit(commit, ref)
}

// findCommit looks for a complete snapshot of a commit. It checks the files of the manifest, or,
// when another tool made the snapshot, the files that every model needs. Where ref wants a LoRA
// adapter or a tokenizer, the snapshot must hold that and needs nothing else.
func (c repoCache) findCommit(commit string, ref modelRef) cached {
	dir := c.snapshot(commit)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return cached{commit: commit, missing: "the cache has no snapshot of commit " + commit}
	}
	m, known := c.readManifest(commit)
	part := m.Adapter || !known && !c.sure(commit)
	switch {
	case ref.adapter > 0 && part && slices.ContainsFunc(ref.beside, m.lacks):
		return cached{commit: commit, missing: lacksBeside(ref, m)}
	case ref.adapter > 0:
		return c.findAdapter(commit, ref, m.Files)
	case ref.tokenizer:
		return c.findTokenizer(commit, m.Files)
	}
	if known {
		if m.Adapter {
			return cached{commit: commit, missing: "of the cached snapshot only a part is there"}
		}
		if missing := c.missingFile(commit, m.Files); missing != "" {
			return cached{commit: commit, missing: missing}
		}
		return cached{dir: dir, commit: commit}
	}
	if missing := missingEssential(dir); missing != "" {
		return cached{commit: commit, missing: missing}
	}
	return cached{dir: dir, commit: commit, doubt: !c.sure(commit)}
}

// sure reports whether a snapshot of another tool has what says how vectors are made. A program
// that loads the bare transformer, or an adapter alone, omits modules.json. Without that file a
// sentence-transformers model would run with the wrong pooling. The Python tools record in
// .no_exist the files that a repository does not have.
func (c repoCache) sure(commit string) bool {
	return exists(filepath.Join(c.snapshot(commit), "modules.json")) ||
		exists(filepath.Join(c.dir, ".no_exist", commit, "modules.json"))
}

// readManifest returns the manifest of a commit; known is false, and m zero, where there is none
// that this version reads.
func (c repoCache) readManifest(commit string) (m manifest, known bool) {
	raw, err := files.Read(c.manifest(commit), maxManifestBytes)
	if err != nil || json.Unmarshal(raw, &m) != nil || m.Format != manifestFormat || len(m.Files) == 0 {
		return manifest{}, false
	}
	return m, true
}

// lacks reports whether a file of the repository may not have been downloaded.
func (m manifest) lacks(name string) bool {
	_, ok := m.Files[name]
	return !ok && !slices.Contains(m.Beside, name)
}

// lacksBeside says which files of ref.beside may be missing beside an adapter, and how to get them.
func lacksBeside(ref modelRef, m manifest) string {
	var names []string
	for _, name := range ref.beside {
		if m.lacks(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	more := ""
	if n := len(names) - maxLackingNamed; n > 0 {
		names, more = names[:maxLackingNamed], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("of the cached snapshot only a part is there, its LoRA adapter: whether it has %s%s "+
		"is not known, and `sie-server pull %s` fetches what it has, with downloads on",
		strings.Join(names, ", "), more, ref.id)
}

// maxLackingNamed is how many files lacksBeside names.
const maxLackingNamed = 3

// findAdapter looks for a complete adapter in the snapshot of a commit, and for the files of
// ref.beside. files are those of its manifest, or nil when it has none.
func (c repoCache) findAdapter(commit string, ref modelRef, files map[string]int64) cached {
	dir := c.snapshot(commit)
	names := slices.Sorted(maps.Keys(files))
	if files == nil {
		for _, name := range adapterFiles {
			if exists(filepath.Join(dir, name)) {
				names = append(names, name)
			}
		}
	}
	picked := selectAdapter(names)
	if !isCompleteAdapter(picked) {
		return cached{commit: commit, missing: "the cached snapshot lacks " + missingAdapterFile(picked)}
	}
	for _, name := range append(picked, ref.beside...) {
		if size, ok := files[name]; ok {
			if missing := c.missingFile(commit, map[string]int64{name: size}); missing != "" {
				return cached{commit: commit, missing: missing}
			}
		}
	}
	return cached{dir: dir, commit: commit}
}

// missingFile returns a message that names the first missing or wrong-sized file of the snapshot,
// by name, or "" when none is missing.
func (c repoCache) missingFile(commit string, files map[string]int64) string {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		info, err := os.Stat(filepath.Join(c.snapshot(commit), filepath.FromSlash(name)))
		if err != nil || !info.Mode().IsRegular() || info.Size() != files[name] {
			return "the cached snapshot lacks " + name
		}
	}
	return ""
}

// only returns the commit of the repository's snapshot when it has exactly one.
func (c repoCache) only() (commit string, ok bool) {
	entries, err := os.ReadDir(filepath.Join(c.dir, "snapshots"))
	if err != nil || len(entries) != 1 || !commitPattern.MatchString(entries[0].Name()) {
		return "", false
	}
	return entries[0].Name(), true
}

// missingEssential checks a snapshot without a manifest. A Python program may have downloaded only
// a part (the configuration, or everything but the tokenizer); the rest is then downloaded. A gap
// that this function does not notice gives the loader's own error, or is the doubt of findCommit.
func missingEssential(dir string) string {
	dirs, lacking := moduleDirs(dir)
	if lacking != "" {
		return lacking
	}
	holds := func(patterns ...string) bool {
		return slices.ContainsFunc(dirs,
			func(sub string) bool { return holds(filepath.Join(dir, sub), patterns...) })
	}
	adapter := exists(filepath.Join(dir, "adapter_config.json"))
	switch {
	case !adapter && !holds("config.json", "gliner_config.json", "modules.json"):
		return "the cached snapshot lacks config.json"
	case !holds(weightPatterns...):
		return "the cached snapshot lacks the weights"
	case !adapter &&
		!holds("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "preprocessor_config.json"):
		return "the cached snapshot lacks the tokenizer"
	}
	return missingShard(dir)
}

var weightPatterns = []string{"*.safetensors", "*.bin", "*.pt"}

// holds reports whether a directory has a regular file whose name matches one of the patterns.
func holds(dir string, patterns ...string) bool {
	entries, _ := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(entry os.DirEntry) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool {
			ok, _ := filepath.Match(pattern, entry.Name())
			return ok && exists(filepath.Join(dir, entry.Name()))
		})
	})
}

// moduleDirs returns the directories of a sentence-transformers module chain, the root first, and a
// message about the first file that one of them lacks.
func moduleDirs(dir string) (dirs []string, lacking string) {
	dirs = []string{"."}
	raw, err := files.Read(filepath.Join(dir, "modules.json"), maxModulesBytes)
	if err != nil {
		return dirs, ""
	}
	var modules []struct{ Path, Type string }
	if json.Unmarshal(raw, &modules) != nil {
		return dirs, ""
	}
	for _, module := range modules {
		kind := module.Type[strings.LastIndexByte(module.Type, '.')+1:]
		if kind == "Router" {
			routed, lacking := routerDirs(dir, module.Path)
			if dirs = append(dirs, routed...); lacking != "" {
				return dirs, lacking
			}
		}
		if module.Path == "" || !filepath.IsLocal(module.Path) {
			continue
		}
		dirs = append(dirs, module.Path)
		if (kind == "Pooling" || kind == "Dense") && !exists(filepath.Join(dir, module.Path, "config.json")) {
			return dirs, "the cached snapshot lacks " + module.Path + "/config.json"
		}
		if kind == "Dense" && !exists(filepath.Join(dir, module.Path, "model.safetensors")) &&
			!exists(filepath.Join(dir, module.Path, "pytorch_model.bin")) {
			return dirs, "the cached snapshot lacks the weights of " + module.Path
		}
	}
	return dirs, ""
}

// routerDirs returns the directories of the modules of a Router in folder, whose weights are in
// these, and a message about the first one that lacks them.
func routerDirs(dir, folder string) (dirs []string, lacking string) {
	raw, err := files.Read(filepath.Join(dir, folder, "router_config.json"), maxModulesBytes)
	if err != nil {
		return nil, ""
	}
	var router struct {
		Types map[string]string `json:"types"` // by the module's folder
	}
	if json.Unmarshal(raw, &router) != nil {
		return nil, ""
	}
	for _, id := range slices.Sorted(maps.Keys(router.Types)) {
		at, class := filepath.Join(folder, id), router.Types[id]
		if !filepath.IsLocal(at) {
			continue
		}
		dirs = append(dirs, at)
		weighs := slices.Contains([]string{"Transformer", "MLMTransformer", "SparseStaticEmbedding"},
			class[strings.LastIndexByte(class, '.')+1:])
		if weighs && !holds(filepath.Join(dir, at), weightPatterns...) {
			return dirs, "the cached snapshot lacks the weights of " + at
		}
	}
	return dirs, ""
}

// missingShard checks the shards of an index, when the model is loaded from shards.
func missingShard(dir string) string {
	if exists(filepath.Join(dir, "model.safetensors")) {
		return ""
	}
	raw, err := files.Read(filepath.Join(dir, "model.safetensors.index.json"), maxIndexBytes)
	if err != nil {
		return ""
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if json.Unmarshal(raw, &index) != nil {
		return "" // damaged: the reader of the weights reports it
	}
	checked := make(map[string]bool)
	for _, shard := range index.WeightMap {
		if !checked[shard] && filepath.IsLocal(shard) && !exists(filepath.Join(dir, shard)) {
			return "the cached snapshot lacks " + shard
		}
		checked[shard] = true
	}
	return ""
}

// sizes returns the sizes of the files by name.
func sizes(files []remoteFile) map[string]int64 {
	m := make(map[string]int64, len(files))
	for _, f := range files {
		m[f.name] = f.size
	}
	return m
}

// writeManifest records the files that the snapshot of a listing holds or will hold. What an
// earlier download of the same commit recorded and left there stays recorded.
func (c repoCache) writeManifest(l *listing) error {
	m := manifest{Format: manifestFormat, Files: sizes(l.files), Adapter: l.part, Beside: l.beside}
	if old, known := c.readManifest(l.commit); known {
		for name, size := range old.Files {
			here := c.missingFile(l.commit, map[string]int64{name: size}) == ""
			if _, listed := m.Files[name]; !listed && (here || !old.Adapter && l.part) {
				m.Files[name] = size
			}
		}
		m.Adapter = m.Adapter && old.Adapter
		m.Beside = slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.Beside, old.Beside))))
	}
	raw, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return c.write(c.manifest(l.commit), append(raw, '\n'))
}

// publish makes the verified blobs of a listing visible as the snapshot of its commit. A new
// snapshot appears by one rename. A snapshot that another tool left incomplete gets its missing
// files one by one; its manifest makes it count as incomplete until the last file is there. The
// caller holds the repository's lock.
func (c repoCache) publish(l *listing, suffix string) error {
	commit, files := l.commit, l.files
	if err := c.writeManifest(l); err != nil {
		return err
	}
	target := c.snapshot(commit)
	if _, err := os.Stat(target); err == nil {
		return c.complete(target, files, suffix)
	}
	staging := c.staging(commit + suffix)
	if err := os.RemoveAll(staging); err != nil {
		return err
	}
	if err := os.MkdirAll(staging, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := c.link(staging, f, false, suffix); err != nil {
			return errors.Join(err, os.RemoveAll(staging))
		}
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	err := os.Rename(staging, target)
	if err != nil && suffix != "" && isDirectory(target) {
		// Another process was first, on a file system without locks, maybe with other files.
		return errors.Join(os.RemoveAll(staging), c.complete(target, files, suffix))
	}
	return err
}

// complete puts the files that a snapshot lacks into it.
func (c repoCache) complete(snapshot string, files []remoteFile, suffix string) error {
	for _, f := range files {
		if err := c.link(snapshot, f, true, suffix); err != nil {
			return err
		}
	}
	return nil
}

// link puts one file into a snapshot directory: a symbolic link relative to snapshots/<commit>, or
// a hard link where the file system has no symbolic links. With replace, a file of that name may
// exist: it is kept when it has the right size and else replaced by rename. Until then the link is
// in .sie, so that a process that dies leaves nothing else in the snapshot.
func (c repoCache) link(snapshot string, f remoteFile, replace bool, suffix string) error {
	path := filepath.Join(snapshot, filepath.FromSlash(f.name))
	if info, err := os.Stat(path); replace && err == nil && info.Mode().IsRegular() && info.Size() == f.size {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	up := strings.Repeat("../", strings.Count(f.name, "/")+2)
	temporary := c.staging("link" + suffix)
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(up+"blobs/"+f.hash, temporary); err != nil {
		if err := os.Link(c.blob(f.hash), temporary); err != nil {
			return err
		}
	}
	return os.Rename(temporary, path)
}

// removeStaging deletes the staging directories and the unfinished small files of downloads whose
// process died. The caller holds the repository's lock.
func (c repoCache) removeStaging() error {
	entries, err := os.ReadDir(filepath.Join(c.dir, ".sie"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	entries = slices.DeleteFunc(entries,
		func(e os.DirEntry) bool { return filepath.Ext(e.Name()) != ".tmp" })
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(c.dir, ".sie", entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// abandoned is the age from which an unfinished file of another process counts as left behind.
const abandoned = 24 * time.Hour

// removeOld deletes unfinished files that are older than abandoned. It serves file systems without
// locks, which cannot tell which processes live.
func (c repoCache) removeOld() {
	for _, pattern := range []string{"blobs/*.incomplete", ".sie/*.tmp"} {
		paths, _ := filepath.Glob(filepath.Join(c.dir, pattern))
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > abandoned {
				_ = os.RemoveAll(path)
			}
		}
	}
}

// write writes a small file of the repository by rename and creates its directory. Until it is
// whole it is in .sie: the Python tools take any file in refs for a ref, and a repository with a
// wrong one for damaged.
func (c repoCache) write(path string, data []byte) error {
	unfinished := c.staging("*")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.MkdirAll(filepath.Dir(unfinished), 0o755)); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(unfinished), filepath.Base(unfinished))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644) // CreateTemp makes it private; the cache is shared
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
