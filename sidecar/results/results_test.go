package results

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/work"
)

// Random operations against a plain model: every entry is tried every work.ReceiptRetry until a
// receipt, never after, its bytes are counted, and chunks put together give the result.
func TestKept(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		now, k := time.Unix(1000, 0), NewKept(4096)
		type plain struct {
			e     *Entry
			tried time.Time // zero: never
			parts map[uint32][]byte
		}
		all, lossless := map[string]*plain{}, false
		bytes0 := func() (n int64) {
			for _, p := range all {
				n += int64(len(p.e.Data))
			}
			return n
		}
		send := func(p *plain) {
			for {
				m, more, err := k.Message(p.e)
				if err != nil {
					t.Fatal(err)
				}
				if len(m.Data) > 4096 {
					t.Fatalf("a message of %d bytes", len(m.Data))
				}
				if p.parts != nil && m.Data != nil && (lossless || r.IntN(4) > 0) {
					var c work.Chunk
					if _, err := c.UnmarshalMsg(m.Data); err != nil {
						t.Fatal(err)
					}
					p.parts[c.Index] = c.Payload
					if m.Request != (c.Index == c.Count-1) {
						t.Fatalf("chunk %d of %d is a request: %v", c.Index, c.Count, m.Request)
					}
				}
				if !more {
					return
				}
			}
		}
		for i := range 800 {
			now = now.Add(time.Duration(r.IntN(100)) * time.Millisecond)
			switch r.IntN(4) {
			case 0:
				size := r.IntN(2000)
				p := &plain{}
				if r.IntN(3) == 0 {
					size, p.parts = 5000+r.IntN(20_000), map[uint32][]byte{}
				}
				p.e = &Entry{ID: fmt.Sprint(i), Data: bytes.Repeat([]byte{byte(i)}, size)}
				k.Add(now, p.e)
				all[p.e.Number()] = p
			case 1:
				for e := k.Due(now); e != nil; e = k.Due(now) {
					p := all[e.Number()]
					if p == nil {
						t.Fatalf("seed %d: an entry is due that was removed", seed)
					}
					if !p.tried.IsZero() && now.Sub(p.tried) < work.ReceiptRetry {
						t.Fatalf("seed %d: tried again after %v", seed, now.Sub(p.tried))
					}
					p.tried = now
					send(p)
				}
				for _, p := range all {
					if p.tried.IsZero() || now.Sub(p.tried) >= work.ReceiptRetry {
						t.Fatalf("seed %d: an entry is not tried in its time", seed)
					}
				}
			default:
				for number, p := range all {
					if p.tried.IsZero() {
						continue
					}
					settle := []string{work.Stored, work.Duplicate, work.Unknown}
					receipt := work.Receipt{State: settle[r.IntN(len(settle))]}
					if p.parts != nil {
						for c := range uint32(p.e.chunks) {
							if p.parts[c] == nil {
								receipt = work.Receipt{State: work.Again, Missing: append(receipt.Missing, c)}
							}
						}
					}
					e, settled, resend, err := k.Receipt(number, &receipt)
					again := receipt.State == work.Again
					if err != nil || e != p.e || settled == resend || resend != again {
						t.Fatalf("seed %d: receipt %+v: %v %v %v", seed, receipt, settled, resend, err)
					}
					if resend {
						send(p)
						break
					}
					if p.parts != nil {
						var whole []byte
						for c := range uint32(p.e.chunks) {
							whole = append(whole, p.parts[c]...)
						}
						if !bytes.Equal(whole, p.e.Data) {
							t.Fatalf("seed %d: the chunks are not the result", seed)
						}
					}
					delete(all, number)
					if e, _, _, _ := k.Receipt(number, &receipt); e != nil {
						t.Fatalf("seed %d: a second receipt finds the entry", seed)
					}
					break
				}
			}
			if k.Bytes() != bytes0() || k.Len() != len(all) {
				t.Fatalf("seed %d: %d bytes of %d entries are counted, want %d of %d",
					seed, k.Bytes(), k.Len(), bytes0(), len(all))
			}
		}
		lossless = true
		for number, p := range all { // what is asked for again comes, all of it and nothing else
			if p.parts == nil || p.tried.IsZero() {
				continue
			}
			send(p) // what it was in the middle of
			var missing []uint32
			for c := range uint32(p.e.chunks) {
				if c%3 == 0 {
					missing = append(missing, c)
				}
			}
			clear(p.parts)
			_, _, resend, err := k.Receipt(number, &work.Receipt{State: work.Again, Missing: missing})
			if err != nil || !resend {
				t.Fatalf("seed %d: %v %v", seed, resend, err)
			}
			send(p)
			want := len(missing)
			if (p.e.chunks-1)%3 != 0 {
				want++ // the last, which is the request
			}
			if len(p.parts) != want {
				t.Fatalf("seed %d: %d chunks came of %v", seed, len(p.parts), missing)
			}
		}
	}
}

