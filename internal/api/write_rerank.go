package api

import "strconv"

// AppendRerankJSON appends r: SIE's keys model and results, Jina's object and usage, Cohere's id
// and meta. It writes in pieces if out is not nil.
func AppendRerankJSON(dst []byte, out *Sink, r *RerankResponse) []byte {
	tokens := strconv.Itoa(r.Tokens)
	dst = AppendJSONString(append(dst, `{"id":`...), r.ID)
	dst = AppendJSONString(append(dst, `,"object":"list","model":`...), r.Model)
	dst = appendList(append(dst, `,"results":`...), out, r.Results, appendRerankResult)
	dst = append(dst, `,"meta":{"api_version":{"version":"`...)
	dst = strconv.AppendInt(dst, int64(r.APIVersion), 10)
	dst = append(dst, `"},"tokens":{"input_tokens":`+tokens+`,"output_tokens":0}}`...)
	return append(dst,
		`,"usage":{"input_tokens":`+tokens+`,"prompt_tokens":`+tokens+`,"total_tokens":`+tokens+`}}`...)
}

func appendRerankResult(dst []byte, r *RerankResult) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(r.Index), 10)
	dst = AppendJSONFloat(append(dst, `,"relevance_score":`...), r.Score)
	if doc := r.Document; doc != nil {
		dst = append(dst, `,"document":`...)
		if doc.Object != nil {
			dst = append(dst, doc.Object...)
		} else {
			dst = append(AppendJSONString(append(dst, `{"text":`...), doc.Text), '}')
		}
	}
	return append(dst, '}')
}
