package server

import (
	"context"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/runtime/worker"
)

// The routes of text-embeddings-inference. They name no model: the server's default model for the task answers. Statuses,
// bodies and headers are those of its router (github.com/huggingface/text-embeddings-inference, router/src/http, 0d124dc).

// tei wraps what its routes share: the default model that gives one of outputs, and the error envelope.
func (s *Server) tei(r *httpd.Request, endpoint string, outputs []string,
	f func(work context.Context, model string, body []byte) error) {
	c := call{endpoint: endpoint, kind: dialect.RouteTEI, field: "inputs"}
	switch endpoint {
	case "rerank":
		c.field = "texts"
	case "decode":
		c.field = "ids"
	}
	model, noModel := s.defaultModel(outputs...)
	if noModel == nil {
		c.full = s.full.answer(s.worker.Full(model))
	}
	s.inference(r, c, func(work context.Context, body []byte) (string, error) {
		if noModel != nil {
			return "", noModel
		}
		m, err := s.worker.Describe(model)
		if err != nil {
			return "", err
		}
		return m.ID, f(work, m.ID, body)
	})
}

// teiOptions are the worker's options for those of a request. What cannot be honoured is refused by name.
func teiOptions(o *api.TEIOptions) (map[string]any, error) {
	options := map[string]any{}
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
func (s *Server) teiEmbed(r *httpd.Request, _ string) {
	s.tei(r, "embed", []string{"dense"}, func(work context.Context, model string, body []byte) error {
		start := time.Now()
		req, err := api.DecodeTEIEmbed(body, s.opt.Limits)
		if err != nil {
			return err
		}
		options, err := teiOptions(&req.TEIOptions)
		if err != nil {
			return err
		}
		options["normalize"] = req.Normalize
		res, err := s.worker.Encode(work, &worker.Request{Model: model, Texts: req.Texts, Tokens: req.Tokens, Field: "inputs", Options: options,
			OutputTypes: []string{"dense"}, Dimensions: req.Dimensions, TruncateLeft: req.Left, ForceFloat32: true})
		if err != nil {
			return err
		}
		vectors := make([]api.Array, len(res.Rows))
		for i, row := range res.Rows {
			vectors[i] = api.Vector(res.Type, row)
		}
		res.Timings.Total = time.Since(start)
		s.teiHeaders(r, chars(req.Texts...), res.Tokens, res.Timings)
		r.Reply(api.JSON, func(dst []byte, to *api.Sink) []byte { return api.AppendTEIEmbeddings(dst, to, vectors) })
		s.served(r, model, "embed", len(res.Rows), res.Tokens, res.Timings)
		return nil
	})
}

// teiSimilarity answers POST /similarity: the cosine of a sentence with others.
func (s *Server) teiSimilarity(r *httpd.Request, _ string) {
	s.tei(r, "similarity", []string{"dense"}, func(work context.Context, model string, body []byte) error {
		start := time.Now()
		req, err := api.DecodeTEISimilarity(body, s.opt.Limits)
		if err != nil {
			return err
		}
		options, err := teiOptions(&req.TEIOptions)
		if err != nil {
			return err
		}
		texts := append([]string{req.Source}, req.Sentences...)
		res, err := s.worker.Encode(work, &worker.Request{Model: model, Texts: texts, Field: "inputs", Options: options,
			OutputTypes: []string{"dense"}, TruncateLeft: req.Left, ForceFloat32: true})
		if err != nil {
			return err
		}
		out := make([]float64, len(req.Sentences))
		for i := range out {
			out[i] = cosine(res.Rows[0], res.Rows[i+1])
		}
		res.Timings.Total = time.Since(start)
		s.teiHeaders(r, chars(texts...), res.Tokens, res.Timings)
		r.Reply(api.JSON, func(dst []byte, to *api.Sink) []byte { return api.AppendTEISimilarities(dst, to, out) })
		s.served(r, model, "similarity", len(res.Rows), res.Tokens, res.Timings)
		return nil
	})
}

// cosine of two rows of little-endian float32, of the same length; 0 where one is all zeros.
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
func (s *Server) teiTokenize(r *httpd.Request, _ string) {
	s.tei(r, "tokenize", nil, func(work context.Context, model string, body []byte) error {
		start := time.Now()
		req, err := api.DecodeTEITokenize(body, s.opt.Limits)
		if err != nil {
			return err
		}
		if req.PromptName != "" {
			return errs.UnsupportedField("prompt_name", "`prompt_name` is not supported by /tokenize: put the prompt in front of the text")
		}
		read, err := s.tasks.Tokenize(work, model, req.Texts, req.AddSpecial)
		if err != nil {
			return err
		}
		out, tokens := make([][]api.Token, len(read)), 0
		for i, list := range read {
			out[i] = make([]api.Token, len(list))
			for k, t := range list {
				out[i][k] = t
			}
			tokens += len(list)
		}
		r.Reply(api.JSON, func(dst []byte, to *api.Sink) []byte { return api.AppendTEITokens(dst, to, out) })
		s.served(r, model, "tokenize", len(read), 0, worker.Timings{Total: time.Since(start), Tokenize: time.Since(start)})
		return nil
	})
}

// teiDecode answers POST /decode.
func (s *Server) teiDecode(r *httpd.Request, _ string) {
	s.tei(r, "decode", nil, func(work context.Context, model string, body []byte) error {
		start := time.Now()
		req, err := api.DecodeTEIDecode(body, s.opt.Limits)
		if err != nil {
			return err
		}
		texts, err := s.tasks.Detokenize(work, model, req.IDs, req.SkipSpecial)
		if err != nil {
			return err
		}
		r.Reply(api.JSON, func(dst []byte, to *api.Sink) []byte { return api.AppendTEITexts(dst, to, texts) })
		s.served(r, model, "decode", len(texts), 0, worker.Timings{Total: time.Since(start)})
		return nil
	})
}

// teiHeaders says what a request cost, in whole milliseconds.
func (s *Server) teiHeaders(r *httpd.Request, characters, tokens int, t worker.Timings) {
	r.SetContentType(api.ContentTypeJSON)
	h := &r.Response.Header
	kind := "cpu+optimized"
	if strings.HasPrefix(s.worker.DeviceName(), "cuda") {
		kind = "gpu+optimized"
	}
	h.Set("x-compute-type", kind)
	h.Set("x-compute-characters", strconv.Itoa(characters))
	h.Set("x-compute-tokens", strconv.Itoa(tokens))
	for _, x := range []struct {
		name string
		d    time.Duration
	}{{"x-compute-time", t.Total}, {"x-total-time", t.Total}, {"x-tokenization-time", t.Tokenize}, {"x-queue-time", t.BatchWait},
		{"x-inference-time", t.Inference}} {
		h.Set(x.name, strconv.FormatInt(x.d.Milliseconds(), 10))
	}
}

func chars(texts ...string) (n int) {
	for _, s := range texts {
		n += utf8.RuneCountInString(s)
	}
	return n
}
