package ipc

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// maxArray bounds an array that is read, as in the generated code.
const maxArray = 1 << 16

// IsChunk reports whether a frame is a chunk of a kind. Kind is the first key of a chunk.
func IsChunk(frame []byte, kind string) bool {
	_, rest, err := msgp.ReadMapHeaderBytes(frame)
	if err != nil {
		return false
	}
	key, rest, err := msgp.ReadMapKeyZC(rest)
	if err != nil || string(key) != "kind" {
		return false
	}
	got, _, err := msgp.ReadStringZC(rest)
	return err == nil && string(got) == kind
}

// ReadResponse reads a Response whose Body and Err alias b.
func ReadResponse(b []byte) (*Response, error) {
	r := &Response{}
	_, err := fields(b, func(key, value []byte) (err error) {
		switch string(key) {
		case "kind":
			r.Kind, _, err = msgp.ReadStringBytes(value)
		case "version":
			r.Version, _, err = msgp.ReadIntBytes(value)
		case "request_id":
			r.RequestID, _, err = msgp.ReadStringBytes(value)
		case "ok":
			r.OK, _, err = msgp.ReadBoolBytes(value)
		case "body":
			r.Body = msgp.Raw(value)
		case "error":
			r.Error, _, err = msgp.ReadStringBytes(value)
		case "err":
			r.Err, _, err = msgp.ReadBytesZC(value)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ipc: a response: %w", err)
	}
	return r, nil
}

// ReadOutcome reads an Outcome whose Result aliases b.
func ReadOutcome(b []byte) (Outcome, error) {
	o, _, err := readOutcome(b)
	return o, err
}

func readOutcome(b []byte) (o Outcome, rest []byte, err error) {
	rest, err = fields(b, func(key, value []byte) (err error) {
		switch string(key) {
		case "work_item_id":
			o.WorkItemID, _, err = msgp.ReadStringBytes(value)
		case "request_id":
			o.RequestID, _, err = msgp.ReadStringBytes(value)
		case "item_index":
			o.ItemIndex, _, err = msgp.ReadUint32Bytes(value)
		case "disposition":
			o.Disposition, _, err = msgp.ReadStringBytes(value)
		case "nak_delay_ms":
			var ms float64
			ms, _, err = msgp.ReadFloat64Bytes(value)
			o.NakDelayMS = &ms
		case "result":
			o.Result = msgp.Raw(value)
		case "input_tokens":
			o.InputTokens, _, err = msgp.ReadInt64Bytes(value)
		}
		return err
	})
	if err != nil {
		return Outcome{}, nil, fmt.Errorf("ipc: an outcome: %w", err)
	}
	return o, rest, nil
}

// ReadBatchOutcome reads a BatchOutcome whose outcomes' results alias b.
func ReadBatchOutcome(b []byte) (*BatchOutcome, error) {
	out := &BatchOutcome{}
	_, err := fields(b, func(key, value []byte) error {
		if string(key) != "outcomes" {
			return nil
		}
		n, rest, err := msgp.ReadArrayHeaderBytes(value)
		if err != nil {
			return err
		}
		if n > maxArray {
			return fmt.Errorf("an array of %d; at most %d are read", n, maxArray)
		}
		for range n {
			var o Outcome
			if o, rest, err = readOutcome(rest); err != nil {
				return err
			}
			out.Outcomes = append(out.Outcomes, o)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ipc: the outcomes of a batch: %w", err)
	}
	return out, nil
}

// fields calls f with each key of the map at the beginning of b and its value, unless that is null,
// and returns what follows the map.
func fields(b []byte, f func(key, value []byte) error) (rest []byte, err error) {
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	for range n {
		var key []byte
		if key, rest, err = msgp.ReadMapKeyZC(rest); err != nil {
			return nil, err
		}
		value := rest
		if rest, err = msgp.Skip(rest); err != nil {
			return nil, err
		}
		value = value[: len(value)-len(rest) : len(value)-len(rest)]
		if msgp.NextType(value) == msgp.NilType {
			continue
		}
		if err := f(key, value); err != nil {
			return nil, fmt.Errorf("field %.40q: %w", key, err)
		}
	}
	return rest, nil
}
