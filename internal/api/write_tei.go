package api

import (
	"encoding/json"
	"math"
	"strconv"
)

// AppendTEIEmbeddings appends the answer of /embed: one float32 array a text. Numbers are the shortest that read back as
// the same float32, as TEI prints them.
func AppendTEIEmbeddings(dst []byte, vectors []Array) []byte {
	dst = append(dst, '[')
	for i, v := range vectors {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendFloats(dst, v.Data)
	}
	return append(dst, ']')
}

// AppendTEIAll appends the answer of /embed_all: one float32 matrix a text, tokens by width.
func AppendTEIAll(dst []byte, matrices []Array) []byte {
	dst = append(dst, '[')
	for i, m := range matrices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		for row := range m.Rows {
			if row > 0 {
				dst = append(dst, ',')
			}
			dst = appendFloats(dst, m.Data[row*m.Cols*4:(row+1)*m.Cols*4])
		}
		dst = append(dst, ']')
	}
	return append(dst, ']')
}

// AppendTEISparse appends the answer of /embed_sparse.
func AppendTEISparse(dst []byte, rows []Sparse) []byte {
	dst = append(dst, '[')
	for i, r := range rows {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		for k := range r.Indices.Cols {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"index":`...)
			dst = strconv.AppendUint(dst, uint64(le32(r.Indices.Data[4*k:])), 10)
			dst = append(dst, `,"value":`...)
			dst = append(appendShort(dst, math.Float32frombits(le32(r.Values.Data[4*k:]))), '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, ']')
}

// AppendTEISimilarities appends the answer of /similarity.
func AppendTEISimilarities(dst []byte, scores []float64) []byte {
	dst = append(dst, '[')
	for i, s := range scores {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendShort(dst, float32(s))
	}
	return append(dst, ']')
}

// AppendTEIRanks appends the answer of /rerank; ranks are best first.
func AppendTEIRanks(dst []byte, ranks []TEIRank) []byte {
	dst = append(dst, '[')
	for i, r := range ranks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"index":`...), int64(r.Index), 10)
		if r.Text != nil {
			dst = AppendJSONString(append(dst, `,"text":`...), *r.Text)
		}
		dst = append(appendShort(append(dst, `,"score":`...), float32(r.Score)), '}')
	}
	return append(dst, ']')
}

// AppendTEIPredictions appends the answer of /predict: a list of lists for a batch, the only list otherwise.
func AppendTEIPredictions(dst []byte, batch bool, predictions [][]TEIPrediction) []byte {
	if batch {
		dst = append(dst, '[')
	}
	for i, list := range predictions {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		for k, p := range list {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = appendShort(append(dst, `{"score":`...), float32(p.Score))
			dst = append(AppendJSONString(append(dst, `,"label":`...), p.Label), '}')
		}
		dst = append(dst, ']')
	}
	if batch {
		dst = append(dst, ']')
	}
	return dst
}

// AppendTEITokens appends the answer of /tokenize.
func AppendTEITokens(dst []byte, texts [][]TEIToken) []byte {
	place := func(dst []byte, p *int) []byte {
		if p == nil {
			return append(dst, "null"...)
		}
		return strconv.AppendInt(dst, int64(*p), 10)
	}
	dst = append(dst, '[')
	for i, tokens := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		for k, t := range tokens {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(append(dst, `{"id":`...), int64(t.ID), 10)
			dst = AppendJSONString(append(dst, `,"text":`...), t.Text)
			dst = strconv.AppendBool(append(dst, `,"special":`...), t.Special)
			dst = place(append(dst, `,"start":`...), t.Start)
			dst = append(place(append(dst, `,"stop":`...), t.Stop), '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, ']')
}

// AppendTEITexts appends the answer of /decode.
func AppendTEITexts(dst []byte, texts []string) []byte {
	dst = append(dst, '[')
	for i, s := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendJSONString(dst, s)
	}
	return append(dst, ']')
}

// AppendTEIInfo appends the answer of /info.
func AppendTEIInfo(dst []byte, info *TEIInfo) []byte {
	b, err := json.Marshal(info)
	if err != nil {
		panic("api: a plain struct does not encode: " + err.Error())
	}
	return append(dst, b...)
}

// appendFloats appends little-endian float32 values as a list.
func appendFloats(dst, data []byte) []byte {
	dst = append(dst, '[')
	for i := 0; i+4 <= len(data); i += 4 {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendShort(dst, math.Float32frombits(le32(data[i:])))
	}
	return append(dst, ']')
}

// appendShort appends the shortest number that reads back as f; what JSON has no number for becomes null.
func appendShort(dst []byte, f float32) []byte {
	if f-f != 0 {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, float64(f), 'g', -1, 32)
}
