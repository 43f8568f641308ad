package api

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// AppendOptions appends o as a msgpack map that [ReadOptions] reads, with sorted keys. Nil options
// append nothing.
func AppendOptions(dst []byte, o Options) []byte {
	if o == nil {
		return dst
	}
	return appendFree(dst, mpackWriter{}, map[string]any(o))
}

// ReadOptions reads options, with the bounds and the errors (*errs.Error) of a body's. No bytes and
// a null are nil options.
func ReadOptions(raw []byte) (Options, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	d := decoder{src: &mpack{b: raw}, format: Msgpack}
	o, err := d.options()
	if err == nil {
		err = d.close()
	}
	if err != nil {
		return nil, toAPI(at(at(err, ".options"), ".params"))
	}
	return o, nil
}

// AppendRaw appends r in msgpack: unchanged if it is msgpack, and converted to minimal msgpack if
// it is JSON. An absent value appends nothing.
func AppendRaw(dst []byte, r Raw) []byte {
	if r.Empty() || r.Format == Msgpack {
		return append(dst, r.Data...)
	}
	c := conversion{src: &jsonBody{b: append([]byte{}, r.Data...)}} // strings are resolved in place
	if err := c.value(); err != nil {
		// a Raw was checked when it was made
		panic("api: internal error: a value that was checked does not convert: " + err.Error())
	}
	done := 0
	for _, p := range c.parts {
		dst = append(dst, c.out[done:p.at]...)
		if done = p.at; p.object {
			dst = msgp.AppendMapHeader(dst, p.n)
		} else {
			dst = msgp.AppendArrayHeader(dst, p.n)
		}
	}
	return append(dst, c.out[done:]...)
}

// conversion turns JSON into msgpack. JSON tells a container's length at its end and msgpack at its
// head, so the heads are noted and put in afterwards.
type conversion struct {
	src   *jsonBody
	out   []byte // without the heads of containers
	parts []part // in the order of their heads
}

// part is the head of a container.
type part struct {
	at     int // its place in out
	n      uint32
	object bool
}

// value converts one value. Its nesting was bounded when it was checked.
func (c *conversion) value() error {
	v, err := c.src.next(wantAny)
	if err != nil {
		return err
	}
	var w mpackWriter
	switch v.kind {
	case kindArray, kindObject:
		return c.container(v)
	case kindStr:
		c.out = w.str(c.out, text(v.b))
	case kindBool:
		c.out = w.bool(c.out, v.i != 0)
	case kindInt:
		if v.big {
			c.out = w.float(c.out, v.f)
		} else {
			c.out = w.int(c.out, v.i)
		}
	case kindFloat:
		c.out = w.float(c.out, v.f)
	default:
		c.out = w.null(c.out)
	}
	return nil
}

func (c *conversion) container(v value) error {
	place := len(c.parts)
	c.parts = append(c.parts, part{at: len(c.out), object: v.kind == kindObject})
	walk := v.cursor()
	for {
		ok, err := c.src.more(&walk)
		if err != nil || !ok {
			return err
		}
		if walk.object {
			k, err := c.src.key(&walk)
			if err != nil {
				return err
			}
			c.out = mpackWriter{}.str(c.out, text(k))
		}
		if err := c.value(); err != nil {
			return err
		}
		c.parts[place].n++
	}
}

var errNull = errors.New("null")

// AppendTokenIDs appends a list of token ids as a msgpack array that [ReadTokenIDs] reads.
func AppendTokenIDs(dst []byte, ids []int32) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(ids)))
	for _, id := range ids {
		dst = mpackWriter{}.int(dst, int64(id))
	}
	return dst
}

// ReadTokenIDs reads a list of token ids, from 0 to 2^31-1 each. It may be empty, and is never nil.
func ReadTokenIDs(raw []byte) ([]int32, error) {
	d := decoder{src: &mpack{b: raw}, format: Msgpack}
	ids, err := d.itemTokens()
	if err == nil {
		err = d.close()
	}
	if err == nil && ids == nil {
		err = errNull
	}
	if err != nil {
		return nil, fmt.Errorf("api: token ids: %w", err)
	}
	return ids, nil
}

// AppendText appends a text as a msgpack string.
func AppendText(dst []byte, s string) []byte { return mpackWriter{}.str(dst, s) }

// ReadText reads a text, which must be UTF-8. The text aliases raw, which must not change.
func ReadText(raw []byte) (string, error) {
	d := decoder{src: &mpack{b: raw}, format: Msgpack}
	s, ok, err := d.str()
	if err == nil {
		err = d.close()
	}
	if err == nil && !ok {
		err = errNull
	}
	if err != nil {
		return "", fmt.Errorf("api: a text: %w", err)
	}
	return s, nil
}
