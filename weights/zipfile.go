package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// A torch file is a ZIP archive whose members are stored, not compressed, so that a tensor's bytes lie in the file as they
// are. Only as much of the format is read as that takes (PKWARE APPNOTE 6.3.10, §4.3), from copies of bounded size.

// The bounds of an archive's directory.
const (
	maxDirectoryBytes = 16 << 20
	maxTailBytes      = 22 + math.MaxUint16 // end record and the longest comment
)

// member is one file of an archive, its local header not looked at yet.
type member struct {
	name       string
	size       int64
	header     int64 // offset of the local header
	compressed bool
	encrypted  bool
}

// readZip reads the directory of an archive of size bytes. On error the map is nil. Errors are FormatErrors without a file.
func readZip(r io.ReaderAt, size int64) (map[string]member, error) {
	fail := func(format string, args ...any) (map[string]member, error) {
		return nil, &FormatError{Field: "zip directory", Reason: fmt.Sprintf(format, args...)}
	}
	begin, length, count, err := findDirectory(r, size)
	if err != nil {
		return nil, err
	}
	if length > maxDirectoryBytes {
		return fail("has %d bytes; at most %d are possible", length, maxDirectoryBytes)
	}
	raw := make([]byte, length)
	if err := readFull(r, raw, begin); err != nil {
		return nil, err
	}
	members := make(map[string]member)
	for range count {
		if len(raw) < 46 || !bytes.Equal(raw[:4], []byte("PK\x01\x02")) {
			return fail("is damaged after %d of %d entries", len(members), count)
		}
		name, extra, comment := int(le16(raw[28:])), int(le16(raw[30:])), int(le16(raw[32:]))
		if 46+name+extra+comment > len(raw) {
			return fail("is damaged after %d of %d entries", len(members), count)
		}
		m := member{name: string(raw[46 : 46+name]), encrypted: le16(raw[8:])&1 != 0, compressed: le16(raw[10:]) != 0}
		stored, plain, offset, ok := wide(raw[46+name:46+name+extra], le32(raw[20:]), le32(raw[24:]), le32(raw[42:]))
		if !ok || plain > uint64(size) || offset > uint64(size) || !m.compressed && stored != plain {
			return fail("%s: sizes that contradict each other", quoted(m.name))
		}
		m.size, m.header = int64(plain), int64(offset)
		if _, twice := members[m.name]; twice {
			return fail("%s occurs twice", quoted(m.name))
		}
		members[m.name] = m
		raw = raw[46+name+extra+comment:]
	}
	return members, nil
}

// findDirectory finds the directory by the record at the end of the file: its offset, bytes and number of entries.
func findDirectory(r io.ReaderAt, size int64) (begin, length int64, count uint64, _ error) {
	fail := func(format string, args ...any) (int64, int64, uint64, error) {
		return 0, 0, 0, &FormatError{Field: "zip directory", Reason: fmt.Sprintf(format, args...)}
	}
	tail := make([]byte, min(size, maxTailBytes))
	if err := readFull(r, tail, size-int64(len(tail))); err != nil {
		return 0, 0, 0, err
	}
	at := len(tail) - 22
	for ; at >= 0; at-- {
		if bytes.Equal(tail[at:at+4], []byte("PK\x05\x06")) && at+22+int(le16(tail[at+20:])) == len(tail) {
			break
		}
	}
	if at < 0 {
		return fail("not found at the end of the file; it is cut short, download it again")
	}
	end := size - int64(len(tail)) + int64(at) // of the directory, unless it is a large archive's
	n, bytes64, from := uint64(le16(tail[at+10:])), uint64(le32(tail[at+12:])), uint64(le32(tail[at+16:]))
	if n == math.MaxUint16 || bytes64 == math.MaxUint32 || from == math.MaxUint32 {
		if at < 20 || !bytes.Equal(tail[at-20:at-16], []byte("PK\x06\x07")) {
			return fail("of a large archive, whose record is missing")
		}
		record := le64(tail[at-12:])
		var b [56]byte
		if record > uint64(size) || size-int64(record) < int64(len(b)) {
			return fail("of a large archive, whose record is outside the file")
		}
		if err := readFull(r, b[:], int64(record)); err != nil {
			return 0, 0, 0, err
		}
		if !bytes.Equal(b[:4], []byte("PK\x06\x06")) {
			return fail("of a large archive, whose record is damaged")
		}
		end, n, bytes64, from = int64(record), le64(b[32:]), le64(b[40:]), le64(b[48:])
	}
	if from > uint64(end) || bytes64 > uint64(end)-from {
		return fail("[%d, +%d) does not lie before its end record at %d", from, bytes64, end)
	}
	return int64(from), int64(bytes64), n, nil
}

// wide replaces sizes and an offset that do not fit 32 bits by those of the extra field 1, in its order.
func wide(extra []byte, stored32, plain32, offset32 uint32) (stored, plain, offset uint64, ok bool) {
	stored, plain, offset = uint64(stored32), uint64(plain32), uint64(offset32)
	var missing []*uint64
	for _, v := range []*uint64{&plain, &stored, &offset} {
		if *v == math.MaxUint32 {
			missing = append(missing, v)
		}
	}
	for len(missing) > 0 && len(extra) >= 4 {
		id, n := le16(extra), int(le16(extra[2:]))
		if n > len(extra)-4 {
			return 0, 0, 0, false
		}
		field := extra[4 : 4+n]
		if id == 1 {
			for ; len(missing) > 0 && len(field) >= 8; missing, field = missing[1:], field[8:] {
				*missing[0] = le64(field)
			}
			break
		}
		extra = extra[4+n:]
	}
	return stored, plain, offset, len(missing) == 0
}

// locate returns where the bytes of a member lie in the file.
func (m member) locate(r io.ReaderAt, size int64) (begin, end int64, _ error) {
	fail := func(reason string) (int64, int64, error) {
		return 0, 0, &FormatError{Field: quoted(m.name), Reason: reason}
	}
	if m.compressed || m.encrypted {
		return fail("is compressed or encrypted; torch stores its files plainly, save the model again with torch.save")
	}
	var b [30]byte
	if size-m.header < int64(len(b)) {
		return fail("begins outside the file")
	}
	if err := readFull(r, b[:], m.header); err != nil {
		return 0, 0, err
	}
	if !bytes.Equal(b[:4], []byte("PK\x03\x04")) {
		return fail("has no header where the directory says")
	}
	begin = m.header + 30 + int64(le16(b[26:])) + int64(le16(b[28:]))
	if begin > size || m.size > size-begin {
		return fail("ends outside the file; it is cut short, download it again")
	}
	return begin, begin + m.size, nil
}

func le16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }
func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
