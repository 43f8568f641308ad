package queue

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go"
)

// What usualAck reads is what a JSON parser reads, and it reads what the broker writes.
func TestUsualAck(t *testing.T) {
	for _, seq := range []uint64{1, 10, 1_000_000, math.MaxInt64} {
		form := fmt.Sprintf(`{"stream":"WORK_POOL_a-b","seq":%d}`, seq)
		if got, ok := usualAck([]byte(form)); !ok && seq < 1e18 || ok && got != seq {
			t.Errorf("%s: %d, %v", form, got, ok)
		}
	}
	const bytes = "0123456789\"{}\\, :\x00\xff-.e"
	rng := rand.New(rand.NewPCG(5, 6))
	form, usual := []byte(`{"stream":"S","seq":120}`), 0
	for range 200_000 {
		b := append([]byte(nil), form...)
		for range rng.IntN(3) {
			i, c := rng.IntN(len(b)), bytes[rng.IntN(len(bytes))]
			switch rng.IntN(3) {
			case 0:
				b[i] = c
			case 1:
				b = append(b[:i], b[i+1:]...)
			default:
				b = append(b[:i], append([]byte{c}, b[i:]...)...)
			}
		}
		seq, ok := usualAck(b)
		if !ok {
			continue
		}
		usual++
		var a struct {
			Stream string `json:"stream"`
			Seq    uint64 `json:"seq"`
		}
		if err := json.Unmarshal(b, &a); err != nil || a.Stream == "" || a.Seq != seq || seq == 0 {
			t.Fatalf("%q: %d, a JSON parser: %+v, %v", b, seq, a, err)
		}
	}
	if usual < 1000 {
		t.Errorf("%d forms were usual: the test proves little", usual)
	}
}

// Answers that are no success, or are written otherwise, are read too.
func TestOtherAcks(t *testing.T) {
	for data, want := range map[string]ack{
		`{"stream":"S","seq":7,"duplicate":true}`:      {seq: 7},
		`{"stream":"S","domain":"d","seq":7}`:          {seq: 7},
		`{"stream": "S", "seq": 18446744073709551615}`: {seq: math.MaxUint64},
		`{"stream":"S","seq":18446744073709551615}`:    {seq: math.MaxUint64},
		`{"error":{"code":503,"err_code":10077,"description":"full"},"stream":"S","seq":0}`: {
			code: 10077, text: "full"},
	} {
		if got, err := parseAck(&nats.Msg{Data: []byte(data)}); err != nil || got != want {
			t.Errorf("%s: %+v, %v", data, got, err)
		}
	}
	for _, data := range []string{
		`{"stream":"","seq":7}`, `{"stream":"S","seq":0}`, `{"stream":"S","seq":7`, "",
	} {
		if got, err := parseAck(&nats.Msg{Data: []byte(data)}); err == nil {
			t.Errorf("%s: %+v", data, got)
		}
	}
}
