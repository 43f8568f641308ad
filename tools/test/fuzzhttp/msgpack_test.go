//go:build native

package fuzzhttp

import (
	"encoding/json"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// bigMap is a map or a list whose header promises more entries than follow.
type bigMap struct {
	list bool
	n    uint32
}

// MarshalJSON implements json.Marshaler; the form in JSON is a number.
func (b bigMap) MarshalJSON() ([]byte, error) { return json.Marshal(b.n) }

// twice is an object with a repeated key.
type twice struct {
	key         string
	first, then any
}

// MarshalJSON implements json.Marshaler.
func (t twice) MarshalJSON() ([]byte, error) {
	return append(append(append(append(append([]byte("{"), toJSON(t.key)...), ':'), toJSON(t.first)...), ','),
		append(append(append(toJSON(t.key), ':'), toJSON(t.then)...), '}')...), nil
}

// raw is bytes that are written in place of a value, in either encoding.
type raw string

// MarshalJSON implements json.Marshaler.
func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// toMsgpack appends a tree.
func toMsgpack(dst []byte, x any) []byte {
	switch v := x.(type) {
	case nil:
		return msgp.AppendNil(dst)
	case bool:
		return msgp.AppendBool(dst, v)
	case int:
		return msgp.AppendInt(dst, v)
	case float64:
		if math.Trunc(v) == v && v < 1e6 {
			return msgp.AppendFloat32(dst, float32(v))
		}
		return msgp.AppendFloat64(dst, v)
	case string:
		return msgp.AppendString(dst, v)
	case []byte:
		return msgp.AppendBytes(dst, v)
	case raw:
		return append(dst, v...)
	case bigMap:
		if v.list {
			return msgp.AppendArrayHeader(dst, v.n)
		}
		return msgp.AppendMapHeader(dst, v.n)
	case twice:
		dst = msgp.AppendMapHeader(dst, 2)
		dst = toMsgpack(msgp.AppendString(dst, v.key), v.first)
		return toMsgpack(msgp.AppendString(dst, v.key), v.then)
	case []any:
		dst = msgp.AppendArrayHeader(dst, uint32(len(v)))
		for _, e := range v {
			dst = toMsgpack(dst, e)
		}
		return dst
	case tree:
		dst = msgp.AppendMapHeader(dst, uint32(len(v)))
		for _, k := range sortedKeys(v) {
			dst = toMsgpack(msgp.AppendString(dst, k), v[k])
		}
		return dst
	}
	return msgp.AppendNil(dst)
}
