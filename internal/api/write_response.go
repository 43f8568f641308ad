package api

import (
	"maps"
	"slices"
)

// AppendEncodeMsgpack appends r in msgpack to dst and returns the extended slice. It grows dst at
// most once.
func AppendEncodeMsgpack(dst []byte, r *EncodeResponse) []byte {
	return appendEncode(slices.Grow(dst, r.SizeHint()), mpackWriter{}, r)
}

// AppendEncodeJSON appends r in JSON to dst and returns the extended slice.
func AppendEncodeJSON(dst []byte, r *EncodeResponse) []byte {
	return appendEncode(dst, jsonWriter{}, r)
}

// AppendEncode appends r in format f, in pieces if out is not nil.
func AppendEncode(dst []byte, out *Sink, f Format, r *EncodeResponse) []byte {
	switch {
	case f == JSON:
		return appendEncode(dst, jsonWriter{out}, r)
	case out == nil:
		return AppendEncodeMsgpack(dst, r)
	}
	return appendEncode(dst, mpackWriter{out}, r)
}

// AppendScore appends r in format f, in pieces if out is not nil.
func AppendScore(dst []byte, out *Sink, f Format, r *ScoreResponse) []byte {
	return appendScore(dst, f.writer(out), r)
}

// AppendExtract appends r in format f, in pieces if out is not nil.
func AppendExtract(dst []byte, out *Sink, f Format, r *ExtractResponse) []byte {
	return appendExtract(dst, f.writer(out), r)
}

func (f Format) writer(out *Sink) writer {
	if f == JSON {
		return jsonWriter{out}
	}
	return mpackWriter{out}
}

// SizeHint returns a bound on the size of r in msgpack.
func (r *EncodeResponse) SizeHint() int {
	n := 256 + len(r.Model)
	for i := range r.Items {
		it := &r.Items[i]
		n += len(it.ID) + 16
		if it.Dense != nil {
			n += len(it.Dense.Values.Data) + arrayOverhead + 40
		}
		if it.Sparse != nil {
			n += len(it.Sparse.Indices.Data) + len(it.Sparse.Values.Data) + 2*arrayOverhead + 50
		}
		if it.Multivector != nil {
			n += len(it.Multivector.Values.Data) + arrayOverhead + 60
		}
	}
	return n
}

func appendEncode[W writer](dst []byte, w W, r *EncodeResponse) []byte {
	n := 3
	if r.Usage != nil {
		n++
	}
	dst = w.object(dst, n)
	dst = w.str(w.key(dst, "model"), r.Model)
	dst = w.list(w.key(w.sep(dst), "items"), len(r.Items))
	for i := range r.Items {
		if i > 0 {
			dst = w.sep(dst)
		}
		dst = appendEncodeItem(dst, w, &r.Items[i])
		if out := w.sink(); out != nil {
			if dst = out.flush(dst); out.stopped() {
				break
			}
			if out.clears() {
				r.Items[i].clear()
			}
		}
	}
	dst = w.endList(dst)
	dst = appendTiming(w.key(w.sep(dst), "timing"), w, r.Timing)
	dst = appendUsage(dst, w, r.Usage)
	return w.endObject(dst)
}

// clear drops the item's results. The structs that it clears may be elements of slices shared with
// other items.
func (it *EncodeItem) clear() {
	if it.Dense != nil {
		*it.Dense = Dense{}
	}
	if it.Sparse != nil {
		*it.Sparse = Sparse{}
	}
	if it.Multivector != nil {
		*it.Multivector = Multivector{}
	}
	*it = EncodeItem{}
}

func appendEncodeItem[W writer](dst []byte, w W, it *EncodeItem) []byte {
	n := 0
	for _, has := range [...]bool{it.HasID, it.Dense != nil, it.Sparse != nil, it.Multivector != nil} {
		if has {
			n++
		}
	}
	dst = w.object(dst, n)
	left := n
	key := func(k string) {
		if left < n {
			dst = w.sep(dst)
		}
		left--
		dst = w.key(dst, k)
	}
	if it.HasID {
		key("id")
		dst = w.str(dst, it.ID)
	}
	if v := it.Dense; v != nil {
		key("dense")
		dst = w.object(dst, 3)
		dst = w.int(w.key(dst, "dims"), int64(v.Dims))
		dst = w.str(w.key(w.sep(dst), "dtype"), v.Values.dtype(v.Dims))
		dst = w.array(w.key(w.sep(dst), "values"), v.Values)
		dst = w.endObject(dst)
	}
	if v := it.Sparse; v != nil {
		key("sparse")
		dst = w.object(dst, 4)
		dst = w.key(dst, "dims")
		if v.Dims > 0 {
			dst = w.int(dst, int64(v.Dims))
		} else {
			dst = w.null(dst)
		}
		dst = w.str(w.key(w.sep(dst), "dtype"), v.Values.Type.String())
		dst = w.array(w.key(w.sep(dst), "indices"), v.Indices)
		dst = w.array(w.key(w.sep(dst), "values"), v.Values)
		dst = w.endObject(dst)
	}
	if v := it.Multivector; v != nil {
		key("multivector")
		dst = w.object(dst, 4)
		dst = w.int(w.key(dst, "token_dims"), int64(v.TokenDims))
		dst = w.int(w.key(w.sep(dst), "num_tokens"), int64(v.Values.Rows))
		dst = w.str(w.key(w.sep(dst), "dtype"), v.Values.dtype(v.TokenDims))
		dst = w.array(w.key(w.sep(dst), "values"), v.Values)
		dst = w.endObject(dst)
	}
	return w.endObject(dst)
}

