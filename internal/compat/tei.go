package compat

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
)

// The routes of text-embeddings-inference. Their requests name no model: the server's default model
// for the task answers. Statuses, bodies and headers follow TEI's router
// (github.com/huggingface/text-embeddings-inference, router/src/http, 0d124dc).

// teiOptions returns the native options for those of a TEI request.
func teiOptions(o *api.TEIOptions) api.Options {
	options := api.Options{}
	if o.Truncate != nil && !*o.Truncate {
		options["overflow_policy"] = "error"
	}
	switch o.PromptName {
	case "":
	case "query":
		options["is_query"] = true
	case "document", "passage":
		options["is_query"] = false
	default: // the name of a task, for the models that have tasks
		options["prompt_name"] = o.PromptName
	}
	return options
}

// teiEmbed answers POST /embed.
func (c *call) teiEmbed() error {
	req, err := api.DecodeTEIEmbed(c.body, c.Limits)
	if err != nil {
		return err
	}
	q := api.EncodeRequest{
		Items:          items(req.Texts, req.Tokens),
		Options:        api.Options{"normalize": req.Normalize},
		ForeignOptions: api.ForeignOptions{Dimensions: req.Dimensions},
	}
	return c.teiEncode("dense", &q, &req.TEIOptions, func(res *api.EncodeResponse) api.Answer {
		rows := vectors(res)
		return func(dst []byte, to *api.Sink) []byte { return api.AppendTEIEmbeddings(dst, to, rows) }
	})
}

// teiSimilarity answers POST /similarity: the cosines between one sentence and the others.
func (c *call) teiSimilarity() error {
	req, err := api.DecodeTEISimilarity(c.body, c.Limits)
	if err != nil {
		return err
	}
	q := api.EncodeRequest{Items: items(append([]string{req.Source}, req.Sentences...), nil)}
	err = c.teiEncode("dense", &q, &req.TEIOptions, func(res *api.EncodeResponse) api.Answer {
		rows, out := vectors(res), make([]float64, len(req.Sentences))
		for i := range out {
			out[i] = cosine(rows[0].Data, rows[i+1].Data)
		}
		return func(dst []byte, to *api.Sink) []byte { return api.AppendTEISimilarities(dst, to, out) }
	})
	return c.placed(err, func(i int) string {
		if i == 0 {
			return "inputs.source_sentence"
		}
		return fmt.Sprintf("inputs.sentences[%d]", i-1)
	})
}

// cosine returns the cosine of two rows of little-endian float32 of the same length; 0 if one row
// is all zeros.
func cosine(a, b []byte) float64 {
	var ab, aa, bb float64
	for i := 0; i+4 <= len(a); i += 4 {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(a[i:])))
		y := float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// teiTokenize answers POST /tokenize.
func (c *call) teiTokenize() error {
	req, err := api.DecodeTEITokenize(c.body, c.Limits)
	if err != nil {
		return err
	}
	if req.PromptName != "" {
		return errs.UnsupportedField("prompt_name",
			"`prompt_name` is not supported by /tokenize: put the prompt in front of the text")
	}
	out, err := c.Backend.Tokenize(c.work, c.model, req.Texts, req.AddSpecial)
	if err != nil {
		return err
	}
	return c.done(len(out), 0, api.Timings{Tokenize: time.Since(c.work.Began())},
		func(dst []byte, to *api.Sink) []byte { return api.AppendTEITokens(dst, to, out) })
}

// teiDecode answers POST /decode.
func (c *call) teiDecode() error {
	req, err := api.DecodeTEIDecode(c.body, c.Limits)
	if err != nil {
		return err
	}
	texts, err := c.Backend.Detokenize(c.work, c.model, req.IDs, req.SkipSpecial)
	if err != nil {
		return err
	}
	return c.done(len(texts), 0, api.Timings{},
		func(dst []byte, to *api.Sink) []byte { return api.AppendTEITexts(dst, to, texts) })
}

// teiDone is done with TEI's headers on a request's cost, whose times are whole milliseconds.
func (c *call) teiDone(characters, items, tokens int, t api.Timings, body api.Answer) error {
	err := c.done(items, tokens, t, body)
	kind := "cpu+optimized"
	if c.GPU {
		kind = "gpu+optimized"
	}
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	total := ms(c.reply.Timings.Total)
	c.reply.Headers = []dialect.Header{
		{Name: "x-compute-type", Value: kind},
		{Name: "x-compute-characters", Value: strconv.Itoa(characters)},
		{Name: "x-compute-tokens", Value: strconv.Itoa(tokens)}, {Name: "x-compute-time", Value: total},
		{Name: "x-total-time", Value: total}, {Name: "x-tokenization-time", Value: ms(t.Tokenize)},
		{Name: "x-queue-time", Value: ms(t.BatchWait)}, {Name: "x-inference-time", Value: ms(t.Inference)},
	}
	return err
}

func chars(texts ...string) (n int) {
	for _, s := range texts {
		n += utf8.RuneCountInString(s)
	}
	return n
}
