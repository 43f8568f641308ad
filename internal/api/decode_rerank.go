package api

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/files"
)

// maxDocumentValues bounds the values inside one document that is an object.
const maxDocumentValues = 1000

// rerankRead holds the parts of a rerank body that are needed until the documents' texts are known:
// rank_fields may come last.
type rerankRead struct {
	query, documents bool
	blank            bool                   // the query
	objects          map[int]map[string]any // by index: documents that are objects
	rankFields       []string
}

// DecodeRerank reads the body of /v1/rerank or /v2/rerank, always JSON. It accepts the fields of
// SIE, Cohere (v1 and v2) and Jina, which do not collide. Any other field is a 400, as in the
// reference. Errors are *errs.Error with Param set.
func DecodeRerank(body []byte, lim Limits) (*RerankRequest, error) {
	r := &RerankRequest{}
	d, err := open(JSON, body, lim)
	if err == nil {
		err = d.rerank(r)
	}
	if err != nil {
		err := errs.As(toAPI(err))
		err.Param, _, _ = strings.Cut(err.Param, "[")
		return nil, err
	}
	return r, nil
}

func (d *decoder) rerank(r *RerankRequest) error {
	var read rerankRead
	_, err := d.fields(wantObject, func(key string) error { return d.rerankField(r, &read, key) })
	if u, ok := errors.AsType[*unknownField](err); ok {
		return errs.Invalid(clipped(u.key), "Object contains unknown field `"+clipped(u.key)+"`")
	}
	switch {
	case err != nil:
		return err
	case !read.query:
		return errs.Invalid("query", "Object missing required field `query`")
	case !read.documents:
		return errs.Invalid("documents", "Object missing required field `documents`")
	}
	if read.blank {
		d.postpone(errs.Invalid("query", "Field 'query' must not be blank"))
	}
	if err := checkRankFields(read.rankFields); err != nil {
		d.postpone(err)
	} else if err := d.rerankTexts(r, &read); err != nil {
		d.postpone(err)
	}
	d.checkCount(len(r.Documents), "documents", d.lim.MaxScoreItems, "documents")
	return d.close()
}

func (d *decoder) rerankField(r *RerankRequest, read *rerankRead, key string) (err error) {
	switch key {
	case "model":
		r.Model, _, err = d.str()
	case "query":
		read.query = true
		var v value
		if v, err = d.want(wantStr); err == nil {
			r.Query, err = d.inputText(v, "query", -1)
			read.blank = strings.TrimSpace(r.Query) == ""
		}
	case "documents":
		read.documents, read.objects = true, nil
		err = d.documents(r, read)
	case "top_n":
		r.TopN, err = d.atLeastOne(key)
	case "return_documents":
		r.ReturnDocuments, err = d.yes(false)
	case "options":
		r.Options, err = d.options()
	case "rank_fields":
		read.rankFields, err = d.strings()
	case "max_chunks_per_doc":
		// The field bounds the number of pieces in which a long document is scored. This server
		// scores one piece, cut at the model's limit, which is always within the bound.
		_, err = d.atLeastOne(key)
	case "max_tokens_per_doc":
		r.MaxTokensPerDoc, err = d.atLeastOne(key)
	case "truncation":
		var yes bool
		yes, err = d.yes(true)
		r.NoTruncation = !yes
	case "return_embeddings":
		var yes bool
		if yes, err = d.yes(false); err == nil && yes {
			d.postpone(errs.Invalid(key,
				"Field 'return_embeddings' is not supported: a reranker has no embeddings to return"))
		}
	case "user", "priority": // for a provider's accounting and queue
		err = d.src.skip()
	default:
		return &unknownField{key}
	}
	return err
}

// yes reads a flag; null counts as def.
func (d *decoder) yes(def bool) (bool, error) {
	b, err := d.flag()
	if b == nil {
		return def, err
	}
	return *b, err
}

// atLeastOne reads an integer of 1 or more, or null for 0.
func (d *decoder) atLeastOne(field string) (int, error) {
	v, err := d.want(wantIntOrNull)
	if err != nil || v.kind == kindNull {
		return 0, err
	}
	if v.big || v.i < 1 {
		d.postpone(errs.Invalid(field, "Field '"+field+"' must be an integer of at least 1"))
		return 0, nil
	}
	return int(min(v.i, 1<<31-1)), nil
}

// documents reads strings and objects. An object's bytes are kept for the answer, so it is read
// with tree, which does not resolve escapes in place.
func (d *decoder) documents(r *RerankRequest, read *rerankRead) error {
	r.Documents = nil
	_, err := d.elements(wantArray,
		func(n int) { r.Documents = make([]RerankDocument, 0, n) },
		func(i int) error {
			s := d.src.(*jsonBody)
			if b, err := s.peek(); err != nil || b != '{' {
				v, err := d.want(wantDocument)
				if err != nil {
					return err
				}
				text, err := d.inputText(v, "documents", i)
				r.Documents = append(r.Documents, RerankDocument{Text: text})
				return err
			}
			from := s.pos()
			w := walk{build: true, field: place("documents", i), maxValues: maxDocumentValues}
			x, err := s.tree(&w, 0)
			switch {
			case err != nil && w.values > w.maxValues:
				return placed("", err.Error())
			case err != nil:
				return err
			}
			if read.objects == nil {
				read.objects = make(map[int]map[string]any)
			}
			read.objects[i], _ = x.(map[string]any)
			r.Documents = append(r.Documents, RerankDocument{Object: s.span(from)})
			return nil
		})
	return err
}

var wantDocument = expect{1<<kindStr | 1<<kindObject, "str | object"}

// checkRankFields refuses a list that names a field twice, or more fields than a document may have.
// So the text of a document is never longer than the document.
func checkRankFields(names []string) error {
	if len(names) > maxDocumentValues {
		return errs.Invalidf("rank_fields", "Field 'rank_fields' must contain at most %d names",
			maxDocumentValues)
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return errs.Invalidf("rank_fields", "Field 'rank_fields' names '%s' twice", clipped(name))
		}
	}
	return nil
}

// rerankTexts makes the text of each document that is an object from the fields that rank_fields
// names, in their order. It refuses blank documents.
func (d *decoder) rerankTexts(r *RerankRequest, read *rerankRead) error {
	names := read.rankFields
	if len(names) == 0 {
		names = []string{"text"}
	}
	for i := range r.Documents {
		doc, at := &r.Documents[i], place("documents", i)
		if fields, ok := read.objects[i]; ok {
			parts := make([]string, 0, len(names))
			for _, name := range names {
				switch v := fields[name].(type) {
				case string:
					parts = append(parts, v)
				case int64:
					parts = append(parts, strconv.FormatInt(v, 10))
				case float64:
					parts = append(parts, strconv.FormatFloat(v, 'g', -1, 64))
				case bool:
					parts = append(parts, strconv.FormatBool(v))
				default:
					return errs.Invalidf("documents",
						"Field '%s' has no text in '%s'; name the fields to rank by in 'rank_fields'",
						at, clipped(name))
				}
			}
			doc.Text = strings.Join(parts, "\n")
			if limit := d.lim.itemTextLimit(); limit >= 0 && len(doc.Text) > limit {
				return errs.Invalid("documents", tooMuchText(at, limit, "text").Error())
			}
		}
		if strings.TrimSpace(doc.Text) == "" {
			return errs.Invalidf("documents", "Field '%s' must not be blank", at)
		}
	}
	return nil
}

// clipped shortens a client's name for use in a message.
func clipped(s string) string { return files.Clip(s, 100) }
