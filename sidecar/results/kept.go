package results

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"

	"github.com/sie-engine/sie/internal/work"
)

// Entry is a message that waits for a receipt: a result, or a server_died mark.
type Entry struct {
	ID      string // of the slice
	Subject string // of the reply
	Data    []byte // the serialised message, never changed
	Died    bool   // a server_died mark
	Index   uint32 // of the slice in its request
	Request string

	number uint64
	next   time.Time // of the next try
	chunks int       // 0: one message
	size   int       // of a chunk
	digest [sha256.Size]byte
	send   []int // indices of chunks that are to be sent now, the last chunk at the end
	done   bool
}

// Number identifies the entry in the subject of its receipts.
func (e *Entry) Number() string { return strconv.FormatUint(e.number, 36) }

// Message is one message to publish. One with Request is sent as a request: its reply is a receipt.
type Message struct {
	Data    []byte
	Request bool
}

// Kept holds the entries that wait. Every entry is tried again work.ReceiptRetry after its last
// try.
type Kept struct {
	limit   int // bytes of one message
	last    uint64
	entries map[uint64]*Entry // bounded by the caller, who asks Bytes and Len
	fresh   []*Entry          // never tried
	order   []*Entry          // by next; done ones stay until they are due
	bytes   int64
}

// NewKept returns a Kept for a broker whose messages have at most limit bytes.
func NewKept(limit int) *Kept { return &Kept{limit: limit, entries: map[uint64]*Entry{}} }

// headRoom is what a message needs beside a result: its headers, its subject.
const headRoom = 1 << 10

// SetLimit tells the greatest message of the broker, as told at each connect. Entries of which a
// message would be too large now are sent in smaller chunks, from the first on.
func (k *Kept) SetLimit(limit int) {
	k.limit = limit
	for _, e := range k.entries {
		if e.chunks == 0 && !k.OneMessage(len(e.Data)) || e.chunks > 0 && e.size > k.chunkSize() {
			k.cut(e)
		}
	}
}

// OneMessage reports whether n bytes fit into one message.
func (k *Kept) OneMessage(n int) bool { return n <= k.limit-headRoom }

// Bytes returns the bytes of all entries.
func (k *Kept) Bytes() int64 { return k.bytes }

// Len returns the number of entries.
func (k *Kept) Len() int { return len(k.entries) }

// Add keeps an entry, to be sent at once: Due returns it next.
func (k *Kept) Add(now time.Time, e *Entry) {
	k.last++
	e.number, e.next, e.done = k.last, now, false
	if !k.OneMessage(len(e.Data)) {
		k.cut(e)
	}
	k.entries[e.number] = e
	k.bytes += int64(len(e.Data))
	k.fresh = append(k.fresh, e)
}

// chunkSize returns the bytes of a chunk that fits into a message.
func (k *Kept) chunkSize() int { return max(min(work.ChunkBytes, k.limit-headRoom), headRoom) }

// cut has an entry sent in chunks, all of them.
func (k *Kept) cut(e *Entry) {
	if e.chunks == 0 {
		e.digest = sha256.Sum256(e.Data)
	}
	e.size = k.chunkSize()
	e.chunks = (len(e.Data) + e.size - 1) / e.size
	e.send = e.send[:0]
	for i := range e.chunks {
		e.send = append(e.send, i)
	}
}

// Due returns the next entry whose time has come, nil for none. It comes again after
// work.ReceiptRetry, unless Remove was called.
func (k *Kept) Due(now time.Time) *Entry {
	for len(k.fresh)+len(k.order) > 0 {
		list := &k.order
		if len(k.fresh) > 0 {
			list = &k.fresh
		}
		e := (*list)[0]
		if !e.done && e.next.After(now) {
			return nil
		}
		*list = (*list)[1:]
		if e.done {
			continue
		}
		e.next = now.Add(work.ReceiptRetry)
		k.order = append(k.order, e)
		if e.chunks > 0 && len(e.send) == 0 {
			e.send = append(e.send, e.chunks-1) // its receipt tells what is missing
		}
		return e
	}
	return nil
}

// Next returns when Due returns an entry again, or zero.
func (k *Kept) Next() time.Time {
	if len(k.fresh) > 0 {
		return k.fresh[0].next
	}
	for len(k.order) > 0 && k.order[0].done {
		k.order = k.order[1:]
	}
	if len(k.order) == 0 {
		return time.Time{}
	}
	return k.order[0].next
}

// Message returns the next message of an entry that is due, and whether another follows.
func (k *Kept) Message(e *Entry) (m Message, more bool, err error) {
	if e.chunks == 0 {
		return Message{e.Data, true}, false, nil
	}
	if len(e.send) == 0 {
		return m, false, nil
	}
	i := e.send[0]
	e.send = e.send[1:]
	from := i * e.size
	c := work.Chunk{
		Kind: work.KindChunk, WorkItemID: e.ID, RequestID: e.Request, ItemIndex: e.Index,
		Digest: e.digest[:], Index: uint32(i), Count: uint32(e.chunks), TotalBytes: uint64(len(e.Data)),
		Payload: e.Data[from:min(from+e.size, len(e.Data))],
	}
	m.Data, err = c.MarshalMsg(nil)
	m.Request = i == e.chunks-1
	return m, len(e.send) > 0, err
}

// Receipt handles the reply to an entry's request. It returns the entry when the reply allows the
// acknowledgement: the entry is no longer kept then. resend says that chunks are missing: the
// entry is to be sent again at once, by Message. A number that is not kept, as of a second receipt,
// returns nil.
func (k *Kept) Receipt(number string, r *work.Receipt) (e *Entry, settled, resend bool, err error) {
	n, err := strconv.ParseUint(number, 36, 64)
	if e = k.entries[n]; err != nil || e == nil {
		return nil, false, false, nil
	}
	switch r.State {
	case work.Stored, work.Duplicate, work.Unknown:
		k.Remove(e)
		return e, true, false, nil
	case work.Again:
		if e.chunks == 0 || len(r.Missing) == 0 || len(r.Missing) > e.chunks {
			return e, false, false, fmt.Errorf("a receipt asks for %d of %d chunks again",
				len(r.Missing), e.chunks)
		}
		e.send = e.send[:0]
		for _, i := range r.Missing {
			if int(i) < e.chunks-1 {
				e.send = append(e.send, int(i))
			}
		}
		e.send = append(e.send, e.chunks-1)
		return e, false, true, nil
	}
	return e, false, false, fmt.Errorf("a receipt has the state %.20q", r.State)
}

// Remove ends an entry. Removing it twice does nothing.
func (k *Kept) Remove(e *Entry) {
	if k.entries[e.number] == e && !e.done {
		delete(k.entries, e.number)
		k.bytes -= int64(len(e.Data))
		e.done, e.send = true, nil
	}
}