func appendTiming[W writer](dst []byte, w W, t *Timing) []byte {
	if t == nil {
		return w.null(dst)
	}
	n := 5
	if t.Detailed {
		n = 7
	}
	dst = w.object(dst, n)
	dst = w.float(w.key(dst, "total_ms"), t.Total)
	dst = w.float(w.key(w.sep(dst), "queue_ms"), t.Queue)
	dst = w.float(w.key(w.sep(dst), "tokenization_ms"), t.Tokenization)
	dst = w.float(w.key(w.sep(dst), "inference_ms"), t.Inference)
	dst = w.key(w.sep(dst), "postprocessing_ms")
	if t.Postprocessing > 0 {
		dst = w.float(dst, t.Postprocessing)
	} else {
		dst = w.null(dst)
	}
	if t.Detailed {
		dst = w.float(w.key(w.sep(dst), "preprocess_ms"), t.Preprocess)
		dst = w.float(w.key(w.sep(dst), "batch_wait_ms"), t.BatchWait)
	}
	return w.endObject(dst)
}

// appendUsage appends the usage as the last entry of an answer, with its separator. Without a usage
// it appends nothing.
func appendUsage[W writer](dst []byte, w W, u *Usage) []byte {
	if u == nil {
		return dst
	}
	n := 1
	if u.Images > 0 {
		n++
	}
	if u.HasContent {
		n++
	}
	dst = w.object(w.key(w.sep(dst), "usage"), n)
	dst = w.int(w.key(dst, "input_tokens"), int64(u.InputTokens))
	if u.Images > 0 {
		dst = w.int(w.key(w.sep(dst), "images"), int64(u.Images))
	}
	if u.HasContent {
		dst = w.object(w.key(w.sep(dst), "input_tokens_details"), 1)
		dst = w.int(w.key(dst, "content_tokens"), int64(u.ContentTokens))
		dst = w.endObject(dst)
	}
	return w.endObject(dst)
}

func appendScore(dst []byte, w writer, r *ScoreResponse) []byte {
	n := 3
	if r.Usage != nil {
		n++
	}
	dst = w.object(dst, n)
	dst = w.str(w.key(dst, "model"), r.Model)
	dst = w.key(w.sep(dst), "query_id")
	if r.HasQuery {
		dst = w.str(dst, r.QueryID)
	} else {
		dst = w.null(dst)
	}
	dst = appendScores(w.key(w.sep(dst), "scores"), w, r.Scores)
	return w.endObject(appendUsage(dst, w, r.Usage))
}

func appendScores(dst []byte, w writer, scores []Score) []byte {
	return each(dst, w, len(scores), func(dst []byte, i int) []byte {
		s := &scores[i]
		dst = w.object(dst, 3)
		dst = w.str(w.key(dst, "item_id"), s.ItemID)
		dst = w.float(w.key(w.sep(dst), "score"), s.Score)
		return w.endObject(w.int(w.key(w.sep(dst), "rank"), int64(s.Rank)))
	})
}

// each appends a list of n elements.
func each(dst []byte, w writer, n int, elem func(dst []byte, i int) []byte) []byte {
	dst = w.list(dst, n)
	for i := range n {
		if i > 0 {
			dst = w.sep(dst)
		}
		if dst = w.sink().flush(elem(dst, i)); w.sink().stopped() {
			break
		}
	}
	return w.endList(dst)
}

