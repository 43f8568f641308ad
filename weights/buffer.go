package weights

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Buffer holds tensors that are read one after another. Its memory lies outside the Go heap, so
// Close returns it to the system at once. The zero value is empty. One goroutine at a time may use
// it.
type Buffer struct {
	mem  []byte
	used int
}

const (
	// bufferStep is the unit to which buffer sizes are rounded up.
	bufferStep = 1 << 20
	// bufferKept is the size up to which a buffer is kept for much smaller tensors.
	bufferKept = 64 << 20
)

// Reserve empties the buffer and makes room for n bytes. The results of earlier reads become
// invalid. A buffer above 64 MiB is replaced when n is less than a quarter of its size.
func (b *Buffer) Reserve(n int64) error {
	b.used = 0
	have := int64(len(b.mem))
	size := BufferSize(have, n)
	if size == have {
		return nil
	}
	b.Close()
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("no memory for a buffer of %d bytes: %w", size, err)
	}
	b.mem = mem
	return nil
}

// BufferSize returns the size in bytes of a buffer of have bytes after Reserve(n).
func BufferSize(have, n int64) int64 {
	if n <= have && (have <= bufferKept || n >= have/4) {
		return have
	}
	return (n + bufferStep - 1) / bufferStep * bufferStep
}

// Read appends the tensor's elements to the contents of the buffer and returns them. The caller has
// reserved enough room for all tensors since Reserve. The result is valid until the next Reserve or
// Close. Errors are those of Tensor.ReadAt.
func (b *Buffer) Read(t Tensor) ([]byte, error) {
	end := b.used + int(t.Bytes())
	p := b.mem[b.used:end:end]
	if err := t.ReadAt(p, 0); err != nil {
		return nil, err
	}
	b.used = end
	return p, nil
}

// Size returns the memory of the buffer in bytes.
func (b *Buffer) Size() int64 { return int64(len(b.mem)) }

// Close returns the memory to the system. The buffer may be used again.
func (b *Buffer) Close() {
	if b.mem != nil {
		_ = unix.Munmap(b.mem) // cannot fail for our own mapping
	}
	b.mem, b.used = nil, 0
}
