package work

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// maxKeys bounds the keys of a work item.
const maxKeys = 256

// ReadItem reads a work item. In addition to what UnmarshalMsg reads it accepts a null for every
// field that is not there, as the reference writes it. The item's byte strings alias raw.
func ReadItem(raw []byte) (*Item, error) {
	w := &Item{}
	rest, err := w.UnmarshalMsg(raw)
	var kind msgp.TypeError
	if errors.As(err, &kind) && kind.Encoded == msgp.NilType {
		w = &Item{}
		if raw, err = withoutNulls(raw); err == nil {
			rest, err = w.UnmarshalMsg(raw)
		}
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after its end", len(rest))
	}
	if err != nil {
		return nil, fmt.Errorf("work: a work item: %w", err)
	}
	return w, nil
}

// withoutNulls returns a copy of the map in raw without the entries whose value is a null.
func withoutNulls(raw []byte) ([]byte, error) {
	n, rest, err := msgp.ReadMapHeaderBytes(raw)
	if err != nil {
		return nil, err
	}
	if n > maxKeys {
		return nil, fmt.Errorf("%d keys; at most %d are read", n, maxKeys)
	}
	kept, entries := uint32(0), make([]byte, 0, len(raw))
	for range n {
		entry := rest
		if rest, err = msgp.Skip(rest); err != nil {
			return nil, err
		}
		null := msgp.NextType(rest) == msgp.NilType
		if rest, err = msgp.Skip(rest); err != nil {
			return nil, err
		}
		if !null {
			kept++
			entries = append(entries, entry[:len(entry)-len(rest)]...)
		}
	}
	return append(append(msgp.AppendMapHeader(nil, kept), entries...), rest...), nil
}
