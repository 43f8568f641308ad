package load

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// path returns the route of a request.
func (r *Request) path() string {
	if r.Op == Embeddings {
		return "/v1/embeddings"
	}
	return "/v1/" + r.Op + "/" + r.Model
}

// fields returns the body as a tree of maps.
func (r *Request) fields() map[string]any {
	if r.Op == Embeddings {
		return map[string]any{"model": r.Model, "input": r.Texts}
	}
	items := make([]any, len(r.Texts))
	for i, text := range r.Texts {
		items[i] = map[string]any{"id": r.ItemID(i), "text": text}
	}
	f := map[string]any{"items": items}
	switch r.Op {
	case Score:
		f["query"] = map[string]any{"text": r.Query}
	case Extract:
		labels := make([]any, len(r.Labels))
		for i, l := range r.Labels {
			labels[i] = l
		}
		f["params"] = map[string]any{"labels": labels}
	}
	return f
}

// body returns the body of a request and its content type. Embeddings are always JSON.
func (r *Request) body(packed bool) ([]byte, string, error) {
	if packed && r.Op != Embeddings {
		b, err := msgp.AppendIntf(nil, r.fields())
		return b, "application/msgpack", err
	}
	b, err := json.Marshal(r.fields())
	return b, "application/json", err
}

// errShape is an answer that has not the form of its route.
var errShape = errors.New("the answer has not the form of its route")

// parse reads an answer of status 200.
func parse(op, contentType string, body []byte) (*Result, error) {
	var v any
	var err error
	if strings.Contains(contentType, "msgpack") {
		var rest []byte
		v, rest, err = msgp.ReadIntfBytes(body)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%d bytes after the answer", len(rest))
		}
	} else {
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.UseNumber()
		if err = d.Decode(&v); err == nil && d.More() {
			err = errors.New("more after the answer")
		}
	}
	if err != nil {
		return nil, err
	}
	top, ok := v.(map[string]any)
	if !ok {
		return nil, errShape
	}
	switch op {
	case Score:
		return parseScores(top)
	case Embeddings:
		return parseList(top, "data", func(a *Result, item map[string]any) error {
			if at, ok := number(item["index"]); !ok || int(at) != len(a.Dense) {
				return errShape
			}
			return a.addVector(item["embedding"])
		})
	case Extract:
		return parseList(top, "items", func(a *Result, item map[string]any) error {
			a.Items = append(a.Items, plain(item).(map[string]any))
			return a.addID(item)
		})
	}
	return parseList(top, "items", func(a *Result, item map[string]any) error {
		dense, _ := item["dense"].(map[string]any)
		return errors.Join(a.addVector(dense["values"]), a.addID(item))
	})
}

func parseList(top map[string]any, key string, add func(*Result, map[string]any) error) (*Result, error) {
	list, ok := top[key].([]any)
	if !ok {
		return nil, errShape
	}
	a := new(Result)
	for _, x := range list {
		item, ok := x.(map[string]any)
		if !ok {
			return nil, errShape
		}
		if err := add(a, item); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func parseScores(top map[string]any) (*Result, error) {
	return parseList(top, "scores", func(a *Result, line map[string]any) error {
		id, ok := line["item_id"].(string)
		score, ok2 := number(line["score"])
		rank, ok3 := number(line["rank"])
		if !ok || !ok2 || !ok3 {
			return errShape
		}
		a.Scores = append(a.Scores, Scored{ID: id, Score: score, Rank: int(rank)})
		return nil
	})
}

func (a *Result) addID(item map[string]any) error {
	id, ok := item["id"].(string)
	if !ok {
		return errShape
	}
	a.IDs = append(a.IDs, id)
	return nil
}

// addVector reads a vector: a list of numbers, or a map of msgpack-numpy.
func (a *Result) addVector(v any) error {
	var x []float32
	switch v := v.(type) {
	case []any:
		for _, n := range v {
			f, ok := single(n)
			if !ok {
				return errShape
			}
			x = append(x, f)
		}
	case map[string]any:
		data, ok := v["data"].([]byte)
		if kind, _ := v["type"].(string); !ok || kind != "<f4" || len(data)%4 != 0 {
			return errShape
		}
		for ; len(data) > 0; data = data[4:] {
			x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
	default:
		return errShape
	}
	a.Dense = append(a.Dense, x)
	return nil
}

// single reads a number as a float32, from decimal digits to the nearest.
func single(v any) (float32, bool) {
	if n, ok := v.(json.Number); ok {
		f, err := strconv.ParseFloat(n.String(), 32)
		return float32(f), err == nil
	}
	f, ok := number(v)
	return float32(f), ok
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	case float64:
		return n, true
	case float32:
		return float64(n), true
	case int64:
		return float64(n), true
	case uint64:
		return float64(n), true
	}
	return 0, false
}

// plain turns every number of a tree into a float64 and leaves out the keys of nothing, so that all
// forms of an answer compare alike.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if v[k] = plain(x); x == nil {
				delete(v, k)
			}
		}
		return v
	case []any:
		for i, x := range v {
			v[i] = plain(x)
		}
		return v
	}
	if f, ok := number(v); ok {
		return f
	}
	return v
}