func appendExtract(dst []byte, w writer, r *ExtractResponse) []byte {
	n := 2
	if r.Usage != nil {
		n++
	}
	dst = w.object(dst, n)
	dst = w.str(w.key(dst, "model"), r.Model)
	dst = each(w.key(w.sep(dst), "items"), w, len(r.Items), func(dst []byte, i int) []byte {
		dst = appendExtractItem(dst, w, &r.Items[i])
		if w.sink().clears() {
			r.Items[i] = ExtractItem{}
		}
		return dst
	})
	return w.endObject(appendUsage(dst, w, r.Usage))
}

func appendExtractItem(dst []byte, w writer, it *ExtractItem) []byte {
	n := 6
	if it.Error != nil {
		n++
	}
	dst = w.object(dst, n)
	dst = w.str(w.key(dst, "id"), it.ID)
	dst = each(w.key(w.sep(dst), "entities"), w, len(it.Entities), func(dst []byte, i int) []byte {
		e := &it.Entities[i]
		dst = w.object(dst, 6)
		dst = w.str(w.key(dst, "text"), e.Text)
		dst = w.str(w.key(w.sep(dst), "label"), e.Label)
		dst = w.float(w.key(w.sep(dst), "score"), e.Score)
		if e.Start < 0 && e.End < 0 {
			dst = w.null(w.key(w.sep(dst), "start"))
			dst = w.null(w.key(w.sep(dst), "end"))
		} else {
			dst = w.int(w.key(w.sep(dst), "start"), int64(e.Start))
			dst = w.int(w.key(w.sep(dst), "end"), int64(e.End))
		}
		return w.endObject(appendBox(w.key(w.sep(dst), "bbox"), w, e.Box))
	})
	dst = each(w.key(w.sep(dst), "relations"), w, len(it.Relations), func(dst []byte, i int) []byte {
		e := &it.Relations[i]
		dst = w.object(dst, 4)
		dst = w.str(w.key(dst, "head"), e.Head)
		dst = w.str(w.key(w.sep(dst), "tail"), e.Tail)
		dst = w.str(w.key(w.sep(dst), "relation"), e.Relation)
		return w.endObject(w.float(w.key(w.sep(dst), "score"), e.Score))
	})
	dst = each(w.key(w.sep(dst), "classifications"), w, len(it.Classifications),
		func(dst []byte, i int) []byte {
			e := &it.Classifications[i]
			dst = w.str(w.key(w.object(dst, 2), "label"), e.Label)
			return w.endObject(w.float(w.key(w.sep(dst), "score"), e.Score))
		})
	dst = each(w.key(w.sep(dst), "objects"), w, len(it.Objects), func(dst []byte, i int) []byte {
		e := &it.Objects[i]
		dst = w.str(w.key(w.object(dst, 3), "label"), e.Label)
		dst = w.float(w.key(w.sep(dst), "score"), e.Score)
		return w.endObject(appendBox(w.key(w.sep(dst), "bbox"), w, e.Box))
	})
	dst = appendFree(w.key(w.sep(dst), "data"), w, orEmpty(it.Data))
	if e := it.Error; e != nil {
		dst = w.str(w.key(w.object(w.key(w.sep(dst), "error"), 2), "code"), string(e.Code))
		dst = w.endObject(w.str(w.key(w.sep(dst), "message"), e.Message))
	}
	return w.endObject(dst)
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

func appendBox(dst []byte, w writer, box []int) []byte {
	if box == nil {
		return w.null(dst)
	}
	return each(dst, w, len(box), func(dst []byte, i int) []byte { return w.int(dst, int64(box[i])) })
}

// appendFree appends a tree of the types that Options lists, a map with sorted keys. A value of any
// other type is written as null.
func appendFree(dst []byte, w writer, x any) []byte {
	switch v := x.(type) {
	case bool:
		return w.bool(dst, v)
	case int:
		return w.int(dst, int64(v))
	case int64:
		return w.int(dst, v)
	case float64:
		return w.float(dst, v)
	case string:
		return w.str(dst, v)
	case []byte:
		return w.bytes(dst, v)
	case []any:
		return each(dst, w, len(v), func(dst []byte, i int) []byte { return appendFree(dst, w, v[i]) })
	case []string:
		return each(dst, w, len(v), func(dst []byte, i int) []byte { return w.str(dst, v[i]) })
	case map[string]any:
		return appendEntries(dst, w, slices.Sorted(maps.Keys(v)), v)
	case Ordered:
		return appendEntries(dst, w, v.Keys, v.Values)
	}
	return w.null(dst)
}

// appendEntries appends an object with its keys in that order.
func appendEntries(dst []byte, w writer, keys []string, values map[string]any) []byte {
	dst = w.object(dst, len(keys))
	for i, k := range keys {
		if i > 0 {
			dst = w.sep(dst)
		}
		dst = appendFree(w.key(dst, k), w, values[k])
	}
	return w.endObject(dst)
}
