package api

import (
	"encoding/json"
	"math"
	"strconv"
)

// AppendTEIEmbeddings appends the answer of /embed: one float32 array per text. Numbers have the
// shortest digits that read back as the same float32, as in TEI's answers.
func AppendTEIEmbeddings(dst []byte, out *Sink, vectors []Array) []byte {
	return appendList(dst, out, vectors,
		func(dst []byte, v *Array) []byte { return appendFloats(dst, out, v.Data) })
}

// AppendTEIAll appends the answer of /embed_all: one float32 matrix per text, tokens by width.
func AppendTEIAll(dst []byte, out *Sink, matrices []Array) []byte {
	return appendList(dst, out, matrices, func(dst []byte, m *Array) []byte {
		dst = append(dst, '[')
		for row := range m.Rows {
			if dst = out.flush(
				appendFloats(comma(dst, row), out, m.Data[row*m.Cols*4:(row+1)*m.Cols*4])); out.stopped() {
				break
			}
		}
		return append(dst, ']')
	})
}

// AppendTEISparse appends the answer of /embed_sparse.
func AppendTEISparse(dst []byte, out *Sink, rows []Sparse) []byte {
	return appendList(dst, out, rows, func(dst []byte, r *Sparse) []byte {
		dst = append(dst, '[')
		for k := range r.Indices.Cols {
			dst = append(comma(dst, k), `{"index":`...)
			dst = strconv.AppendUint(dst, uint64(le32(r.Indices.Data[4*k:])), 10)
			dst = append(dst, `,"value":`...)
			dst = append(appendShortest(dst, math.Float32frombits(le32(r.Values.Data[4*k:]))), '}')
			if dst = out.flush(dst); out.stopped() {
				break
			}
		}
		return append(dst, ']')
	})
}

// AppendTEISimilarities appends the answer of /similarity.
func AppendTEISimilarities(dst []byte, out *Sink, scores []float64) []byte {
	return appendList(dst, out, scores,
		func(dst []byte, s *float64) []byte { return appendShortest(dst, float32(*s)) })
}

// AppendTEIRanks appends the answer of /rerank; ranks are best first.
func AppendTEIRanks(dst []byte, out *Sink, ranks []TEIRank) []byte {
	return appendList(dst, out, ranks, func(dst []byte, r *TEIRank) []byte {
		dst = strconv.AppendInt(append(dst, `{"index":`...), int64(r.Index), 10)
		if r.Text != nil {
			dst = AppendJSONString(append(dst, `,"text":`...), *r.Text)
		}
		return append(appendShortest(append(dst, `,"score":`...), float32(r.Score)), '}')
	})
}

// AppendTEIPredictions appends the answer of /predict: a list of lists for a batch, otherwise the
// only list.
func AppendTEIPredictions(dst []byte, out *Sink, batch bool, predictions [][]TEIPrediction) []byte {
	one := func(dst []byte, list *[]TEIPrediction) []byte {
		return appendList(dst, out, *list, func(dst []byte, p *TEIPrediction) []byte {
			dst = appendShortest(append(dst, `{"score":`...), float32(p.Score))
			return append(AppendJSONString(append(dst, `,"label":`...), p.Label), '}')
		})
	}
	if batch {
		return appendList(dst, out, predictions, one)
	}
	return one(dst, &predictions[0])
}

// AppendTEITokens appends the answer of /tokenize.
func AppendTEITokens(dst []byte, out *Sink, texts [][]Token) []byte {
	place := func(dst []byte, p *int) []byte {
		if p == nil {
			return append(dst, "null"...)
		}
		return strconv.AppendInt(dst, int64(*p), 10)
	}
	return appendList(dst, out, texts, func(dst []byte, tokens *[]Token) []byte {
		return appendList(dst, out, *tokens, func(dst []byte, t *Token) []byte {
			dst = strconv.AppendInt(append(dst, `{"id":`...), int64(t.ID), 10)
			dst = AppendJSONString(append(dst, `,"text":`...), t.Text)
			dst = strconv.AppendBool(append(dst, `,"special":`...), t.Special)
			dst = place(append(dst, `,"start":`...), t.Start)
			return append(place(append(dst, `,"stop":`...), t.Stop), '}')
		})
	})
}

// AppendTEITexts appends the answer of /decode.
func AppendTEITexts(dst []byte, out *Sink, texts []string) []byte {
	return appendList(dst, out, texts,
		func(dst []byte, s *string) []byte { return AppendJSONString(dst, *s) })
}

// AppendTEIInfo appends the answer of /info.
func AppendTEIInfo(dst []byte, info *TEIInfo) []byte {
	b, err := json.Marshal(info)
	if err != nil {
		panic("api: a plain struct does not encode: " + err.Error())
	}
	return append(dst, b...)
}

// appendList appends entries as a JSON array, each written by one.
func appendList[T any](dst []byte, out *Sink, entries []T, one func(dst []byte, entry *T) []byte) []byte {
	dst = append(dst, '[')
	for i := range entries {
		if dst = out.flush(one(comma(dst, i), &entries[i])); out.stopped() {
			break
		}
		if out.clears() {
			var none T
			entries[i] = none
		}
	}
	return append(dst, ']')
}

// comma appends a comma before entry i of a list, except before the first.
func comma(dst []byte, i int) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	return dst
}

// appendFloats appends little-endian float32 values as a list.
func appendFloats(dst []byte, out *Sink, data []byte) []byte {
	dst = append(dst, '[')
	for i := 0; i+4 <= len(data); i += 4 {
		dst = appendShortest(comma(dst, i), math.Float32frombits(le32(data[i:])))
		if i%flushBytes == 0 {
			if dst = out.flush(dst); out.stopped() {
				break
			}
		}
	}
	return append(dst, ']')
}

// appendShortest appends the shortest number that reads back as f, always with a point or an
// exponent, because typed clients read 1 as an integer. NaN and infinity become null.
func appendShortest(dst []byte, f float32) []byte { return appendNumber(dst, float64(f), 32) }
