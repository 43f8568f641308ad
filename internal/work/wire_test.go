package work

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// The largest chunk and a result in the reference's form cross whole.
func TestByteStringsCross(t *testing.T) {
	c := Chunk{Kind: KindChunk, Digest: make([]byte, 32), Payload: bytes.Repeat([]byte{7}, ChunkBytes)}
	raw, err := c.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	var got Chunk
	if _, err := got.UnmarshalMsg(raw); err != nil || !bytes.Equal(got.Payload, c.Payload) {
		t.Errorf("%v: %d bytes", err, len(got.Payload))
	}
	r := Result{RequestID: "r", ResultMsgpack: make([]byte, 5<<20)}
	if raw, err = r.MarshalMsg(nil); err != nil {
		t.Fatal(err)
	}
	var back Result
	if _, err := back.UnmarshalMsg(raw); err != nil || len(back.ResultMsgpack) != 5<<20 || back.Err != nil {
		t.Errorf("%v: %d bytes", err, len(back.ResultMsgpack))
	}
}

// A work item of the reference has a null for each field that it lacks.
func TestNullsAreAbsentFields(t *testing.T) {
	want := Item{WorkItemID: "a.0", Operation: Encode, Single: msgp.Raw("\x81\xa4text\xa1x"), Deadline: 2.5}
	raw := msgp.AppendMapHeader(nil, 8)
	raw = msgp.AppendString(msgp.AppendString(raw, "work_item_id"), "a.0")
	raw = msgp.AppendNil(msgp.AppendString(raw, "payload_ref"))
	raw = msgp.AppendNil(msgp.AppendString(raw, "output_types"))
	raw = msgp.AppendString(msgp.AppendString(raw, "operation"), Encode)
	raw = append(msgp.AppendString(raw, "item"), want.Single...)
	raw = msgp.AppendFloat64(msgp.AppendString(raw, "deadline"), 2.5)
	raw = msgp.AppendNil(msgp.AppendString(raw, "unknown"))
	raw = msgp.AppendNil(msgp.AppendString(raw, "labels"))
	got, err := ReadItem(raw)
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for bad, says := range map[string]string{
		"": "", "\xc0": "", "\x81\xa9operation\x01": "Operation", string(raw) + "x": "after its end",
		"\xdf\x00\xff\xff\xff\xabpayload_ref\xc0": "", "\x82\xabpayload_ref\xc0": "",
	} {
		if w, err := ReadItem([]byte(bad)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v, %v", bad, w, err)
		}
	}
}

// FuzzReadItem reads any bytes; what is read is written and read again.
func FuzzReadItem(f *testing.F) {
	raw, _ := (&Item{WorkItemID: "a", Items: []msgp.Raw{msgp.Raw("\x80")}}).MarshalMsg(nil)
	f.Add(raw)
	f.Add([]byte("\x81\xabpayload_ref\xc0"))
	f.Add([]byte("\x81\xa5items\xdd\x00\x00\xff\xff"))
	f.Add([]byte("\x81\xa7options" + strings.Repeat("\x91", 200_000)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		w, err := ReadItem(raw)
		if err != nil {
			return
		}
		again, err := w.MarshalMsg(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadItem(again); err != nil {
			t.Fatalf("%q: %v", again, err)
		}
	})
}
