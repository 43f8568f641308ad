package hub

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// maxListingBytes bounds the answer to a listing. Each file takes about 200 bytes of it.
const maxListingBytes = 64 << 20

// remoteFile is one file of a repository. hash names its blob: the SHA-256 of the content (64 hex
// digits) for files in large-file storage, the git blob SHA-1 (40) for others.
type remoteFile struct {
	name string
	size int64
	hash string

	key, version string // in a bucket: the object's key and the bucket's name for its content
}

// named reports whether hash is a checksum of the content.
func (f remoteFile) named() bool {
	return sha256Pattern.MatchString(f.hash) || commitPattern.MatchString(f.hash)
}

// listing is a repository at one commit.
type listing struct {
	commit string
	files  []remoteFile // the files to download; hash is "" where the endpoint's listing has none
	part   bool         // only an adapter's files or a tokenizer's; a model would need more
	beside []string     // what was wanted with an adapter, whether it is in files or not
}

// list asks the endpoint for the commit of a revision and its files, and selects what to download.
func (c *client) list(ctx context.Context, ref modelRef) (*listing, error) {
	target := strings.TrimSuffix(c.endpoint.String(), "/") + "/api/models/" + ref.id + "/revision/" +
		url.PathEscape(ref.revision) + "?blobs=true"
	resp, err := c.do(ctx, http.MethodGet, target, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, c.statusError(resp, ref, "such repository")
	}
	raw, err := files.ReadAll(resp.Body, maxListingBytes)
	switch {
	case errors.Is(err, files.ErrTooLarge):
		return nil, fail(ClassConfig, nil, "its file list is longer than %d MiB", maxListingBytes>>20)
	case err != nil:
		return nil, err
	}
	l, err := parseListing(raw, ref.adapter > 0)
	if err != nil {
		return nil, fail(ClassConfig, err, "%s does not answer like a model hub; check HF_ENDPOINT",
			c.endpoint.Host)
	}
	if ref.isCommit() && l.commit != ref.revision {
		return nil, fail(ClassConfig, nil, "%s answered with commit %s for %s; check HF_ENDPOINT",
			c.endpoint.Host, l.commit, ref.revision)
	}
	return l, nil
}

// parseListing reads the hub's answer about a revision and keeps the files to download. With
// adapter set it also keeps an adapter's files. On error the listing is nil.
func parseListing(raw []byte, adapter bool) (*listing, error) {
	var answer struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name   string `json:"rfilename"`
			Size   *int64 `json:"size"`
			BlobID string `json:"blobId"`
			LFS    *struct {
				SHA256 string `json:"sha256"`
				Size   int64  `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, errors.New("its answer is not the JSON of a model")
	}
	l := &listing{commit: strings.ToLower(answer.SHA)}
	if !commitPattern.MatchString(l.commit) {
		return nil, errors.New("its answer names no commit")
	}
	byName := make(map[string]remoteFile, len(answer.Siblings))
	names := make([]string, 0, len(answer.Siblings))
	for _, s := range answer.Siblings {
		if !validFileName(s.Name) {
			return nil, errors.New("its answer holds the unsafe file name " + quoteShort(s.Name))
		}
		if _, dup := byName[s.Name]; dup {
			return nil, errors.New("its answer holds the file " + quoteShort(s.Name) + " twice")
		}
		f := remoteFile{name: s.Name, size: -1}
		switch {
		case s.LFS != nil && sha256Pattern.MatchString(s.LFS.SHA256):
			f.hash, f.size = s.LFS.SHA256, s.LFS.Size
		case s.LFS == nil && commitPattern.MatchString(s.BlobID) && s.Size != nil:
			f.hash, f.size = s.BlobID, *s.Size
		}
		if f.hash != "" && f.size < 0 {
			return nil, errors.New("its answer gives the file " + quoteShort(s.Name) + " a negative size")
		}
		byName[s.Name] = f
		names = append(names, s.Name)
	}
	selected := selectFiles(names)
	if adapter {
		selected = slices.Compact(slices.Sorted(slices.Values(append(selected, selectAdapter(names)...))))
	}
	for _, name := range selected {
		l.files = append(l.files, byName[name])
	}
	return l, nil
}

// describe asks for the checksum and size of a file. Mirrors omit them from their listings.
func (c *client) describe(
	ctx context.Context, ref modelRef, commit string, f remoteFile,
) (remoteFile, error) {
	resp, err := c.do(ctx, http.MethodHead, c.fileURL(ref, commit, f.name), nil)
	if err != nil {
		return f, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return f, c.statusError(resp, ref, "file "+f.name)
	}
	size := resp.size
	if size < 0 && resp.StatusCode == http.StatusOK {
		size = resp.ContentLength
	}
	if !sha256Pattern.MatchString(resp.etag) && !commitPattern.MatchString(resp.etag) || size < 0 {
		return f, fail(ClassConfig, nil,
			"%s gives no checksum and size for %s, so a download could not be verified; use another HF_ENDPOINT",
			c.endpoint.Host, f.name)
	}
	return remoteFile{name: f.name, size: size, hash: resp.etag}, nil
}

// fileURL returns the address of a file at a commit.
func (c *client) fileURL(ref modelRef, commit, name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.TrimSuffix(c.endpoint.String(), "/") + "/" + ref.id + "/resolve/" + commit + "/" +
		strings.Join(parts, "/")
}
