package hub

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// maxHeaders bounds the headers of a repository's safetensors files together, in bytes.
const maxHeaders = 64 << 20

// Headers makes a directory with all that a model's files say before their weights: the
// configuration, torch files of at most 16 MiB, and safetensors files that have their header and
// their size but take no space for their data. It downloads no weights. Files of the tokenizer are
// empty. remove deletes the directory. For a model on this machine, dir is the model's own
// directory, which remove leaves in place. id, revision and errors are as for Resolve, without a
// bucket; a larger torch file is ClassConfig, because its names are not in one place.
func (r *Resolver) Headers(ctx context.Context, id, revision string) (dir string, remove func(), err error) {
	dir, remove, err = r.headers(ctx, id, revision)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Model = short(id)
	}
	return dir, remove, err
}

func (r *Resolver) headers(ctx context.Context, id, revision string) (string, func(), error) {
	found, here, err := r.find(ctx, id, revision)
	if here || err != nil {
		return found.Dir, found.Release, err
	}
	ref, err := parseRef(id, revision)
	if err != nil {
		return "", nil, err
	}
	for _, s := range r.sources {
		from, ok := s.(*hubSource)
		if !ok {
			continue
		}
		l, err := from.contents(ctx, ref)
		if err != nil {
			return "", nil, err
		}
		dir, err := os.MkdirTemp("", "sie-headers-")
		if err != nil {
			return "", nil, storageError(err, "make a temporary directory")
		}
		room := int64(maxHeaders)
		for _, f := range l.files {
			if err := from.writeHeader(ctx, dir, ref, l, f, &room); err != nil {
				return "", nil, errors.Join(err, os.RemoveAll(dir))
			}
		}
		return dir, func() { _ = os.RemoveAll(dir) }, nil
	}
	return "", nil, fail(ClassNotFound, nil, "is not on this machine, and downloads are off")
}

// tokenizerNames lists files that say nothing of a model's tensors.
var tokenizerNames = []string{"tokenizer.json", "vocab.json", "vocab.txt", "merges.txt"}

// writeHeader writes what Headers shows of one file. room is what is left for headers.
func (s *hubSource) writeHeader(
	ctx context.Context, dir string, ref modelRef, l *listing, f remoteFile, room *int64,
) error {
	base, ext := path.Base(f.name), path.Ext(f.name)
	torch := slices.Contains([]string{".bin", ".pt", ".pth"}, ext)
	switch {
	case ext == ".safetensors":
		return s.writeSafetensors(ctx, dir, ref, l.commit, f, room)
	case torch && f.size > maxPreviewBytes:
		return fail(ClassConfig, nil, "has its weights in %s, of which only the whole says what is in it; "+
			"download the model (sie-server pull) and look at its directory", f.name)
	case torch, !slices.Contains(tokenizerNames, base) && (ext == ".json" || ext == ".jinja"):
		return s.writePreviewFile(ctx, dir, ref, l.commit, f, true)
	}
	return s.writePreviewFile(ctx, dir, ref, l.commit, f, false)
}

// writeSafetensors writes the header of a file, which two ranges of it hold, and then a hole.
func (s *hubSource) writeSafetensors(
	ctx context.Context, dir string, ref modelRef, commit string, f remoteFile, room *int64,
) error {
	const lengthBytes = 8
	length, err := s.span(ctx, ref, commit, f, 0, min(lengthBytes, f.size))
	if err != nil {
		return err
	}
	content := length
	if len(length) == lengthBytes {
		n := binary.LittleEndian.Uint64(length)
		if n > maxHeaders || int64(n) > f.size-lengthBytes {
			return fail(ClassConfig, nil,
				"%s says that its header has %d bytes; the file has %d, and a header at most %d",
				f.name, n, f.size, maxHeaders)
		}
		if *room -= int64(n); *room < 0 {
			return fail(ClassConfig, nil,
				"has safetensors headers of more than %d bytes together, up to %s; download the model "+
					"(sie-server pull) and look at its directory", maxHeaders, f.name)
		}
		header, err := s.span(ctx, ref, commit, f, lengthBytes, lengthBytes+int64(n))
		if err != nil {
			return err
		}
		content = append(content, header...)
	}
	at := filepath.Join(dir, filepath.FromSlash(f.name))
	err = os.MkdirAll(filepath.Dir(at), 0o755)
	if err == nil {
		err = os.WriteFile(at, content, 0o600)
	}
	if err == nil {
		err = os.Truncate(at, f.size)
	}
	if err != nil {
		return storageError(err, "write a temporary file")
	}
	return nil
}

// span returns the bytes [begin, end) of a file.
func (s *hubSource) span(
	ctx context.Context, ref modelRef, commit string, f remoteFile, begin, end int64,
) (out []byte, err error) {
	if begin == end {
		return nil, nil
	}
	err = s.retry.run(ctx, s.retry.attempts, func() (int64, error) {
		out, err = s.client.span(ctx, ref, commit, f, begin, end)
		return int64(len(out)), err
	})
	return out, err
}

func (c *client) span(
	ctx context.Context, ref modelRef, commit string, f remoteFile, begin, end int64,
) ([]byte, error) {
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", begin, end-1)}}
	resp, err := c.do(ctx, http.MethodGet, c.fileURL(ref, commit, f.name), header)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch first, total, ok := contentRange(resp.Header.Get("Content-Range")); {
	case resp.StatusCode == http.StatusOK && begin == 0: // without ranges; the rest is not read
	case resp.StatusCode == http.StatusOK:
		return nil, fail(ClassNetwork, nil, "%s sends %s whole where a part of it was asked for",
			resp.Request.URL.Host, f.name)
	case resp.StatusCode != http.StatusPartialContent:
		return nil, c.statusError(resp, ref, "file "+f.name)
	case !ok || first != begin || total >= 0 && total != f.size:
		return nil, transient("%s sent another part of %s than was asked for", resp.Request.URL.Host, f.name)
	}
	out := make([]byte, end-begin)
	if _, err := io.ReadFull(resp.Body, out); err != nil {
		return nil, &transientError{err: fmt.Errorf("%s: %w", f.name, err)}
	}
	return out, nil
}
