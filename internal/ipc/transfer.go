package ipc

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// MaxResponse bounds a response in chunks for a caller that says it takes so many bytes
// (Request.MostBytes); others take MaxTransfer.
const MaxResponse = 512<<20 + 1<<20

// Chunks cuts data, a serialised Request or Response, into frames of chunks of a kind. The frames
// come in pieces that are to be written one after another; those with data alias it.
func Chunks(kind, id string, data []byte) (pieces [][]byte) {
	sum := sha256.Sum256(data)
	c := Chunk{
		Kind: kind, Version: Version, RequestID: id, Digest: sum[:],
		Count: uint32((len(data) + ChunkBytes - 1) / ChunkBytes), TotalBytes: uint64(len(data)),
	}
	for rest := data; len(rest) > 0; c.Index++ {
		n := min(len(rest), ChunkBytes)
		pieces = append(pieces, chunkHead(&c, n), rest[:n])
		rest = rest[n:]
	}
	return pieces
}

// chunkHead returns the frame of a chunk up to its payload of n bytes, which is the last field.
func chunkHead(c *Chunk, n int) []byte {
	head, err := c.MarshalMsg(make([]byte, frameHeadSize, 256))
	if err != nil { // strings, numbers and bytes always have a form
		panic("ipc: internal error: " + err.Error())
	}
	empty := len(msgp.AppendBytes(nil, nil))
	head = msgp.AppendBytesHeader(head[:len(head)-empty], uint32(n))
	size := len(head) - frameHeadSize + n
	head[0], head[1], head[2], head[3] = byte(size>>24), byte(size>>16), byte(size>>8), byte(size)
	return head
}

// maxOpen bounds the messages in chunks that are not complete.
const maxOpen = 16

// Transfers puts messages together that come in chunks. It belongs to the reader of a connection.
// An error of Add is that of a peer that breaks the protocol.
type Transfers struct {
	most, all uint64
	open      map[string]*transfer
	announced uint64 // by those that are open
	held      int
}

// transfer is a message of which chunks are missing.
type transfer struct {
	digest []byte
	count  uint32
	next   uint32
	total  uint64
	data   []byte
}

// NewTransfers returns a Transfers for messages of at most most bytes, all bytes of those together
// that are not complete.
func NewTransfers(most, all int) *Transfers {
	return &Transfers{most: uint64(most), all: uint64(all), open: map[string]*transfer{}}
}

// Held returns the bytes of messages that are not complete.
func (t *Transfers) Held() int { return t.held }

// Add adds a chunk to its message, and returns the message with its last chunk.
func (t *Transfers) Add(c *Chunk) ([]byte, error) {
	x := t.open[c.RequestID]
	if x == nil {
		switch {
		case c.TotalBytes == 0 || c.TotalBytes > t.most:
			return nil, fmt.Errorf("ipc: a message of %d bytes in %d chunks; 1 to %d bytes are read",
				c.TotalBytes, c.Count, t.most)
		case t.announced+c.TotalBytes > t.all || len(t.open) >= maxOpen:
			return nil, fmt.Errorf("ipc: messages in chunks of %d bytes at once; at most %d messages of %d "+
				"bytes together are read", t.announced+c.TotalBytes, maxOpen, t.all)
		case c.Version != Version:
			return nil, fmt.Errorf("ipc: a chunk of version %d; version %d is read", c.Version, Version)
		}
		x = &transfer{digest: bytes.Clone(c.Digest), count: c.Count, total: c.TotalBytes}
		t.open[c.RequestID] = x
		t.announced += x.total
	}
	if c.Index != x.next || c.Index >= c.Count || c.Count != x.count || c.TotalBytes != x.total ||
		!bytes.Equal(c.Digest, x.digest) || len(c.Payload) == 0 ||
		uint64(len(x.data)+len(c.Payload)) > x.total {
		return nil, fmt.Errorf("ipc: chunk %d of %d does not belong to its message", c.Index, c.Count)
	}
	x.grow(len(c.Payload))
	x.data = append(x.data, c.Payload...)
	t.held += len(c.Payload)
	if x.next++; x.next < x.count {
		return nil, nil
	}
	delete(t.open, c.RequestID)
	t.announced -= x.total
	t.held -= len(x.data)
	if sum := sha256.Sum256(x.data); uint64(len(x.data)) != x.total || !bytes.Equal(sum[:], x.digest) {
		return nil, fmt.Errorf("ipc: a message in %d chunks has another digest than announced", x.count)
	}
	return x.data, nil
}

// Drop forgets the chunks of a message, and returns their bytes.
func (t *Transfers) Drop(id string) int {
	x := t.open[id]
	if x == nil {
		return 0
	}
	delete(t.open, id)
	t.announced -= x.total
	t.held -= len(x.data)
	return len(x.data)
}

// grow makes room for n bytes more, as many as have come at least: never by what is announced
// alone, and never beyond it.
func (x *transfer) grow(n int) {
	if need := len(x.data) + n; need > cap(x.data) {
		grown := make([]byte, len(x.data), max(need, min(2*need, int(x.total))))
		copy(grown, x.data)
		x.data = grown
	}
}
