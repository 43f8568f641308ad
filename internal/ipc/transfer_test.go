package ipc

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// read reads the chunks of pieces that Chunks made.
func readChunks(t *testing.T, pieces [][]byte) (out []Chunk) {
	t.Helper()
	r := bytes.NewReader(bytes.Join(pieces, nil))
	for r.Len() > 0 {
		b, err := ReadFrame(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		var c Chunk
		if rest, err := c.UnmarshalMsg(b); err != nil || len(rest) > 0 || !IsChunk(b, KindRequestChunk) ||
			IsChunk(b, KindChunk) {
			t.Fatalf("%v, %d bytes more", err, len(rest))
		}
		out = append(out, c)
	}
	return out
}

// Messages of every size come back from their chunks, whatever others come between them.
func TestChunksComeBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	in := NewTransfers(MaxTransfer, MaxTransfer)
	var left [][]Chunk
	want := map[string][]byte{}
	for i, n := range []int{
		1, 127, 128, 65_535, ChunkBytes - 1, ChunkBytes, ChunkBytes + 1, 3*ChunkBytes + 7,
	} {
		id := fmt.Sprint(i)
		want[id] = make([]byte, n)
		for j := range want[id] {
			want[id][j] = byte(random.Uint32())
		}
		left = append(left, readChunks(t, Chunks(KindRequestChunk, id, want[id])))
	}
	for len(left) > 0 {
		i := random.IntN(len(left))
		c := left[i][0]
		whole, err := in.Add(&c)
		if err != nil {
			t.Fatal(err)
		}
		if left[i] = left[i][1:]; len(left[i]) == 0 {
			if !bytes.Equal(whole, want[c.RequestID]) {
				t.Errorf("%s: %d bytes", c.RequestID, len(whole))
			}
			left = append(left[:i], left[i+1:]...)
		} else if whole != nil {
			t.Errorf("%s is whole too early", c.RequestID)
		}
	}
	if in.Held() != 0 || in.announced != 0 || len(in.open) != 0 {
		t.Errorf("%d bytes of %d messages are left, %d announced", in.Held(), len(in.open), in.announced)
	}
}

// A peer that breaks the rules of chunks is refused, and never held more than it sent.
func TestHostileChunks(t *testing.T) {
	sum := sha256.Sum256([]byte("abcd"))
	chunk := func(id string, index, count uint32, total uint64, payload string) Chunk {
		return Chunk{Kind: KindRequestChunk, Version: 1, RequestID: id, Digest: sum[:], Index: index,
			Count: count, TotalBytes: total, Payload: []byte(payload)}
	}
	first := chunk("a", 0, 2, 4, "ab")
	older := first
	older.Version = 2
	changed := chunk("a", 1, 2, 4, "cd")
	changed.Digest = make([]byte, 32)
	var many []Chunk
	for i := range maxOpen + 1 {
		many = append(many, chunk(fmt.Sprint(i), 0, 2, 4, "ab"))
	}
	for name, list := range map[string][]Chunk{
		"no bytes":            {chunk("a", 0, 2, 0, "")},
		"too many bytes":      {chunk("a", 0, 2, 101, "ab")},
		"too many together":   {chunk("a", 0, 2, 100, "ab"), chunk("b", 0, 2, 100, "ab")},
		"too many messages":   many,
		"another version":     {older},
		"not the first":       {chunk("a", 1, 2, 4, "ab")},
		"no chunks":           {chunk("a", 0, 0, 4, "ab")},
		"one is missing":      {first, chunk("a", 2, 3, 4, "cd")},
		"twice":               {first, first},
		"another count":       {first, chunk("a", 1, 3, 4, "cd")},
		"another total":       {first, chunk("a", 1, 2, 5, "cd")},
		"another digest":      {first, changed},
		"an empty one":        {chunk("a", 0, 3, 4, "ab"), chunk("a", 1, 3, 4, "")},
		"more than the total": {first, chunk("a", 1, 2, 4, "cde")},
		"less than the total": {first, chunk("a", 1, 2, 4, "c")},
		"other bytes":         {first, chunk("a", 1, 2, 4, "ce")},
	} {
		in := NewTransfers(100, 150)
		sent, failed := 0, false
		for i := range list {
			sent += len(list[i].Payload)
			whole, err := in.Add(&list[i])
			failed = err != nil
			if failed != (i == len(list)-1) || whole != nil {
				t.Errorf("%s: chunk %d of %d: %v", name, i, len(list), err)
			}
			if in.Held() > sent {
				t.Errorf("%s: %d bytes are held of %d", name, in.Held(), sent)
			}
		}
	}
	in := NewTransfers(100, 150)
	if _, err := in.Add(&first); err != nil || in.Drop("a") != 2 || in.Drop("a") != 0 || in.Held() != 0 {
		t.Errorf("dropped: %v, %d bytes", err, in.Held())
	}
	for range 100 { // nothing of it counts any more
		if _, err := in.Add(&first); err != nil || in.Drop("a") != 2 {
			t.Fatalf("again after it was dropped: %v", err)
		}
	}
}

// What is announced takes no memory before it comes.
func TestAnnouncedBytesTakeNoMemory(t *testing.T) {
	in := NewTransfers(MaxTransfer, MaxTransfer)
	c := Chunk{Version: 1, Digest: make([]byte, 32), Count: 2, TotalBytes: MaxTransfer, Payload: []byte("x")}
	if _, err := in.Add(&c); err != nil || cap(in.open[""].data) > 16 {
		t.Errorf("%d bytes, %v", cap(in.open[""].data), err)
	}
}

// What the readers that alias give is what the generated ones give.
func TestReadersAgree(t *testing.T) {
	ms := 2.5
	o := Outcome{WorkItemID: "a", RequestID: "r", ItemIndex: 3, Disposition: NakRetry, NakDelayMS: &ms,
		Result: msgp.Raw("\x81\xa1x\x01"), InputTokens: 9}
	batch := BatchOutcome{Outcomes: []Outcome{o, {Result: msgp.Raw{0x80}}}}
	body, err := batch.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := Response{Kind: KindResponse, Version: 1, RequestID: "1", OK: true, Body: body, Error: "e",
		Err: []byte("err")}
	raw, err := r.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadResponse(raw)
	if err != nil || fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", r) {
		t.Errorf("%+v, %v", got, err)
	}
	all, err := ReadBatchOutcome(got.Body)
	if err != nil || len(all.Outcomes) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for i := range batch.Outcomes {
		a, _ := all.Outcomes[i].MarshalMsg(nil)
		b, _ := batch.Outcomes[i].MarshalMsg(nil)
		if !bytes.Equal(a, b) {
			t.Errorf("%d: %+v", i, all.Outcomes[i])
		}
	}
	for _, bad := range []string{
		"", "\xc1", "\x90", "\x81\xa4body", "\x81\xa8outcomes\xdd\xff\xff\xff\xff",
		"\x81\xa8outcomes\x91\x07", "\x81\xa4body" + strings.Repeat("\x91", 1_000_000),
	} {
		_, err := ReadBatchOutcome([]byte(bad))
		if _, err2 := ReadResponse([]byte(bad)); err == nil && err2 == nil {
			t.Errorf("%.40q is read", bad)
		}
	}
}
