package weights

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Buffer is memory that tensors are read into, one after another. It lies outside the Go heap, so
// that Close gives it back to the system at once. The zero value is empty. One goroutine at a time.
type Buffer struct {
	mem  []byte
	used int
}

const (
	// bufferStep is what sizes of buffers are rounded up to.
	bufferStep = 1 << 20
	// bufferKept bounds a buffer that is kept for much smaller tensors.
	bufferKept = 64 << 20
)

// Reserve empties the buffer and makes room for n bytes. What was read into it before becomes
// invalid. A large buffer is given back when n is far smaller.
func (b *Buffer) Reserve(n int64) error {
	b.used = 0
	have := int64(len(b.mem))
	size := BufferSize(have, n)
	if size == have {
		return nil
	}
	b.Close()
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("no memory for a buffer of %d bytes: %w", size, err)
	}
	b.mem = mem
	return nil
}

// BufferSize is the size of a buffer of have bytes after Reserve(n).
func BufferSize(have, n int64) int64 {
	if n <= have && (have <= bufferKept || n >= have/4) {
		return have
	}
	return (n + bufferStep - 1) / bufferStep * bufferStep
}

// Read reads the tensor's elements behind what the buffer holds since Reserve, which has made room
// for them. The result is valid until the next Reserve or Close. Errors are those of Tensor.ReadAt.
func (b *Buffer) Read(t Tensor) ([]byte, error) {
	end := b.used + int(t.Bytes())
	p := b.mem[b.used:end:end]
	if err := t.ReadAt(p, 0); err != nil {
		return nil, err
	}
	b.used = end
	return p, nil
}

// Size is the memory it has, in bytes.
func (b *Buffer) Size() int64 { return int64(len(b.mem)) }

// Close gives the memory back. The buffer may be used again.
func (b *Buffer) Close() {
	if b.mem != nil {
		_ = unix.Munmap(b.mem) // cannot fail for a map of ours
	}
	b.mem, b.used = nil, 0
}
