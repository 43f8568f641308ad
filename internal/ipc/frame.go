package ipc

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The bounds of frames, and of requests and responses in chunks.
const (
	MaxFrame      = 32 << 20
	ChunkBytes    = 4 << 20
	MaxTransfer   = 128 << 20
	frameHeadSize = 4
)

// ErrFrame is the error of a frame that is longer than MaxFrame.
type ErrFrame struct{ Bytes uint32 }

// Error names the limit.
func (e *ErrFrame) Error() string {
	return fmt.Sprintf("ipc: a frame of %d bytes; at most %d are read", e.Bytes, MaxFrame)
}

// ReadFrame reads one frame into buf, which it grows as bytes arrive, never by what the length
// claims alone. It returns the frame's map. io.EOF means the end between two frames, and
// io.ErrUnexpectedEOF one inside a frame.
func ReadFrame(r io.Reader, buf []byte) ([]byte, error) {
	var head [frameHeadSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return buf[:0], err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxFrame {
		return buf[:0], &ErrFrame{n}
	}
	buf = buf[:0]
	for left := int(n); left > 0; {
		step := min(left, max(64<<10, len(buf)))
		if free := cap(buf) - len(buf); free < step {
			grown := make([]byte, len(buf), min(int(n), len(buf)+max(step, 2*len(buf))))
			copy(grown, buf)
			buf = grown
		}
		step = min(left, cap(buf)-len(buf))
		if _, err := io.ReadFull(r, buf[len(buf):len(buf)+step]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return buf[:0], err
		}
		buf = buf[:len(buf)+step]
		left -= step
	}
	return buf, nil
}

// marshaler is a generated type.
type marshaler interface {
	MarshalMsg(b []byte) ([]byte, error)
	Msgsize() int
}

// AppendFrame appends m as a frame to dst. A map of more than MaxFrame bytes is an *ErrFrame, and
// dst is returned unchanged.
func AppendFrame(dst []byte, m marshaler) ([]byte, error) {
	from := len(dst)
	out, err := m.MarshalMsg(append(dst, 0, 0, 0, 0))
	if err != nil {
		return dst[:from], fmt.Errorf("ipc: %w", err)
	}
	n := len(out) - from - frameHeadSize
	if n > MaxFrame {
		return dst[:from], &ErrFrame{uint32(min(n, 1<<32-1))}
	}
	binary.BigEndian.PutUint32(out[from:], uint32(n))
	return out, nil
}
