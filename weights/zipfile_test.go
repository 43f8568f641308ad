package weights

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stored returns an archive with one stored member of this name and content.
func stored(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	return zipped(t, zip.Store, 0, name, string(content))
}

// zipped returns an archive. members alternates names and contents.
func zipped(t *testing.T, method, flags uint16, members ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		size := uint64(len(members[i+1]))
		h := &zip.FileHeader{
			Name: members[i], Method: method, Flags: flags, CompressedSize64: size, UncompressedSize64: size,
		}
		f, err := w.CreateRaw(h)
		if err == nil {
			_, err = io.WriteString(f, members[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// put writes v in width bytes, n bytes after the last mark.
func put(archive []byte, mark string, n int, v uint32, width int) []byte {
	out := bytes.Clone(archive)
	at := bytes.LastIndex(out, []byte(mark)) + n
	for i := range width {
		out[at+i] = byte(v >> (8 * i))
	}
	return out
}

// locateAll reads an archive and locates every member.
func locateAll(file []byte) (map[string]string, error) {
	r := bytes.NewReader(file)
	found, err := readZip(r, r.Size())
	if err != nil {
		return nil, err
	}
	contents := make(map[string]string)
	for name, m := range found {
		begin, end, err := m.locate()
		if err != nil {
			return nil, err
		}
		contents[name] = string(file[begin:end])
	}
	return contents, nil
}

const (
	localMark   = "PK\x03\x04"
	centralMark = "PK\x01\x02"
	endMark     = "PK\x05\x06"
)

func TestZipMembersLieWhereTheyAreStored(t *testing.T) {
	plain := zipped(t, zip.Store, 0, "a/data/0", "zero", "a/data/1", "", "a/..", "up")
	want := map[string]string{"a/data/0": "zero", "a/data/1": "", "a/..": "up"}
	commented := append(put(plain, endMark, 20, 7, 2), "comment"...)
	for name, file := range map[string][]byte{
		"plain": plain, "comment": commented, "large archive": zip64(t, "a/data/0", "zero"),
	} {
		got, err := locateAll(file)
		if err != nil || got["a/data/0"] != "zero" ||
			name != "large archive" && fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// zip64 returns an archive in the form used above 4 GiB: sizes, offsets and counts are in 64-bit
// records.
func zip64(t *testing.T, name, content string) []byte {
	t.Helper()
	le := binary.LittleEndian
	whole := stored(t, name, []byte(content))
	directory := bytes.LastIndex(whole, []byte(centralMark))
	end := bytes.LastIndex(whole, []byte(endMark))
	out := bytes.Clone(whole[:end])
	for _, at := range []int{20, 24, 42} {
		le.PutUint32(out[directory+at:], 1<<32-1)
	}
	le.PutUint16(out[directory+30:], 28) // the extra field: plain size, stored size, offset
	out = le.AppendUint16(le.AppendUint16(out, 1), 24)
	for _, v := range []int{len(content), len(content), 0} {
		out = le.AppendUint64(out, uint64(v))
	}
	record, length := len(out), len(out)-directory
	out = append(append(out, "PK\x06\x06"...), make([]byte, 52)...)
	le.PutUint64(out[record+4:], 44)
	for at, v := range map[int]int{24: 1, 32: 1, 40: length, 48: directory} {
		le.PutUint64(out[record+at:], uint64(v))
	}
	out = le.AppendUint64(append(out, "PK\x06\x07\x00\x00\x00\x00"...), uint64(record))
	out = le.AppendUint32(out, 1)
	out = append(out, endMark+"\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00"...)
	return out
}

func TestZipArchivesThatAreRefused(t *testing.T) {
	one := stored(t, "data/0", []byte("content"))
	large := zip64(t, "data/0", "content")
	record := bytes.LastIndex(large, []byte("PK\x06\x06"))
	many := bytes.Clone(large)
	binary.LittleEndian.PutUint64(many[record+32:], 1<<40) // number of members, more than the file has bytes
	outside := bytes.Clone(large)
	binary.LittleEndian.PutUint64(outside[len(large)-22-12:], 1<<62) // offset of the 64-bit record
	var wide []string
	for i := range 300 {
		wide = append(wide, fmt.Sprintf("%060000d", i), "")
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":        {nil, "cut short"},
		"no directory": {one[:len(one)-1], "cut short"},
		"compressed":   {zipped(t, zip.Deflate, 0, "data/0", "xx"), `"data/0": is compressed or encrypted`},
		"encrypted": {zipped(t, zip.Store, encryptedFlag, "data/0", "xx"),
			`"data/0": is compressed or encrypted`},
		"twice": {zipped(t, zip.Store, 0, "data/0", "a", "data/0", "b"),
			`zip directory: "data/0" occurs twice`},
		"sizes differ": {put(one, centralMark, 20, 6, 4), `"data/0": sizes that contradict each other`},
		"longer than file": {put(put(one, centralMark, 20, 1<<20, 4), centralMark, 24, 1<<20, 4),
			"sizes that contradict each other"},
		"header elsewhere": {put(one, centralMark, 42, 1, 4),
			`"data/0": has no header where the directory says`},
		"header outside": {put(one, centralMark, 42, 1<<31, 4),
			`"data/0": has no header where the directory says`},
		"bytes past the end":  {put(one, localMark, 28, 0xffff, 2), `"data/0": ends outside the file`},
		"count is wrong":      {put(one, endMark, 10, 2, 2), "is damaged"},
		"claims 2^40 members": {many, "is damaged"},
		"record outside":      {outside, "is damaged"},
		"directory too large": {zipped(t, zip.Store, 0, wide...),
			"zip directory: has more than 16777216 bytes"},
	} {
		got, err := locateAll(c.file)
		var fe *FormatError
		if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) || got != nil {
			t.Errorf("%s: %v, %v; want a *FormatError with %q", name, got, err, c.want)
		}
	}
}

// Whichever read of the file fails, its own error comes back, and no tensor.
func TestTorchFilesReportTheErrorOfTheFile(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join("testdata/torch", "views.bin"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		r := &failing{Reader: bytes.NewReader(whole), good: n}
		entries, err := readTorch(r, int64(len(whole)), "f")
		if err == nil {
			if n < 10 {
				t.Errorf("only %d readings; were all of them counted?", n)
			}
			return
		}
		if !errors.Is(err, errDisk) || entries != nil {
			t.Fatalf("reading %d fails: %v", n, err)
		}
	}
}

var errDisk = errors.New("disk error")

// failing is a reader that fails after a number of good reads.
type failing struct {
	*bytes.Reader
	good int
}

func (f *failing) ReadAt(p []byte, at int64) (int, error) {
	if f.good--; f.good < 0 {
		return 0, errDisk
	}
	return f.Reader.ReadAt(p, at)
}
