package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// npyFile writes a two-dimensional NumPy array (format 1.0) row by row. close writes the header,
// because it holds the number of rows.
type npyFile struct {
	out         *outFile
	descr       string
	w           *bufio.Writer
	rows, width int // width is in bytes
}

// npyHeader is the size of the whole header in bytes. The format asks for a multiple of 64.
const npyHeader = 128

var npyTypes = map[string]struct {
	descr string
	size  int
}{"float32": {"<f4", 4}, "float16": {"<f2", 2}, "int8": {"|i1", 1}, "uint8": {"|u1", 1}, "binary": {"|u1", 1}}

// createNPY begins an array of dtype in the file path. It refuses what createOut refuses.
func createNPY(ctx context.Context, path, dtype string, in os.FileInfo) (*npyFile, error) {
	out, err := createOut(ctx, path, in)
	if err != nil {
		return nil, err
	}
	n := &npyFile{out: out, descr: dtype, w: bufio.NewWriterSize(out.f, 1<<20)}
	if _, err = n.w.Write(make([]byte, npyHeader)); err != nil {
		err = errors.Join(err, out.discard())
	}
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

// close writes the header and gives the file its name if ok, and otherwise removes the file.
func (n *npyFile) close(ok bool) error {
	if !ok {
		return n.out.discard()
	}
	t := npyTypes[n.descr]
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }",
		t.descr, n.rows, n.width/t.size)
	head := "\x93NUMPY\x01\x00" + string([]byte{npyHeader - 10, 0}) + dict
	head += strings.Repeat(" ", npyHeader-len(head)-1) + "\n"
	err := n.w.Flush()
	if err == nil {
		_, err = n.out.f.WriteAt([]byte(head), 0)
	}
	if err == nil {
		_, err = n.out.f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return errors.Join(err, n.out.discard())
	}
	return n.out.finish()
}
