package weights_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/weightstest"
)

// changes lists the changes that another process may make to a file during a read.
var changes = map[string]func(path string) error{
	"emptied":       func(path string) error { return os.Truncate(path, 0) },
	"cut in a page": func(path string) error { return truncateBy(path, 5) },
	"cut to half": func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()/2)
	},
	"appended to": func(path string) error { return writeAt(path, []byte("more"), io.SeekEnd) },
	"rewritten":   func(path string) error { return writeAt(path, []byte("XXXXXXXXXXXXXXXX"), io.SeekStart) },
}

func truncateBy(path string, n int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()-n)
}

// writeAt writes in place, and ensures that the file's modification time changes.
func writeAt(path string, data []byte, whence int) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(0, whence); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))
}

// TestFileThatChanges changes a file before its first read, its second read, … and its last. Then
// opening or reading it gives an error that names the file, or the bytes of one state of the file
// if the change came before any read that would see it.
func TestFileThatChanges(t *testing.T) {
	big := make([]byte, 700<<10) // more than one block of a conversion
	tensors := []weightstest.Tensor{
		weightstest.Float32("a", []int64{3}, 1, 2, 3),
		{Name: "b", DType: weights.F32, Shape: []int64{int64(len(big) / 4)}, Data: big},
		weightstest.Float32("c", []int64{1}, 4),
	}
	write := map[string]func(dir string) (changed string){
		"one file": func(dir string) string {
			return weightstest.WriteFile(t, dir, weights.SingleFile, weightstest.Encode(nil, tensors...))
		},
		"a shard": func(dir string) string {
			weightstest.WriteSharded(t, dir, tensors[:2], tensors[2:])
			return filepath.Join(dir, "model-00001-of-00002.safetensors")
		},
		"torch": func(dir string) string {
			data, err := os.ReadFile(filepath.Join(torchFiles, "views.bin"))
			if err != nil {
				t.Fatal(err)
			}
			return weightstest.WriteFile(t, dir, weights.TorchFile, data)
		},
	}
	for kind, write := range write {
		for name, change := range changes {
			t.Run(kind+" "+name, func(t *testing.T) {
				seen := 0
				for n := 0; ; n++ {
					dir := t.TempDir()
					path := write(dir)
					reads := 0
					weightstest.OnRead(t, func(at string, _ int64) {
						if at == path {
							if reads == n {
								if err := change(path); err != nil {
									t.Fatal(err)
								}
							}
							reads++
						}
					})
					err := readAll(dir)
					if reads <= n { // the change was never made
						if err != nil || n < 3 {
							t.Fatalf("unchanged, after %d reads: %v", reads, err)
						}
						break
					}
					if err == nil {
						t.Fatalf("no error for a change before read %d", n)
					}
					if !strings.Contains(err.Error(), path) {
						t.Fatalf("read %d: the error does not name the file: %v", n, err)
					}
					if errors.Is(err, weights.ErrChanged) {
						seen++
					}
				}
				if seen == 0 {
					t.Error("never told as a change")
				}
			})
		}
	}
}

// readAll reads every tensor of the directory's checkpoint in every way.
func readAll(dir string) error {
	c, err := weights.Open(dir)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.ReadError(func() error {
		var buffer weights.Buffer
		defer buffer.Close()
		for _, name := range c.Names() {
			tensor, _ := c.Tensor(name)
			if err := buffer.Reserve(tensor.Bytes()); err != nil {
				return err
			}
			if _, err := buffer.Read(tensor); err != nil {
				return err
			}
			if tensor.DType == weights.F32 {
				if _, err := tensor.AppendFloat32(nil); err != nil {
					return err
				}
			}
		}
		return nil
	}())
}

func TestSettleKeepsTheFirstError(t *testing.T) {
	path := weightstest.WriteFile(t, t.TempDir(), "x.safetensors",
		weightstest.Encode(nil, weightstest.Float32("a", []int64{1}, 1)))
	c, err := weights.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	broken := errors.New("broken")
	if err := c.ReadError(broken); err != broken {
		t.Errorf("got %v", err)
	}
	if err := changes["rewritten"](path); err != nil {
		t.Fatal(err)
	}
	if err := c.ReadError(broken); !errors.Is(err, weights.ErrChanged) {
		t.Errorf("got %v for a file that changed", err)
	}
}

// A buffer holds several tensors, grows, and releases memory that is far too large.
func TestBuffer(t *testing.T) {
	sizes := []int64{100, 3 << 20, 80 << 20, 1}
	var tensors []weightstest.Tensor
	for i, n := range sizes {
		tensors = append(tensors, weightstest.Tensor{
			Name:  fmt.Sprint(i),
			DType: weights.U8,
			Shape: []int64{n},
			Data:  bytes.Repeat([]byte{byte(i + 1)}, int(n)),
		})
	}
	c, err := weights.OpenFile(
		weightstest.WriteFile(t, t.TempDir(), "x.safetensors", weightstest.Encode(nil, tensors...)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var b weights.Buffer
	for _, group := range [][]int{{0, 3}, {1, 0}, {2}, {2, 1}, {0}, {3}} {
		var sum int64
		for _, i := range group {
			sum += sizes[i]
		}
		if err := b.Reserve(sum); err != nil {
			t.Fatal(err)
		}
		if b.Size() < sum || b.Size() > max(sum+1<<20, 64<<20) {
			t.Errorf("%d bytes are kept for %d", b.Size(), sum)
		}
		var got [][]byte
		for _, i := range group {
			tensor, _ := c.Tensor(fmt.Sprint(i))
			p, err := b.Read(tensor)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p)
		}
		for k, i := range group {
			if !bytes.Equal(got[k], tensors[i].Data) {
				t.Errorf("tensor %d of group %v has other bytes", i, group)
			}
		}
	}
	b.Close()
	if b.Size() != 0 {
		t.Error("Close keeps memory")
	}
}

func TestReadAtBounds(t *testing.T) {
	c, err := weights.OpenFile(weightstest.WriteFile(t, t.TempDir(), "x.safetensors", weightstest.Encode(nil,
		weightstest.Float32("a", []int64{2}, 1, 2), weightstest.Float32("b", []int64{1}, 3))))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, _ := c.Tensor("a")
	for _, x := range []struct {
		n      int
		offset int64
	}{{9, 0}, {5, 4}, {1, 8}, {1, -1}, {0, 9}} {
		if err := a.ReadAt(make([]byte, x.n), x.offset); err == nil {
			t.Errorf("%d bytes at %d of 8 were read", x.n, x.offset)
		}
	}
	if got := make([]byte, 4); a.ReadAt(got, 4) != nil ||
		!bytes.Equal(got, weightstest.Float32("", nil, 2).Data) {
		t.Errorf("the second element is %x", got)
	}
}
