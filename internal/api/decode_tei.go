package api

import (
	"errors"
	"strings"

	"github.com/sie-engine/sie/internal/errs"
)

// DecodeTEIEmbed reads the body of /embed, /embed_all or /embed_sparse, always JSON. Like TEI it
// ignores unknown fields. Errors are *errs.Error with Param set.
func DecodeTEIEmbed(body []byte, lim Limits) (*TEIEmbedRequest, error) {
	return decodeTEI(body, lim, (*decoder).teiEmbed)
}

// DecodeTEIRerank reads the body of /rerank.
func DecodeTEIRerank(body []byte, lim Limits) (*TEIRerankRequest, error) {
	return decodeTEI(body, lim, (*decoder).teiRerank)
}

// DecodeTEIPredict reads the body of /predict.
func DecodeTEIPredict(body []byte, lim Limits) (*TEIPredictRequest, error) {
	return decodeTEI(body, lim, (*decoder).teiPredict)
}

// DecodeTEISimilarity reads the body of /similarity.
func DecodeTEISimilarity(body []byte, lim Limits) (*TEISimilarityRequest, error) {
	return decodeTEI(body, lim, (*decoder).teiSimilarity)
}

// DecodeTEITokenize reads the body of /tokenize.
func DecodeTEITokenize(body []byte, lim Limits) (*TEITokenizeRequest, error) {
	return decodeTEI(body, lim, (*decoder).teiTokenize)
}

// DecodeTEIDecode reads the body of /decode.
func DecodeTEIDecode(body []byte, lim Limits) (*TEIDecodeRequest, error) {
	return decodeTEI(body, lim, (*decoder).teiDecode)
}

// decodeTEI calls read to fill an R from body. read registers the required fields with its last
// argument and removes those that came.
func decodeTEI[R any](body []byte, lim Limits, read func(*decoder, *R, *required) error) (*R, error) {
	d, err := open(JSON, body, lim)
	if err != nil {
		return nil, err
	}
	r, need := new(R), &required{}
	if err = read(d, r, need); err == nil {
		if err = need.check(); err == nil {
			err = d.close()
		}
	}
	if err != nil {
		err := errs.As(toAPI(err))
		err.Param, _, _ = strings.Cut(err.Param, "[")
		return nil, err
	}
	return r, nil
}

// required holds the required fields that are still missing, and an error that counts once all have
// come.
type required struct {
	missing map[string]bool
	empty   error
}

// want registers the required fields; got removes one.
func (q *required) want(fields ...string) {
	q.missing = make(map[string]bool, len(fields))
	for _, f := range fields {
		q.missing[f] = true
	}
}

func (q *required) got(field string) { delete(q.missing, field) }

func (q *required) check() error {
	for _, f := range []string{"inputs", "query", "texts", "ids"} {
		if q.missing[f] {
			return errs.Invalid(f, "missing field `"+f+"`")
		}
	}
	return q.empty
}

// teiOption reads the fields that inference requests share; ok is false for any other.
func (d *decoder) teiOption(o *TEIOptions, key string) (ok bool, err error) {
	switch key {
	case "truncate":
		o.Truncate, err = d.flag()
	case "truncation_direction":
		var s string
		s, _, err = d.str()
		switch s {
		case "", "right", "Right":
			o.Left = false
		case "left", "Left":
			o.Left = true
		default:
			d.postpone(errs.Invalid(key,
				"Field 'truncation_direction' must be 'left' or 'right', got "+errs.Quote(clipped(s))))
		}
	case "prompt_name":
		o.PromptName, _, err = d.str()
	default:
		return false, nil
	}
	return true, err
}

func (d *decoder) teiEmbed(r *TEIEmbedRequest, need *required) error {
	need.want("inputs")
	r.Normalize = true
	_, err := d.fields(wantObject, func(key string) (err error) {
		if ok, err := d.teiOption(&r.TEIOptions, key); ok {
			return err
		}
		switch key {
		case "inputs":
			need.got(key)
			var empty bool
			r.Texts, r.Tokens, empty, err = d.input(key)
			need.notEmpty(empty, key)
			d.checkBatch(key, len(r.Texts)+len(r.Tokens), d.lim.MaxItems)
		case "normalize":
			r.Normalize, err = d.yes(true)
		case "dimensions":
			r.Dimensions, err = d.atLeastOne(key)
		default:
			err = d.src.skip()
		}
		return err
	})
	return err
}

