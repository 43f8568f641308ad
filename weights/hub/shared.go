package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/sie-engine/sie/weights/bucket"
)

// The cluster's bucket uses the same folder names as the cache on disk:
//
//	models--org--name/blobs/<checksum>       contents, each once
//	models--org--name/.sie/<commit>.json     a snapshot's files and checksums; written last
//	models--org--name/refs/<revision>        a branch or tag's commit; written after the manifest
//	models--org--name/.sie/<commit>.lock     lock of the process that uploads it now
//
// A model is complete in the bucket when its manifest is there. A folder without a manifest is read
// as well, if a person copied it from a Hugging Face cache (snapshots/<commit>/<file>, links
// followed) and it seems complete.

// bucketManifest is a model's manifest in the bucket.
type bucketManifest struct {
	Format int                   `json:"format"`
	Files  map[string]bucketFile `json:"files"`
}

type bucketFile struct {
	Size int64  `json:"size"`
	Hash string `json:"hash"` // names the blob; see remoteFile.hash
}

// bucketRepo is a repository's folder in the bucket.
type bucketRepo struct {
	bucket bucket.Bucket
	folder string
}

func (r bucketRepo) manifest(commit string) string { return r.folder + "/.sie/" + commit + ".json" }
func (r bucketRepo) lock(commit string) string     { return r.folder + "/.sie/" + commit + ".lock" }
func (r bucketRepo) blob(hash string) string       { return r.folder + "/blobs/" + hash }
func (r bucketRepo) ref(revision string) string    { return r.folder + "/refs/" + revision }

// commit returns the commit that the bucket has for a revision.
func (r bucketRepo) commit(ctx context.Context, ref modelRef) (string, error) {
	if ref.isCommit() {
		return ref.revision, nil
	}
	raw, _, err := bucket.Read(ctx, r.bucket, r.ref(ref.revision), maxRefBytes)
	if err != nil {
		return "", err
	}
	commit := strings.TrimSpace(string(raw))
	if !commitPattern.MatchString(commit) {
		return "", fail(ClassConfig, nil, "%s%s does not hold a commit", r.bucket, r.ref(ref.revision))
	}
	return commit, nil
}

// list reads the manifest of a commit, or lists a folder that was copied by hand. The error is
// bucket.ErrNotFound when the bucket has neither.
func (r bucketRepo) list(ctx context.Context, commit string, limit int) (*listing, error) {
	raw, _, err := bucket.Read(ctx, r.bucket, r.manifest(commit), maxManifestBytes)
	if errors.Is(err, bucket.ErrNotFound) {
		return r.listCopied(ctx, commit, limit)
	}
	if err != nil {
		return nil, err
	}
	var m bucketManifest
	if json.Unmarshal(raw, &m) != nil || m.Format != manifestFormat || len(m.Files) == 0 {
		return nil, fail(ClassConfig, nil, "%s%s is not a manifest that this version reads",
			r.bucket, r.manifest(commit))
	}
	l := &listing{commit: commit}
	for name, f := range m.Files {
		file := remoteFile{name: name, size: f.Size, hash: f.Hash, key: r.blob(f.Hash)}
		if !validFileName(name) || f.Size < 0 || !file.named() {
			return nil, fail(ClassConfig, nil, "%s%s holds a wrong entry for %s",
				r.bucket, r.manifest(commit), quoteShort(name))
		}
		l.files = append(l.files, file)
	}
	return l, nil
}

// listCopied lists a snapshot that was copied by hand. Its files have no checksums. They are stored
// under a hash of the object's key and version; the version also tells whether a partial file can
// be continued.
func (r bucketRepo) listCopied(ctx context.Context, commit string, limit int) (*listing, error) {
	prefix := r.folder + "/snapshots/" + commit + "/"
	objects, err := r.bucket.List(ctx, prefix, limit)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]bucket.Object)
	var names []string
	for _, o := range objects {
		if name := strings.TrimPrefix(o.Key, prefix); validFileName(name) {
			byName[name], names = o, append(names, name)
		}
	}
	names = selectFiles(names)
	if !runnable(names) {
		return nil, bucket.ErrNotFound
	}
	l := &listing{commit: commit}
	for _, name := range names {
		o := byName[name]
		sum := sha256.Sum256([]byte(r.bucket.String() + "\x00" + o.Key + "\x00" + o.Version))
		l.files = append(l.files, remoteFile{
			name:    name,
			size:    o.Size,
			hash:    "bucket-" + hex.EncodeToString(sum[:]),
			key:     o.Key,
			version: o.Version,
		})
	}
	return l, nil
}

// runnable reports whether a list of files holds the files that every model needs, as
// missingEssential does for a directory.
func runnable(names []string) bool {
	has := func(patterns ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return slices.ContainsFunc(patterns, func(pattern string) bool {
				ok, _ := path.Match(pattern, path.Base(name))
				return ok
			})
		})
	}
	if !has("*.safetensors", "*.bin", "*.pt") {
		return false
	}
	return has("adapter_config.json") || has("config.json", "gliner_config.json", "modules.json") &&
		has("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "preprocessor_config.json")
}

// bucketOrigin reads the files of a listing from the bucket. It implements origin.
type bucketOrigin struct{ bucket bucket.Bucket }

func (o bucketOrigin) advice() string { return "the cluster cache " + o.bucket.String() }

func (o bucketOrigin) request(ctx context.Context, d *blobDownload) error {
	version := d.etag
	if version == "" {
		version = d.file.version
	}
	object, body, err := o.bucket.Open(ctx, d.file.key, d.have, version)
	if err != nil {
		if errors.Is(err, bucket.ErrChanged) {
			if err := d.restart(); err != nil {
				return err
			}
			if d.file.version != "" {
				return fail(ClassNetwork, err, "%s changed in the cluster cache while it was read; try again",
					d.file.name)
			}
		}
		return bucketError(err)
	}
	defer body.Close()
	if object.Size != d.file.size {
		return fail(ClassNetwork, nil, "%s has %d bytes in the cluster cache, its list says %d",
			d.file.name, object.Size, d.file.size)
	}
	d.etag = object.Version
	return d.receive(io.LimitReader(body, d.file.size-d.have))
}

// bucketError marks the errors that may pass as transient.
func bucketError(err error) error {
	if errors.Is(err, bucket.ErrNotFound) || errors.Is(err, bucket.ErrDenied) ||
		errors.Is(err, bucket.ErrUnsupported) {
		return err
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return &transientError{err: err}
}
