package compat

import (
	"encoding/binary"
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

// teiOptions returns the native options for those of a TEI request. It refuses an option that
// cannot be honoured, by name.
func teiOptions(o *api.TEIOptions) (api.Options, error) {
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
	default:
		return nil, errs.UnsupportedField("prompt_name", "`prompt_name` must be query, document or passage, got "+errs.Quote(o.PromptName[:min(len(o.PromptName), 100)]))
	}
	return options, nil
}

// teiEmbed answers POST /embed.
func (c *call) teiEmbed() error {
	start := time.Now()
	req, err := api.DecodeTEIEmbed(c.body, c.Limits)
	if err != nil {
		return err
	}
	options, err := teiOptions(&req.TEIOptions)
	if err != nil {
		return err
	}
	options["normalize"] = req.Normalize
	wishes := c.wishes(req.Left)
	wishes.Dimensions = req.Dimensions
	res, err := c.Backend.Encode(c.ctx, c.model, &api.EncodeRequest{Items: items(req.Texts, req.Tokens), Options: options,
		OutputTypes: []string{"dense"}, OutputDType: "float32", Wishes: wishes})
	if err != nil {
		return err
	}
	rows := vectors(res)
	res.Timings.Total = time.Since(start)
	c.teiHeaders(chars(req.Texts...), res.Usage.InputTokens, &res.Timings)
	return c.done(len(rows), res.Usage.InputTokens, res.Timings, func(dst []byte, to *api.Sink) []byte { return api.AppendTEIEmbeddings(dst, to, rows) })
}

// teiSimilarity answers POST /similarity: the cosines between one sentence and the others.
func (c *call) teiSimilarity() error {
	start := time.Now()
	req, err := api.DecodeTEISimilarity(c.body, c.Limits)
	if err != nil {
		return err
	}
	options, err := teiOptions(&req.TEIOptions)
	if err != nil {
		return err
	}
	texts := append([]string{req.Source}, req.Sentences...)
	res, err := c.Backend.Encode(c.ctx, c.model, &api.EncodeRequest{Items: items(texts, nil), Options: options,
		OutputTypes: []string{"dense"}, OutputDType: "float32", Wishes: c.wishes(req.Left)})
	if err != nil {
		return err
	}
	rows, out := vectors(res), make([]float64, len(req.Sentences))
	for i := range out {
		out[i] = cosine(rows[0].Data, rows[i+1].Data)
	}
	res.Timings.Total = time.Since(start)
	c.teiHeaders(chars(texts...), res.Usage.InputTokens, &res.Timings)
	return c.done(len(rows), res.Usage.InputTokens, res.Timings, func(dst []byte, to *api.Sink) []byte { return api.AppendTEISimilarities(dst, to, out) })
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
	start := time.Now()
	req, err := api.DecodeTEITokenize(c.body, c.Limits)
	if err != nil {
		return err
	}
	if req.PromptName != "" {
		return errs.UnsupportedField("prompt_name", "`prompt_name` is not supported by /tokenize: put the prompt in front of the text")
	}
	out, err := c.Backend.Tokenize(c.ctx, c.model, req.Texts, req.AddSpecial)
	if err != nil {
		return err
	}
	took := time.Since(start)
	return c.done(len(out), 0, api.Timings{Total: took, Tokenize: took},
		func(dst []byte, to *api.Sink) []byte { return api.AppendTEITokens(dst, to, out) })
}

// teiDecode answers POST /decode.
func (c *call) teiDecode() error {
	start := time.Now()
	req, err := api.DecodeTEIDecode(c.body, c.Limits)
	if err != nil {
		return err
	}
	texts, err := c.Backend.Detokenize(c.ctx, c.model, req.IDs, req.SkipSpecial)
	if err != nil {
		return err
	}
	return c.done(len(texts), 0, api.Timings{Total: time.Since(start)},
		func(dst []byte, to *api.Sink) []byte { return api.AppendTEITexts(dst, to, texts) })
}

// teiHeaders sets TEI's headers on a request's cost, with times in whole milliseconds.
func (c *call) teiHeaders(characters, tokens int, t *api.Timings) {
	kind := "cpu+optimized"
	if c.GPU {
		kind = "gpu+optimized"
	}
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	c.reply.Headers = []dialect.Header{
		{Name: "x-compute-type", Value: kind}, {Name: "x-compute-characters", Value: strconv.Itoa(characters)},
		{Name: "x-compute-tokens", Value: strconv.Itoa(tokens)}, {Name: "x-compute-time", Value: ms(t.Total)},
		{Name: "x-total-time", Value: ms(t.Total)}, {Name: "x-tokenization-time", Value: ms(t.Tokenize)},
		{Name: "x-queue-time", Value: ms(t.BatchWait)}, {Name: "x-inference-time", Value: ms(t.Inference)},
	}
}

func chars(texts ...string) (n int) {
	for _, s := range texts {
		n += utf8.RuneCountInString(s)
	}
	return n
}