// notEmpty records TEI's 400 for an empty batch, or clears it.
func (q *required) notEmpty(empty bool, field string) {
	q.empty = nil
	if empty {
		q.empty = errs.Empty(field, "`"+field+"` cannot be empty")
	}
}

// texts reads an array of strings, each within the limit on an item. limit bounds their number; 0
// allows any.
func (d *decoder) texts(field string, limit int) ([]string, error) {
	v, err := d.want(wantArray)
	if err != nil {
		return nil, err
	}
	out, err := d.textsOf(v, field)
	d.checkBatch(field, len(out), limit)
	return out, err
}

// textsOf does the work of texts after the array's head was read, without the bound on their
// number.
func (d *decoder) textsOf(v value, field string) (out []string, err error) {
	err = d.list(v, func(i int) error {
		e, err := d.want(wantStr)
		if err == nil {
			err = d.count()
		}
		if err != nil {
			return err
		}
		s, err := d.inputText(e, field, i)
		out = append(out, s)
		return err
	})
	return out, err
}

// checkBatch postpones the 400 for n inputs where at most limit are allowed; 0 allows any number.
func (d *decoder) checkBatch(field string, n, limit int) {
	if limit > 0 && n > limit {
		d.postpone(errs.Invalidf(field, "batch size %d > maximum allowed batch size %d", n, limit))
	}
}

// oneText reads a string within the limit on an item.
func (d *decoder) oneText(field string) (string, error) {
	v, err := d.want(wantStr)
	if err != nil {
		return "", err
	}
	return d.inputText(v, field, -1)
}

func (d *decoder) teiRerank(r *TEIRerankRequest, need *required) error {
	need.want("query", "texts")
	_, err := d.fields(wantObject, func(key string) (err error) {
		if ok, err := d.teiOption(&r.TEIOptions, key); ok {
			return err
		}
		switch key {
		case "query":
			need.got(key)
			r.Query, err = d.oneText(key)
		case "texts":
			need.got(key)
			r.Texts, err = d.texts(key, d.lim.MaxScoreItems)
			need.notEmpty(len(r.Texts) == 0, key)
		case "raw_scores":
			r.RawScores, err = d.yes(false)
		case "return_text":
			r.ReturnText, err = d.yes(false)
		default:
			err = d.src.skip()
		}
		return err
	})
	return err
}

func (d *decoder) teiSimilarity(r *TEISimilarityRequest, need *required) error {
	need.want("inputs")
	_, err := d.fields(wantObject, func(key string) error {
		switch key {
		case "inputs":
			need.got(key)
			return d.similarityInputs(r, need)
		case "parameters":
			_, err := d.fields(wantObjectOrNull, func(key string) error {
				if ok, err := d.teiOption(&r.TEIOptions, key); ok {
					return err
				}
				return d.src.skip()
			})
			return err
		}
		return d.src.skip()
	})
	return err
}

