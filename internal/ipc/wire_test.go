package ipc

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// A chunk of a response crosses whole; a few bytes that claim more than there is take little
// memory.
func TestChunksCross(t *testing.T) {
	c := Chunk{
		Kind: KindChunk, Version: Version, RequestID: "r", Digest: make([]byte, 32), Index: 1, Count: 2,
		TotalBytes: 5 << 20, Payload: bytes.Repeat([]byte{7}, ChunkBytes),
	}
	frame, err := AppendFrame(nil, &c)
	if err != nil {
		t.Fatal(err)
	}
	body, err := ReadFrame(bytes.NewReader(frame), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got Chunk
	if _, err := got.UnmarshalMsg(body); err != nil || !bytes.Equal(got.Payload, c.Payload) ||
		got.Count != 2 || len(got.Digest) != 32 {
		t.Fatalf("%v; %d bytes of payload", err, len(got.Payload))
	}
	for claim, want := range map[string]error{
		"\x81\xa7payload\xc6\xff\xff\xff\xff":  msgp.ErrLimitExceeded,
		"\x81\xa7payload\xc6\x00\x40\x00\x00x": msgp.ErrShortBytes,
	} {
		n := allocated(func() {
			if _, err := new(Chunk).UnmarshalMsg([]byte(claim)); !errors.Is(err, want) {
				t.Errorf("%q: %v", claim, err)
			}
		})
		if n > 64<<10 {
			t.Errorf("%q allocates %d bytes", claim, n)
		}
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Frames are read as they were written; what is no frame is an error, and memory follows the bytes
// that arrive.
func TestFrames(t *testing.T) {
	frame, err := AppendFrame([]byte("front"), &PingRequest{TimestampMS: 1})
	if err != nil || string(frame[:5]) != "front" {
		t.Fatal(err)
	}
	frame = frame[5:]
	r := bytes.NewReader(append(bytes.Clone(frame), frame...))
	var buf []byte
	for range 2 {
		if buf, err = ReadFrame(r, buf); err != nil || !bytes.Equal(buf, frame[4:]) {
			t.Fatalf("%q, %v", buf, err)
		}
	}
	if _, err := ReadFrame(r, buf); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for _, cut := range []int{2, 4, len(frame) - 1} {
		if _, err := ReadFrame(bytes.NewReader(frame[:cut]), nil); err != io.ErrUnexpectedEOF {
			t.Errorf("%d of %d bytes: %v", cut, len(frame), err)
		}
	}
	n := allocated(func() { ReadFrame(bytes.NewReader([]byte{1, 0, 0, 0, 'x'}), nil) })
	if n > 1<<20 {
		t.Errorf("a claim of 16 MiB allocates %d bytes", n)
	}
	var long *ErrFrame
	if _, err := ReadFrame(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff}), nil); !errors.As(err, &long) {
		t.Errorf("a frame of 4 GiB: %v", err)
	}
	if out, err := AppendFrame(nil, &Response{Body: make(msgp.Raw, MaxFrame)}); !errors.As(err, &long) ||
		len(out) != 0 {
		t.Errorf("a map of more than 32 MiB: %v", err)
	}
}
