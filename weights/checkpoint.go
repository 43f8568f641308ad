package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The safetensors files that Open looks for.
const (
	SingleFile = "model.safetensors"
	IndexFile  = "model.safetensors.index.json"
)

// checkpointFiles lists the files that Open looks for, in order.
var checkpointFiles = []string{SingleFile, IndexFile, TorchFile, TorchIndexFile}

// Tensor describes one tensor of an open Checkpoint. It is a small value; copying it does not copy
// the elements.
type Tensor struct {
	Name  string
	DType DType
	Shape []int64 // row-major; empty for a scalar. Shared: do not write.

	file       *source
	begin, end int64  // in the file, or in own
	own        []byte // copied elements of a tensor that is not row-major in the file; else nil
}

// Bytes returns the size of the elements in bytes.
func (t Tensor) Bytes() int64 { return t.end - t.begin }

// Elements returns the number of elements, the product of Shape.
func (t Tensor) Elements() int64 { return t.Bytes() * 8 / t.DType.Bits() }

// ReadAt fills p with the tensor's bytes from offset: elements are row-major and little-endian. It
// is safe for concurrent use. Errors: ErrChanged when the file has lost the bytes since it was
// opened, os.ErrClosed after Checkpoint.Close, and errors of the file system. A tensor that was
// copied at opening gives none of these.
func (t Tensor) ReadAt(p []byte, offset int64) error {
	if offset < 0 || int64(len(p)) > t.Bytes()-offset {
		return fmt.Errorf("tensor %s: bytes [%d, +%d) of %d", quoted(t.Name), offset, len(p), t.Bytes())
	}
	if t.own != nil {
		copy(p, t.own[offset:])
		return nil
	}
	_, err := t.file.ReadAt(p, t.begin+offset)
	return err
}

// Release tells the kernel that the tensor's elements will not be read soon. Of a large checkpoint
// it then gives up their pages. This is advice; the elements can still be read.
func (t Tensor) Release() {
	if t.own == nil {
		t.file.release(t.begin, t.end)
	}
}

// Checkpoint is an open set of tensors: one file, or all shards of an index. Its methods and those
// of its tensors are safe for concurrent use.
type Checkpoint struct {
	name     string // of the opened file, without its folder
	files    []*source
	tensors  map[string]Tensor
	names    []string // sorted
	bytes    int64
	metadata map[string]string
}

// Open opens the checkpoint of a model directory. It takes the first of these that exists:
// model.safetensors, the shards of model.safetensors.index.json, pytorch_model.bin, the shards of
// pytorch_model.bin.index.json. Errors: ErrNoWeights when the directory has none of them;
// *FormatError when a file breaks the format; otherwise the error of the file system.
func Open(dir string) (*Checkpoint, error) {
	for _, name := range checkpointFiles {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, ".json") {
			return openSharded(dir, path)
		}
		return OpenFile(path)
	}
	return nil, noWeights(dir)
}

// OpenFile opens one checkpoint file. A name that ends in .bin, .pt, .pth or .ckpt means
// torch.save, any other name safetensors. Errors are those of Open, but a missing file is
// fs.ErrNotExist.
func OpenFile(path string) (*Checkpoint, error) {
	c := &Checkpoint{name: filepath.Base(path), tensors: make(map[string]Tensor)}
	if err := c.add(path, nil); err != nil {
		c.Close()
		return nil, err
	}
	c.finish()
	return c, nil
}

func openSharded(dir, index string) (*Checkpoint, error) {
	ix, err := readIndex(index)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{name: filepath.Base(index), tensors: make(map[string]Tensor, len(ix.shardOf))}
	for i, shard := range ix.shards {
		// The index decides which shard a tensor comes from. A copy in another shard is ignored.
		mine := func(name string) bool { at, listed := ix.shardOf[name]; return listed && at == i }
		err := c.add(filepath.Join(dir, shard), mine)
		if errors.Is(err, fs.ErrNotExist) {
			err = &FormatError{File: index, Field: "weight_map",
				Reason: fmt.Sprintf("names the shard %s, which is missing; download the model again", shard)}
		}
		for j, other := range c.files[:max(0, len(c.files)-1)] {
			if err == nil && os.SameFile(other.opened, c.files[i].opened) {
				err = &FormatError{File: index, Field: "weight_map", Reason: fmt.Sprintf(
					"names one file twice, as the shards %s and %s; download the model again", ix.shards[j], shard)}
			}
		}
		if err != nil {
			c.Close()
			return nil, err
		}
	}
	if len(c.tensors) != len(ix.shardOf) {
		for _, name := range slices.Sorted(maps.Keys(ix.shardOf)) {
			if _, ok := c.tensors[name]; !ok {
				c.Close()
				return nil, &FormatError{File: index, Tensor: name, Field: "weight_map",
					Reason: fmt.Sprintf("the shard %s does not hold it", ix.shards[ix.shardOf[name]])}
			}
		}
	}
	c.finish()
	return c, nil
}