func (d *decoder) similarityInputs(r *TEISimilarityRequest, need *required) error {
	source, sentences := false, false
	_, err := d.fields(wantObject, func(key string) (err error) {
		switch key {
		case "source_sentence":
			source = true
			r.Source, err = d.oneText("inputs.source_sentence")
		case "sentences":
			sentences = true
			r.Sentences, err = d.texts("inputs.sentences", d.lim.MaxItems)
			need.notEmpty(len(r.Sentences) == 0, "inputs.sentences")
		default:
			err = d.src.skip()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !source:
		return errs.Invalid("inputs", "missing field `inputs.source_sentence`")
	case !sentences:
		return errs.Invalid("inputs", "missing field `inputs.sentences`")
	}
	return nil
}

func (d *decoder) teiTokenize(r *TEITokenizeRequest, need *required) error {
	need.want("inputs")
	r.AddSpecial = true
	_, err := d.fields(wantObject, func(key string) (err error) {
		switch key {
		case "inputs":
			need.got(key)
			var v value
			if v, err = d.want(wantInput); err != nil {
				return err
			}
			if v.kind == kindStr {
				r.Texts = make([]string, 1)
				r.Texts[0], err = d.inputText(v, key, -1)
				return err
			}
			r.Texts, err = d.textsOf(v, key)
			need.notEmpty(len(r.Texts) == 0, key)
		case "add_special_tokens":
			r.AddSpecial, err = d.yes(true)
		case "prompt_name":
			r.PromptName, _, err = d.str()
		default:
			err = d.src.skip()
		}
		return err
	})
	return err
}

func (d *decoder) teiDecode(r *TEIDecodeRequest, need *required) error {
	need.want("ids")
	r.SkipSpecial = true
	_, err := d.fields(wantObject, func(key string) (err error) {
		switch key {
		case "ids":
			need.got(key)
			var texts []string
			var empty bool
			texts, r.IDs, empty, err = d.input(key)
			if err == nil && texts != nil {
				err = mismatch(wantIDs, "str")
			}
			need.notEmpty(empty, key)
		case "skip_special_tokens":
			r.SkipSpecial, err = d.yes(true)
		default:
			err = d.src.skip()
		}
		return err
	})
	return err
}

var wantIDs = expect{1 << kindArray, "array of token ids"}

// errSequence names the expected shapes in the error of /predict about its inputs.
var errSequence = errors.New(
	"a string, a pair of strings [string, string] or a batch of mixed strings and pairs [[string], [string, string], ...]")

func (d *decoder) teiPredict(r *TEIPredictRequest, need *required) error {
	need.want("inputs")
	_, err := d.fields(wantObject, func(key string) (err error) {
		if ok, err := d.teiOption(&r.TEIOptions, key); ok {
			return err
		}
		switch key {
		case "inputs":
			need.got(key)
			err = d.sequences(r)
		case "raw_scores":
			r.RawScores, err = d.yes(false)
		default:
			err = d.src.skip()
		}
		return err
	})
	return err
}

// sequences reads a string, a list of one or two strings (one sequence), or a list of such lists (a
// batch).
func (d *decoder) sequences(r *TEIPredictRequest) error {
	r.Inputs, r.Batch = nil, false
	v, err := d.want(wantInput)
	if err != nil {
		return err
	}
	if v.kind == kindStr {
		s, err := d.inputText(v, "inputs", -1)
		r.Inputs = []TEISequence{{Text: s}}
		return err
	}
	var single []string
	expected := wantInput
	err = d.list(v, func(i int) error {
		e, err := d.want(expected)
		if err == nil {
			err = d.count()
		}
		if err != nil {
			return err
		}
		if e.kind == kindStr {
			expected = wantStr
			s, err := d.inputText(e, "inputs", i)
			single = append(single, s)
			return err
		}
		expected, r.Batch = wantArray, true
		texts, err := d.textsOf(e, place("inputs", i))
		if err != nil {
			return err
		}
		q, ok := sequence(texts)
		if !ok {
			return errs.Invalidf("inputs", "invalid length %d of inputs[%d], expected %v",
				len(texts), i, errSequence)
		}
		r.Inputs = append(r.Inputs, q)
		return nil
	})
	if err != nil {
		return err
	}
	if r.Batch {
		d.checkBatch("inputs", len(r.Inputs), d.lim.MaxItems)
		return nil
	}
	q, ok := sequence(single)
	if !ok {
		return errs.Invalidf("inputs", "invalid length %d, expected %v", len(single), errSequence)
	}
	r.Inputs = []TEISequence{q}
	return nil
}

func sequence(texts []string) (TEISequence, bool) {
	switch len(texts) {
	case 1:
		return TEISequence{Text: texts[0]}, true
	case 2:
		return TEISequence{Text: texts[0], Second: texts[1], Pair: true}, true
	}
	return TEISequence{}, false
}
