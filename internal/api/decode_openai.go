package api

import (
	"math"
	"strings"

	"github.com/sie-engine/sie/internal/errs"
)

// DecodeEmbeddings reads the body of an OpenAI embeddings request (JSON, or msgpack if contentType
// names it). It ignores unknown fields. Errors are *errs.Error with Param set, status 400, or 413
// for a body over the limit.
func DecodeEmbeddings(contentType string, body []byte, lim Limits) (*EmbeddingsRequest, error) {
	d, err := open(bodyFormat(contentType), body, lim)
	if err != nil {
		return nil, err
	}
	r := &EmbeddingsRequest{}
	if err := d.embeddings(r); err != nil {
		err := errs.As(toAPI(err))
		// OpenAI's param is a field name; the message has the index
		err.Param, _, _ = strings.Cut(err.Param, "[")
		return nil, err
	}
	return r, nil
}

func (d *decoder) embeddings(r *EmbeddingsRequest) error {
	hasModel, hasInput, empty := false, false, false
	_, err := d.fields(wantObject, func(key string) (err error) {
		switch key {
		case "model":
			var v value
			if v, err = d.want(wantStr); err == nil {
				err = checkUTF8(v.b)
			}
			r.Model, hasModel = text(v.b), true
		case "input":
			hasInput = true
			r.Texts, r.Tokens, empty, err = d.input("input")
		case "encoding_format":
			var s string
			s, _, err = d.str()
			r.Base64 = s == "base64"
			if err == nil && s != "" && s != "float" && s != "base64" {
				d.postpone(errs.Invalid("encoding_format",
					"Field 'encoding_format' must be 'float' or 'base64', got "+
						errs.Quote(s[:min(len(s), 100)])))
			}
		case "dimensions":
			var v value
			if v, err = d.want(wantIntOrNull); err != nil || v.kind == kindNull {
				r.Dimensions = 0
				return err
			}
			if v.big || v.i < 1 {
				d.postpone(errs.Invalid("dimensions", "Field 'dimensions' must be an integer of at least 1"))
			}
			r.Dimensions = int(v.i)
		case "user":
			r.User, _, err = d.str()
		default:
			err = d.src.skip()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !hasModel:
		return errs.Invalid("model", "Object missing required field `model`")
	case !hasInput:
		return errs.Invalid("input", "Object missing required field `input`")
	}
	if empty {
		d.late = errs.Invalid("input", "Input cannot be empty")
	}
	if n := d.lim.MaxItems; n > 0 && r.Inputs() > n {
		d.late = errs.Invalidf("input", "Field 'input' must contain at most %d inputs", n)
	}
	return d.close()
}

var (
	wantInput      = expect{1<<kindStr | 1<<kindArray, "str | array"}
	wantInputEntry = expect{1<<kindStr | 1<<kindInt | 1<<kindArray, "str | int | array"}
	wantToken      = expect{1 << kindInt, "int"}
)

// input reads field: a text, a list of texts, a list of token ids or a list of such lists. All
// entries must be of the first entry's kind.
func (d *decoder) input(field string) (texts []string, tokens [][]int32, empty bool, err error) {
	v, err := d.want(wantInput)
	if err != nil {
		return nil, nil, false, err
	}
	if v.kind == kindStr {
		s, err := d.inputText(v, field, -1)
		return []string{s}, nil, false, err
	}
	var ids []int32
	first := wantInputEntry
	err = d.list(v, func(i int) error {
		e, err := d.want(first)
		if err != nil {
			return err
		}
		switch e.kind {
		case kindStr:
			first = wantStr
			if err = d.count(); err == nil {
				var s string
				s, err = d.inputText(e, field, i)
				texts = append(texts, s)
			}
		case kindInt:
			first = wantToken
			ids, err = appendToken(ids, e)
		case kindArray:
			first = wantArray
			if err = d.count(); err == nil {
				var list []int32
				list, err = d.tokenList(e)
				tokens = append(tokens, list)
			}
		}
		return err
	})
	if err != nil {
		return nil, nil, false, err
	}
	if ids != nil {
		tokens = [][]int32{ids}
	}
	return texts, tokens, texts == nil && tokens == nil, nil
}

// inputText returns the string v, which is field itself or its entry i (negative: field itself),
// and checks its size.
func (d *decoder) inputText(v value, field string, i int) (string, error) {
	if err := checkUTF8(v.b); err != nil {
		return "", err
	}
	if limit := d.lim.itemTextLimit(); limit >= 0 && len(v.b) > limit {
		d.postpone(errs.Invalid(field, tooMuchText(place(field, i), limit, "text").Error()))
	}
	return text(v.b), nil
}

// tokenList reads the entries of the array v; there must be at least one.
func (d *decoder) tokenList(v value) (ids []int32, err error) {
	err = d.list(v, func(int) error {
		e, err := d.want(wantToken)
		if err == nil {
			ids, err = appendToken(ids, e)
		}
		return err
	})
	if err == nil && ids == nil {
		err = located("A list of token ids must not be empty")
	}
	return ids, err
}

func appendToken(ids []int32, v value) ([]int32, error) {
	if v.big || v.i < 0 || v.i > math.MaxInt32 {
		return ids, located("Expected a token id between 0 and 2147483647")
	}
	return append(ids, int32(v.i)), nil
}