// A broker of smaller messages gets what waits in chunks that fit, from the first on; one of larger
// messages gets it as it is.
func TestEntriesFitALowerLimit(t *testing.T) {
	k, now := NewKept(8192), time.Unix(1, 0)
	one, cut := &Entry{ID: "a", Data: bytes.Repeat([]byte("a"), 6000)},
		&Entry{ID: "b", Data: bytes.Repeat([]byte("b"), 40_000)}
	small := &Entry{ID: "c", Data: []byte("c")}
	all := []*Entry{one, cut, small}
	for _, e := range all {
		k.Add(now, e)
	}
	for e := k.Due(now); e != nil; e = k.Due(now) { // of chunks the first two
		for range 2 {
			if _, _, err := k.Message(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, limit := range []int{4096, 1 << 20, 3072} {
		k.SetLimit(limit)
		now = now.Add(work.ReceiptRetry)
		raised, most := limit > 4096, min(limit, 4096)
		for e := k.Due(now); e != nil; e = k.Due(now) {
			var whole []byte
			for more := true; more; {
				var m Message
				var err error
				if m, more, err = k.Message(e); err != nil || len(m.Data) > most {
					t.Fatalf("%s at a limit of %d: a message of %d bytes, %v", e.ID, limit, len(m.Data), err)
				}
				var c work.Chunk
				if e == small {
					whole = m.Data
				} else if _, err = c.UnmarshalMsg(m.Data); err != nil || m.Request == more {
					t.Fatalf("%s: %v, a request: %v", e.ID, err, m.Request)
				}
				whole = append(whole, c.Payload...)
			}
			// in a message as before, the last chunk asks what is missing
			if !raised && !bytes.Equal(whole, e.Data) {
				t.Errorf("%s at a limit of %d: %d bytes of %d came", e.ID, limit, len(whole), len(e.Data))
			}
		}
	}
	if want := int64(6000 + 40_000 + 1); k.Bytes() != want || k.Len() != 3 {
		t.Errorf("%d bytes of %d entries are counted", k.Bytes(), k.Len())
	}
	for _, e := range all {
		k.Remove(e)
	}
	if k.Bytes() != 0 || k.Len() != 0 {
		t.Errorf("%d bytes of %d entries are left", k.Bytes(), k.Len())
	}
}

// Receipts that no gateway of ours sends settle nothing.
func TestStrangeReceipts(t *testing.T) {
	k, now := NewKept(4096), time.Unix(1, 0)
	small, large := &Entry{ID: "a", Data: []byte("x")}, &Entry{ID: "b", Data: make([]byte, 10_000)}
	k.Add(now, small)
	k.Add(now, large)
	for _, c := range []struct {
		e *Entry
		r work.Receipt
	}{
		{small, work.Receipt{State: "other"}}, {small, work.Receipt{}},
		{small, work.Receipt{State: work.Again, Missing: []uint32{0}}},
		{large, work.Receipt{State: work.Again}},
		{large, work.Receipt{State: work.Again, Missing: make([]uint32, 1000)}},
	} {
		if _, settled, resend, err := k.Receipt(c.e.Number(), &c.r); settled || resend || err == nil {
			t.Errorf("%+v: %v %v %v", c.r, settled, resend, err)
		}
	}
	for _, number := range []string{"", "zz", "!", "99999999999999999999999"} {
		if e, _, _, err := k.Receipt(number, &work.Receipt{State: work.Stored}); e != nil || err != nil {
			t.Errorf("%q: %v %v", number, e, err)
		}
	}
	if k.Len() != 2 {
		t.Errorf("%d entries are left", k.Len())
	}
	// A chunk that is out of range is never asked for twice: only the last is sent.
	far := work.Receipt{State: work.Again, Missing: []uint32{4_000_000}}
	e, _, resend, err := k.Receipt(large.Number(), &far)
	if err != nil || !resend || len(e.send) != 1 {
		t.Errorf("%v %v %v", resend, err, e.send)
	}
}

// The last ids are known, the oldest are forgotten, and an attempt that ended a server blocks
// itself and those before it only.
func TestDone(t *testing.T) {
	const most = 50
	r := rand.New(rand.NewPCG(1, 1))
	d := NewDone(most)
	type plain struct {
		died    bool
		attempt uint32
	}
	known := map[string]plain{}
	var order []string
	for range 20_000 {
		id, attempt, died := fmt.Sprint(r.IntN(120)), uint32(r.IntN(3)), r.IntN(3) == 0
		if _, ok := known[id]; !ok {
			order = append(order, id)
			if len(order) > most {
				delete(known, order[0])
				order = order[1:]
			}
		}
		d.Add(id, attempt, died)
		known[id] = plain{died, attempt}
		probe, a := fmt.Sprint(r.IntN(120)), uint32(r.IntN(3))
		p, ok := known[probe]
		if want := ok && (!p.died || a <= p.attempt); d.Has(probe, a) != want || d.Len() != len(known) {
			t.Fatalf("%s attempt %d: known %v, want %v; %d ids, want %d",
				probe, a, !want, want, d.Len(), len(known))
		}
	}
	if NewDone(MaxDone+1).max != MaxDone {
		t.Error("more than MaxDone ids are kept")
	}
}

var stamp = work.Result{
	WorkItemID: "r.3", RequestID: "r", Index: 3, Attempt: 2, WorkerID: "w", QueueMS: 1.5, PayloadFetchMS: 2,
}

// A stamped result has the sidecar's ids and times, and everything else as the server wrote it.
func TestStamp(t *testing.T) {
	in := work.Result{
		WorkItemID: "forged", WorkerID: "forged", Success: true, Index: 77, Attempt: 9, QueueMS: 1e9,
		Results: []msgp.Raw{msgp.AppendString(nil, "v"), msgp.AppendInt(nil, 5)}, ModelID: "m",
		Units: &work.Units{InputTokens: 7}, InferenceMS: 3, Labels: []string{"a"},
	}
	raw, err := in.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	// a key of another release stays
	n, rest, err := msgp.ReadMapHeaderBytes(raw)
	if err != nil {
		t.Fatal(err)
	}
	raw = append(msgp.AppendMapHeader(nil, n+1), rest...)
	raw = msgp.AppendBool(msgp.AppendString(raw, "new"), true)
	out, err := Stamp(raw, &stamp)
	if err != nil {
		t.Fatal(err)
	}
	var got work.Result
	if rest, err := got.UnmarshalMsg(out); err != nil || len(rest) > 0 {
		t.Fatal(err)
	}
	want := in
	want.WorkItemID, want.RequestID, want.Index, want.Attempt = "r.3", "r", 3, 2
	want.WorkerID, want.QueueMS, want.PayloadFetchMS = "w", 1.5, 2
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if len(msgp.Locate("new", out)) == 0 {
		t.Error("a key of another release is gone")
	}
	n, rest, err = msgp.ReadMapHeaderBytes(out)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range n {
		key, value, err := msgp.ReadMapKeyZC(rest)
		if err != nil || seen[string(key)] {
			t.Fatalf("key %q twice, or %v", key, err)
		}
		seen[string(key)] = true
		if rest, err = msgp.Skip(value); err != nil {
			t.Fatal(err)
		}
	}
}

// What is no result of a server is an error, never a result.
func FuzzStamp(f *testing.F) {
	good, _ := (&work.Result{Success: true}).MarshalMsg(nil)
	for _, seed := range [][]byte{
		good, good[:len(good)-1], append(good, 0), {}, {0xc0}, {0x81, 0xa1}, {0xdf, 255, 255},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, err := Stamp(raw, &stamp)
		if err != nil {
			if out != nil {
				t.Error("a result beside an error")
			}
			return
		}
		if rest, err := msgp.Skip(out); err != nil || len(rest) > 0 {
			t.Errorf("%x became %x: %v", raw, out, err)
		}
		id, _, err := msgp.ReadStringBytes(msgp.Locate("work_item_id", out))
		if err != nil || id != "r.3" {
			t.Errorf("%x has the id %q", raw, id)
		}
	})
}
