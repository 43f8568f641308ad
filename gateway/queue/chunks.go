package queue

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/sie-engine/sie/internal/work"
)

// transfer is a result that comes in chunks. Its request's lock guards it.
type transfer struct {
	digest [sha256.Size]byte
	total  uint64
	have   uint64
	parts  [][]byte
	at     time.Time // when its last chunk came
}

// staleTransfer is how long a transfer may rest before another one takes its place.
const staleTransfer = 5 * time.Second

// chunk takes a part of a result. The last part is sent as a request, and answered with the parts
// that are missing or, when the result is whole, with its receipt.
func (q *Queue) chunk(r *request, c *work.Chunk, asked bool, now time.Time) ([]byte, error) {
	whole, reply, err := q.part(r, c, asked, now)
	if whole == nil {
		return reply, err
	}
	data := whole.join()
	if data == nil { // without a receipt the worker sends all of it again
		return nil, fmt.Errorf("the chunks of %s are not those of its digest", clip(c.WorkItemID))
	}
	res, err := parseResult(data)
	if err == nil && (res.WorkItemID != c.WorkItemID || res.ResultRef != "") {
		err = fmt.Errorf("%q came in the chunks of %q", clip(res.WorkItemID), clip(c.WorkItemID))
	}
	if err != nil {
		return nil, fmt.Errorf("a result in chunks: %w", err)
	}
	return q.result(r, res, 0, nil, now) // its bytes were held as they came
}

// checkChunk returns what is wrong with a chunk by itself.
func checkChunk(c *work.Chunk) error {
	parts := (c.TotalBytes + work.ChunkBytes - 1) / work.ChunkBytes
	switch {
	case c.TotalBytes == 0 || c.TotalBytes > work.MaxTransferBytes:
		return fmt.Errorf("a transfer of %d bytes; 1 to %d are taken", c.TotalBytes, work.MaxTransferBytes)
	case uint64(c.Count) < parts || c.Count > maxParts || c.Index >= c.Count:
		return fmt.Errorf("chunk %d of %d for %d bytes", c.Index, c.Count, c.TotalBytes)
	case len(c.Payload) == 0 || len(c.Payload) > work.ChunkBytes || len(c.Digest) != sha256.Size:
		return fmt.Errorf("a chunk of %d bytes with a digest of %d", len(c.Payload), len(c.Digest))
	}
	return nil
}

// part puts a chunk in its place. When the transfer is whole, part takes it out of the slice and
// returns it; else it returns the answer to the chunk.
func (q *Queue) part(r *request, c *work.Chunk, asked bool, now time.Time) (*transfer, []byte, error) {
	if err := checkChunk(c); err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.indexOf(c.WorkItemID, c.ItemIndex)
	if err != nil {
		return nil, nil, err
	}
	s := &r.slices[i]
	switch {
	case s.state == done || r.over:
		return nil, receipts[r.doneLocked(i)], nil
	case s.state == idle:
		return nil, nil, fmt.Errorf("a chunk of slice %d, which was not sent", i)
	}
	t := s.transferOf(c, now)
	if t == nil {
		return nil, nil, nil // two others come; the worker sends it again
	}
	t.at = now
	if len(t.parts) != int(c.Count) || t.total != c.TotalBytes {
		return nil, nil,
			fmt.Errorf("chunks of one digest belong to transfers of %d and %d", len(t.parts), c.Count)
	}
	if t.parts[c.Index] == nil {
		n := uint64(len(c.Payload))
		if t.have+n > t.total {
			return nil, nil, fmt.Errorf("more than the %d bytes of a transfer", t.total)
		}
		if err := r.work.Hold(int64(n), s.end-s.first); err != nil {
			r.failLocked(i, err, true, now)
			return nil, receipts[work.Stored], nil
		}
		t.parts[c.Index], t.have = c.Payload, t.have+n
	}
	if !asked {
		return nil, nil, nil
	}
	if missing := t.missing(); len(missing) > 0 {
		q.metrics.again.Inc()
		return nil, receipt(work.Again, missing), nil
	}
	s.drop(t)
	return t, nil, nil
}

// maxParts bounds the chunks of a transfer.
const maxParts = 1024

// transferOf returns the transfer that a chunk belongs to, or nil if there are too many.
func (s *slice) transferOf(c *work.Chunk, now time.Time) *transfer {
	for _, t := range s.transfers {
		if string(t.digest[:]) != string(c.Digest) {
			continue
		}
		if len(t.parts) < int(c.Count) && t.total == c.TotalBytes {
			// The worker met a broker of smaller messages and begins anew; the bytes stay held, as
			// below. Larger chunks that still come are of no use.
			t.parts, t.have = make([][]byte, c.Count), 0
		}
		return t
	}
	if len(s.transfers) >= maxTransfers {
		oldest := s.transfers[0]
		for _, t := range s.transfers {
			if t.at.Before(oldest.at) {
				oldest = t
			}
		}
		if now.Sub(oldest.at) < staleTransfer {
			return nil
		}
		s.drop(oldest) // its bytes stay held until the request ends: no worker can make us hold more
	}
	t := &transfer{total: c.TotalBytes, parts: make([][]byte, c.Count)}
	copy(t.digest[:], c.Digest)
	s.transfers = append(s.transfers, t)
	return t
}

func (s *slice) drop(t *transfer) {
	for i := range s.transfers {
		if s.transfers[i] == t {
			s.transfers = append(s.transfers[:i], s.transfers[i+1:]...)
			return
		}
	}
}

// missing returns the parts that have not come.
func (t *transfer) missing() (out []uint32) {
	for i := range t.parts {
		if t.parts[i] == nil {
			out = append(out, uint32(i))
		}
	}
	return out
}

// join returns the whole result, or nil if it is not what its digest says.
func (t *transfer) join() []byte {
	if t.have != t.total {
		return nil
	}
	out := make([]byte, 0, t.total)
	for _, p := range t.parts {
		out = append(out, p...)
	}
	if sha256.Sum256(out) != t.digest {
		return nil
	}
	return out
}
