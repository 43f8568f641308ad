package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // git names its blobs by SHA-1
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

const (
	copyBytes = 256 << 10
	// maxCorrupt is how often one file may arrive complete but with the wrong content. Once can be
	// a damaged partial file of an earlier process; more is a fault of the server or the disk.
	maxCorrupt = 3
)

// errDamaged is the cause of the error for a file that repeatedly arrives with the wrong content.
var errDamaged = errors.New("wrong content")

// blobDownload fetches one file into blobs/<hash>.incomplete, verifies it and renames it to
// blobs/<hash>. One goroutine uses it and holds the blob's lock.
type blobDownload struct {
	from   origin
	ref    modelRef
	commit string
	file   remoteFile
	report *reporter
	room   *reservation

	part    *os.File
	sum     hash.Hash // over the first have bytes of part
	have    int64
	etag    string // the storage's name for the content that part holds; of this process only, "" if unknown
	corrupt int
}

// origin provides the bytes of listed files.
type origin interface {
	// request makes one request for the missing part of d's file and passes the body to d.receive.
	// d.have is where to begin. request calls d.restart first when the body cannot continue the
	// partial file. Errors that may pass are transient.
	request(ctx context.Context, d *blobDownload) error
	// advice names the things to check when a download from this origin fails.
	advice() string
}

// fetchBlob downloads the missing part of a file, so that blobs/<hash> holds its content.
func (s *fetcher) fetchBlob(
	ctx context.Context, cache repoCache, ref modelRef, commit string, f remoteFile, report *reporter,
	room *reservation,
) error {
	final := cache.blob(f.hash)
	if blobExists(final, f.size) {
		report.received(f.name, f.size)
		report.finished(f.name)
		return nil
	}
	// The Python tools take this lock for the same blob, so that two writers never share one
	// .incomplete file.
	release, err := s.disk.locks.take(ctx,
		filepath.Join(s.cacheDir, ".locks", ref.repoFolder(), f.hash+".lock"), nil)
	if err != nil {
		return err
	}
	defer release()
	if blobExists(final, f.size) {
		report.received(f.name, f.size)
		report.finished(f.name)
		return nil
	}
	d := &blobDownload{from: s.from, ref: ref, commit: commit, file: f, report: report, room: room}
	if err := d.open(ctx, s.disk.locks.partial(final)); err != nil {
		return err
	}
	defer d.part.Close()
	tries := s.retry.attempts + maxCorrupt + 64 + int(f.size>>20)
	if err := s.retry.run(ctx, tries, func() (int64, error) { return d.try(ctx) }); err != nil {
		return err
	}
	// The content is on disk before it gets its name, so after a crash every blob with its final
	// name is complete.
	if err := d.part.Sync(); err != nil {
		return d.storage(err)
	}
	if err := os.Rename(d.part.Name(), final); err != nil {
		return d.storage(err)
	}
	report.finished(f.name)
	return nil
}

func blobExists(path string, size int64) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

// storage wraps the error of a file operation of the download.
func (d *blobDownload) storage(err error) error { return storageError(err, "store "+d.file.name) }

// open opens the partial file and hashes the content that an earlier download left in it, which
// takes a minute for 100 GiB.
func (d *blobDownload) open(ctx context.Context, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return d.storage(err)
	}
	var err error
	if d.part, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return d.storage(err)
	}
	d.sum = newSum(d.file)
	if partialSize(path, d.file.size) == 0 { // nothing, or more than the whole
		err = d.restart()
	} else if d.have, err = io.Copy(d.sum, contextReader{ctx, d.part}); ctx.Err() != nil {
		err = contextError(ctx)
	} else if err != nil {
		err = d.storage(err)
	}
	if err != nil {
		d.part.Close()
		return err
	}
	d.report.received(d.file.name, d.have)
	return nil
}

// newSum returns the hash whose sum over the content is the file's checksum. The checksum of a git
// blob covers a header too.
func newSum(f remoteFile) hash.Hash {
	if len(f.hash) == hex.EncodedLen(sha256.Size) {
		return sha256.New()
	}
	h := sha1.New() //nolint:gosec // see the import
	fmt.Fprintf(h, "blob %d\x00", f.size)
	return h
}

// restart discards the partial content.
func (d *blobDownload) restart() error {
	d.report.received(d.file.name, -d.have)
	d.room.wrote(-d.have)
	d.have, d.etag = 0, ""
	d.sum = newSum(d.file)
	if _, err := d.part.Seek(0, io.SeekStart); err != nil {
		return d.storage(err)
	}
	if err := d.part.Truncate(0); err != nil {
		return d.storage(err)
	}
	return nil
}

// try makes one request for the missing part, appends the body, and verifies the whole file. When
// the request fails, gained is the growth of the partial file.
func (d *blobDownload) try(ctx context.Context) (gained int64, err error) {
	if d.have < d.file.size {
		before := d.have
		if err := d.from.request(ctx, d); err != nil {
			return max(0, d.have-before), err
		}
	}
	got := hex.EncodeToString(d.sum.Sum(nil))
	if got == d.file.hash || !d.file.named() {
		return 0, nil
	}
	if err := d.restart(); err != nil {
		return 0, err
	}
	if d.corrupt++; d.corrupt == maxCorrupt {
		return 0, fail(ClassNetwork, errDamaged,
			"%s arrived damaged %d times: its checksum is %s, the list says %s; check %s and the disk",
			d.file.name, maxCorrupt, got, d.file.hash, d.from.advice())
	}
	return 0, transient("%s arrived damaged", d.file.name)
}

// receive appends the body to the partial file and the hash until the file is whole.
func (d *blobDownload) receive(body io.Reader) error {
	buffer := make([]byte, min(copyBytes, d.file.size))
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if written, werr := d.part.Write(buffer[:n]); werr != nil {
				// The hash does not cover the written bytes. Cut them off, so that file and hash
				// stay equal.
				return errors.Join(d.storage(werr), d.cut(written))
			}
			d.sum.Write(buffer[:n])
			d.have += int64(n)
			d.report.received(d.file.name, int64(n))
			d.room.wrote(int64(n))
		}
		switch {
		case d.have == d.file.size:
			return nil
		case err == io.EOF:
			return transient("the connection ended after %d of %d bytes of %s",
				d.have, d.file.size, d.file.name)
		case err != nil:
			return err
		}
	}
}

// cut removes the n bytes that a failed write left after the first d.have bytes.
func (d *blobDownload) cut(n int) error {
	if n == 0 {
		return nil
	}
	return d.part.Truncate(d.have)
}
