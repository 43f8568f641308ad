package results

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/work"
)

// stamped are the keys that Stamp writes.
var stamped = map[string]bool{
	"work_item_id": true, "request_id": true, "item_index": true, "attempt": true, "worker_id": true,
	"queue_ms": true, "payload_fetch_ms": true,
	"result_ref": true, "result_sha256": true, "result_bytes": true,
}

// maxKeys bounds the keys of a server's result.
const maxKeys = 256

// Stamp returns a server's serialised work.Result with the fields that the sidecar knows better:
// the ids, the attempt, the worker and the times before the server. The values of the others are
// copied as they are, never decoded. With a ResultRef in r it leaves the results out and names it.
func Stamp(raw []byte, r *work.Result) ([]byte, error) {
	n, rest, err := msgp.ReadMapHeaderBytes(raw)
	if err != nil || n > maxKeys {
		return nil, fmt.Errorf("a result of the server is no map of at most %d keys", maxKeys)
	}
	size := len(raw)
	if r.ResultRef != "" {
		size = 0 // almost all of it is results
	}
	out := make([]byte, 0, size+512)
	out = append(out, 0xde, 0, 0) // a map whose length is set below
	keys := uint16(0)
	for range n {
		entry := rest
		key, value, err := msgp.ReadMapKeyZC(rest)
		if err != nil {
			return nil, fmt.Errorf("a result of the server: %w", err)
		}
		if rest, err = msgp.Skip(value); err != nil {
			return nil, fmt.Errorf("a result of the server: %w", err)
		}
		if !stamped[string(key)] && (r.ResultRef == "" || string(key) != "results") {
			out = append(out, entry[:len(entry)-len(rest)]...)
			keys++
		}
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("a result of the server has %d bytes after its end", len(rest))
	}
	out = msgp.AppendString(msgp.AppendString(out, "work_item_id"), r.WorkItemID)
	out = msgp.AppendString(msgp.AppendString(out, "request_id"), r.RequestID)
	out = msgp.AppendUint32(msgp.AppendString(out, "item_index"), r.Index)
	out = msgp.AppendString(msgp.AppendString(out, "worker_id"), r.WorkerID)
	out = msgp.AppendFloat64(msgp.AppendString(out, "queue_ms"), r.QueueMS)
	keys += 5
	if r.Attempt > 0 {
		out = msgp.AppendUint32(msgp.AppendString(out, "attempt"), r.Attempt)
		keys++
	}
	if r.PayloadFetchMS > 0 {
		out = msgp.AppendFloat64(msgp.AppendString(out, "payload_fetch_ms"), r.PayloadFetchMS)
		keys++
	}
	if r.ResultRef != "" {
		out = msgp.AppendString(msgp.AppendString(out, "result_ref"), r.ResultRef)
		out = msgp.AppendBytes(msgp.AppendString(out, "result_sha256"), r.ResultSHA256)
		out = msgp.AppendUint64(msgp.AppendString(out, "result_bytes"), r.ResultBytes)
		keys += 3
	}
	out[1], out[2] = byte(keys>>8), byte(keys)
	return out, nil
}
