package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
)

// npyFile writes a two-dimensional NumPy array (format 1.0) row by row. The header has room for the final row count,
// which is filled in by close. The file appears under its name only when it is complete.
type npyFile struct {
	path, descr string
	f           *os.File
	w           *bufio.Writer
	rows, width int // width in bytes
}

// npyHeader is the size of the whole header, a multiple of 64 as the format asks.
const npyHeader = 128

var npyTypes = map[string]struct {
	descr string
	size  int
}{"float32": {"<f4", 4}, "float16": {"<f2", 2}, "int8": {"|i1", 1}, "uint8": {"|u1", 1}, "binary": {"|u1", 1}}

func createNPY(path, dtype string) (*npyFile, error) {
	f, err := os.Create(path + ".part")
	if err != nil {
		return nil, err
	}
	n := &npyFile{path: path, descr: dtype, f: f, w: bufio.NewWriterSize(f, 1<<20)}
	_, err = n.w.Write(make([]byte, npyHeader))
	return n, err
}

func (n *npyFile) write(row []byte) error {
	if n.rows > 0 && len(row) != n.width {
		return fmt.Errorf("row %d has %d bytes instead of %d", n.rows, len(row), n.width)
	}
	n.width = len(row)
	n.rows++
	_, err := n.w.Write(row)
	return err
}

// close writes the header and gives the file its name, or removes it.
func (n *npyFile) close(ok bool) error {
	part := n.f.Name()
	if !ok {
		return errors.Join(n.f.Close(), os.Remove(part))
	}
	t := npyTypes[n.descr]
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }", t.descr, n.rows, n.width/t.size)
	head := "\x93NUMPY\x01\x00" + string([]byte{npyHeader - 10, 0}) + dict
	head += strings.Repeat(" ", npyHeader-len(head)-1) + "\n"
	err := n.w.Flush()
	if err == nil {
		_, err = n.f.WriteAt([]byte(head), 0)
	}
	if err = errors.Join(err, n.f.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, n.path)
}
