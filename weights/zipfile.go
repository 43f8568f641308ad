package weights

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"math"
)

// A torch file is a ZIP archive whose members are stored, not compressed, so a tensor's bytes lie
// unchanged in the file. archive/zip reads the directory of the archive. This file bounds its reads
// and locates the bytes of each member.

// The bounds of the reads that find the members. They also bound the number of members, because
// each takes at least 46 bytes.
const (
	maxDirectoryBytes = 16 << 20
	maxTailBytes      = 128 << 10 // to find the directory: the end of the file, twice, and a record
)

// encryptedFlag is bit 0 of a member's general purpose flags.
const encryptedFlag = 1

// member is one file of an archive. Its local header has not been checked.
type member struct {
	*zip.File
	in *bounded
}

// readZip reads the directory of an archive of size bytes. On error the map is nil. Errors are
// FormatErrors without a file, or those of r.
//
// Its allocations are bounded by the size of the file: 8 bytes for each 30 bytes of it, where the
// directory claims that many members.
func readZip(r io.ReaderAt, size int64) (map[string]member, error) {
	fail := func(format string, args ...any) (map[string]member, error) {
		return nil, &FormatError{Field: "zip directory", Reason: fmt.Sprintf(format, args...)}
	}
	in := &bounded{r: r, size: size, left: maxDirectoryBytes + maxTailBytes}
	archive, err := zip.NewReader(in, size)
	switch {
	case in.err != nil:
		return nil, in.err
	case in.left < 0:
		return fail("has more than %d bytes", maxDirectoryBytes)
	case err != nil && !errors.Is(err, zip.ErrInsecurePath):
		// members are read in place: their names open no file
		return fail("is damaged, or the file is cut short; download it again")
	}
	in.left = math.MaxInt64
	members := make(map[string]member, len(archive.File))
	for _, f := range archive.File {
		if f.UncompressedSize64 > uint64(size) ||
			f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64 {
			return fail("%s: sizes that contradict each other", quoted(f.Name))
		}
		if _, twice := members[f.Name]; twice {
			return fail("%s occurs twice", quoted(f.Name))
		}
		members[f.Name] = member{f, in}
	}
	return members, nil
}

// locate returns the byte range of a member in the file.
func (m member) locate() (begin, end int64, _ error) {
	fail := func(reason string) (int64, int64, error) {
		return 0, 0, &FormatError{Field: quoted(m.Name), Reason: reason}
	}
	if m.Method != zip.Store || m.Flags&encryptedFlag != 0 {
		return fail(
			"is compressed or encrypted; torch stores its files plainly, save the model again with torch.save")
	}
	begin, err := m.DataOffset()
	switch {
	case m.in.err != nil:
		return 0, 0, m.in.err
	case err != nil:
		return fail("has no header where the directory says")
	}
	bytes := int64(m.UncompressedSize64) // at most the file's, as readZip has checked
	if begin > m.in.size || bytes > m.in.size-begin {
		return fail("ends outside the file; it is cut short, download it again")
	}
	return begin, begin + bytes, nil
}

// bounded reads a file within its size, and at most left bytes. It keeps the first error of the
// file, because the archive reader may not pass it on.
type bounded struct {
	r    io.ReaderAt
	size int64
	left int64 // negative after a request for more
	err  error
}

// ReadAt fills p or returns an error.
func (b *bounded) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 || int64(len(p)) > b.size-offset {
		return 0, zip.ErrFormat
	}
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, zip.ErrFormat
	}
	if err := readFull(b.r, p, offset); err != nil {
		b.err = err
		return 0, err
	}
	return len(p), nil
}