// add opens one file and adds the tensors that keep accepts, or all of them when keep is nil.
func (c *Checkpoint) add(path string, keep func(name string) bool) error {
	m, err := openSource(path)
	if err != nil {
		return err
	}
	c.files = append(c.files, m)
	if isTorch(path) {
		return c.addTorch(m, path, keep)
	}
	h, err := readHeader(m, m.size(), path)
	if err != nil {
		return err
	}
	for _, e := range h.entries {
		if keep == nil || keep(e.name) {
			c.tensors[e.name] = Tensor{Name: e.name, DType: e.dtype, Shape: e.shape,
				file: m, begin: h.dataStart + e.begin, end: h.dataStart + e.end}
		}
	}
	for key, value := range h.metadata {
		if _, first := c.metadata[key]; !first {
			if c.metadata == nil {
				c.metadata = make(map[string]string)
			}
			c.metadata[key] = value
		}
	}
	return nil
}

func (c *Checkpoint) finish() {
	c.names = slices.Sorted(maps.Keys(c.tensors))
	for _, t := range c.tensors {
		c.bytes += t.Bytes()
	}
	for _, f := range c.files {
		f.large = c.bytes > largeBytes
	}
}

// largeBytes is the size from which a checkpoint is not kept in the page cache: the machine needs
// that memory for the packed weights, and what was read ahead would be gone before it is used.
const largeBytes = 4 << 30

// addTorch adds the tensors of a torch.save file, as add does for safetensors.
func (c *Checkpoint) addTorch(m *source, path string, keep func(name string) bool) error {
	entries, err := readTorch(m, m.size(), path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if keep == nil || keep(e.name) {
			c.tensors[e.name] = Tensor{
				Name: e.name, DType: e.dtype, Shape: e.shape, file: m, begin: e.begin, end: e.end,
				own: e.data,
			}
		}
	}
	return nil
}

// noWeights returns the error that lists the names Open looked for.
func noWeights(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%w: %w", ErrNoWeights, err)
	}
	return fmt.Errorf("%w in %s: looked for %s; check the path, or download the model again",
		ErrNoWeights, dir, strings.Join(checkpointFiles, ", "))
}

// Name returns the name of the opened file without its folder, for messages.
func (c *Checkpoint) Name() string { return c.name }

// Tensor returns the tensor with that name and whether it exists.
func (c *Checkpoint) Tensor(name string) (Tensor, bool) {
	t, ok := c.tensors[name]
	return t, ok
}

// Names returns the names of all tensors, sorted. The slice is the caller's.
func (c *Checkpoint) Names() []string { return slices.Clone(c.names) }

// Bytes returns the size of all tensors together.
func (c *Checkpoint) Bytes() int64 { return c.bytes }

// Metadata returns the __metadata__ of the file, or nil when there is none. Where several shards
// have the same key, it has the value of the first. The map is shared: do not write to it.
func (c *Checkpoint) Metadata() map[string]string { return c.metadata }

// Prefetch asks the kernel to read the whole checkpoint ahead, unless it is large. This is advice:
// reading works without it, so an error needs no more than a log line.
func (c *Checkpoint) Prefetch() error { return c.each((*source).willNeed) }

// CheckUnchanged returns an error that matches ErrChanged for each file written to since opening.
// Call it after the last read. Only then is it certain that all reads saw one state of the file.
func (c *Checkpoint) CheckUnchanged() error { return c.each((*source).unchanged) }

// ReadError returns the error of CheckUnchanged, or else err. Call it when a read has ended, with
// the error of the read or nil: a changed file explains any other failure.
func (c *Checkpoint) ReadError(err error) error {
	if changed := c.CheckUnchanged(); changed != nil {
		return changed
	}
	return err
}

// Close closes all files. Further calls do nothing.
func (c *Checkpoint) Close() error { return c.each((*source).close) }

func (c *Checkpoint) each(f func(*source) error) error {
	var all []error
	for _, s := range c.files {
		all = append(all, f(s))
	}
	return errors.Join(all...)
}
