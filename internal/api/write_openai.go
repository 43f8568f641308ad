package api

import (
	"encoding/base64"
	"strconv"
)

// AppendEmbeddingsJSON appends an OpenAI embeddings answer to dst. vectors are one-dimensional
// float32 arrays, in input order. tokens is the true total of the inputs' tokens. With b64 a vector
// is its little-endian float32 bytes in base64. It writes in pieces if out is not nil.
func AppendEmbeddingsJSON(dst []byte, out *Sink, model string, vectors []Array, b64 bool, tokens int) []byte {
	w := jsonWriter{out}
	dst = append(dst, `{"object":"list","data":[`...)
	for i, v := range vectors {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"object":"embedding","embedding":`...)
		if b64 {
			dst = append(dst, '"')
			for data := v.Data; len(data) > 0 && !out.stopped(); {
				n := min(len(data), flushBytes-flushBytes%3) // only the last piece may need padding
				dst = out.flush(base64.StdEncoding.AppendEncode(dst, data[:n]))
				data = data[n:]
			}
			dst = append(dst, '"')
		} else {
			dst = w.array(dst, v)
		}
		dst = append(dst, `,"index":`...)
		dst = strconv.AppendInt(dst, int64(i), 10)
		dst = append(dst, '}')
		if out != nil {
			if dst = out.flush(dst); out.stopped() {
				break
			}
			if out.clears() {
				vectors[i] = Array{}
			}
		}
	}
	dst = append(dst, `],"model":`...)
	dst = AppendJSONString(dst, model)
	dst = append(dst, `,"usage":{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(tokens), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(tokens), 10)
	return append(dst, `,"sie_token_source":"worker"}}`...)
}
