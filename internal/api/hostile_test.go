package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

// allocated returns the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// decodeAll runs every decoder over body in both formats.
func decodeAll(body []byte) {
	for _, ct := range []string{mp, js} {
		DecodeEncode(ct, body, Limits{})
		DecodeScore(ct, body, Limits{})
		DecodeExtract(ct, body, Limits{})
		DecodeEmbeddings(ct, body, Limits{})
	}
}

// TestHostileHeadersAllocateLittle checks that a few bytes which claim billions of elements do not
// cause large allocations.
func TestHostileHeadersAllocateLittle(t *testing.T) {
	claims := []string{
		"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff",
		"\xc9\xff\xff\xff\xff\x01", "\xdd\x00\x10\x00\x00", "\xdf\x7f\xff\xff\xff\xa1k",
	}
	for _, prefix := range []string{
		"", "\x81\xa5items", "\x81\xa5items\x91\x81\xa4text", "\x81\xa5items\x91\x81\xa6images",
		"\x81\xa5items\x91\x81\xa8metadata", "\x81\xa5items\x91\x81\xa8metadata\x81\xa1a",
		"\x81\xa5items\x91\x81\xa8document\x81\xa4data", "\x81\xa6params\x81\xa7options",
		"\x81\xa6params\x81\xa7options\x81\xa1a", "\x81\xa6params\x81\xacoutput_types",
		"\x81\xa6params\x81\xa6labels", "\x81\xa5query", "\x81\xa1x", "\x81\xa5input", "\x81\xa5input\x91",
	} {
		for _, claim := range claims {
			body := []byte(prefix + claim)
			// the runtime allocates too
			n := min(allocated(func() { decodeAll(body) }), allocated(func() { decodeAll(body) }))
			if n > 64<<10 {
				t.Errorf("%q allocates %d bytes", body, n)
			}
		}
	}
}

// TestAmplification checks that the cost of a large body stays in proportion to it.
func TestAmplification(t *testing.T) {
	const n = 2 << 20
	for name, body := range map[string]string{
		"empty items":  "\x81\xa5items\xdd\x00\x20\x00\x00" + strings.Repeat("\x80", n),
		"empty images": "\x81\xa5items\x91\x81\xa6images\xdd\x00\x20\x00\x00" + strings.Repeat("\x80", n),
		"empty labels": "\x82\xa5items\x91\x80\xa6params\x81\xa6labels\xdd\x00\x20\x00\x00" +
			strings.Repeat("\xa0", n),
		"option values": "\x82\xa5items\x91\x80\xa6params\x81\xa7options\x81\xa1k\xdd\x00\x20\x00\x00" +
			strings.Repeat("\xc0", n),
		"token lists": "\x82\xa5model\xa1m\xa5input\xdd\x00\x10\x00\x00" + strings.Repeat("\x91\x01", n/2),
	} {
		got := allocated(func() {
			if strings.Contains(body[:16], "model") {
				DecodeEmbeddings(mp, []byte(body), Limits{})
			} else {
				DecodeExtract(mp, []byte(body), Limits{})
			}
		})
		if got > 350<<20 {
			t.Errorf("%s: %d MiB for a body of %d MiB", name, got>>20, n>>20)
		}
	}
}

// TestKeysCountAsNesting checks that maps whose keys are maps nest no deeper than others. Their
// depth would else be that of the stack.
func TestKeysCountAsNesting(t *testing.T) {
	for _, prefix := range []string{
		"\x81\xa6params\x81\xa7options\x81\xa1a", "\x81\xa5items\x91\x81\xa8metadata\x81\xa1a",
	} {
		for _, nest := range []string{"\x81", "\x81\x91", "\x91\x81"} {
			body := []byte(prefix + strings.Repeat(nest, 1200))
			if _, err := DecodeEncode(mp, body, Limits{}); err == nil ||
				!strings.Contains(err.Error(), "maximum recursion depth") {
				t.Errorf("%q 1200 times: %v", nest, err)
			}
		}
	}
	tuple, object := "\x81\xa8metadata\x81\xa1a\x81\x91\x91\xa1k\x01",
		"\x81\xa8metadata\x81\xa1a\x81\x81\xa1k\x01\x02"
	if _, err := DecodeEncode(mp, []byte("\x81\xa5items\x91"+tuple), Limits{}); err != nil {
		t.Errorf("a key that is a list: %v", err)
	}
	if _, err := DecodeEncode(mp, []byte("\x81\xa5items\x91"+object), Limits{}); err == nil ||
		!strings.Contains(err.Error(), "must be hashable") {
		t.Errorf("a key that is a map: %v", err)
	}
}

// TestErrorsAreShort checks that an error does not repeat a long name of its client.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, decode := range []func() error{
		func() error {
			_, err := DecodeEncode(js, []byte(`{"items":[{"audio":{"`+long+`":1}}]}`), Limits{})
			return err
		},
		func() error { _, err := DecodeRerank([]byte(`{"`+long+`":1}`), Limits{}); return err },
		func() error {
			_, err := DecodeRerank([]byte(`{"query":"q","documents":[{"a":"b"}],"rank_fields":["`+long+`"]}`),
				Limits{})
			return err
		},
		func() error {
			_, err := DecodeEmbeddings(js,
				[]byte(`{"model":"m","input":"a","encoding_format":"`+long+`"}`), Limits{})
			return err
		},
	} {
		if err := decode(); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.600v", err)
		}
	}
}

// twin rewrites a msgpack value as JSON with the same meaning, entry by entry, repeated keys
// included. It gives up on values that JSON cannot express.
func twin(s *mpack, dst []byte, depth int) ([]byte, bool) {
	v, err := s.next(wantAny)
	if err != nil || depth > 900 {
		return nil, false
	}
	var ok bool
	switch v.kind {
	case kindNull, kindBool:
		return appendFree(dst, jsonWriter{}, v.scalar()), true
	case kindInt:
		return appendFree(dst, jsonWriter{}, v.i), !v.big
	case kindFloat: // JSON cannot tell 1e19 from an integer
		return AppendJSONFloat(dst, v.f), !math.IsNaN(v.f) && !math.IsInf(v.f, 0) && v.f != math.Trunc(v.f)
	case kindStr:
		return AppendJSONString(dst, string(v.b)), utf8.Valid(v.b)
	case kindArray:
		dst = append(dst, '[')
		for i := range v.n {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, ok = twin(s, dst, depth+1); !ok {
				return nil, false
			}
		}
		return append(dst, ']'), true
	case kindObject:
		dst = append(dst, '{')
		for i := range v.n {
			k, err := s.next(wantAny)
			if err != nil || k.kind != kindStr || !utf8.Valid(k.b) {
				return nil, false
			}
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendJSONString(dst, string(k.b)), ':')
			if dst, ok = twin(s, dst, depth+1); !ok {
				return nil, false
			}
		}
		return append(dst, '}'), true
	}
	return nil, false
}

// normal removes the differences between the formats' forms: raw bytes become their values.
func normal(t *testing.T, items []Item) []Item {
	out := make([]Item, len(items))
	for i, it := range items {
		if it.Extra != nil {
			x := *it.Extra
			v, err := x.Metadata.Value("metadata", 20_000)
			if err != nil {
				t.Fatal(err)
			}
			x.Metadata = Raw{Data: fmt.Append(nil, v)}
			it.Extra = &x
		}
		out[i] = it
	}
	return out
}

// FuzzEncodeMsgpack checks that there is no panic, that memory stays in proportion to the body, and
// that errors are well formed. If JSON can express the request, its JSON twin must decode to the
// same request.
func FuzzEncodeMsgpack(f *testing.F) {
	type m = map[string]any
	type l = []any
	for _, x := range []any{
		m{"items": l{m{"text": "Hi"}}},
		m{
			"items":  l{m{"id": "é", "metadata": m{"k": l{1, "x", nil, 2.5}}}, m{}},
			"params": m{"output_types": l{"dense"}, "options": m{"k": 1, "dimensions": 3}},
		},
		m{"items": l{m{
			"images": l{[]byte("raw"), m{"data": []byte("d"), "format": "png"}},
			"audio":  m{"data": []byte("a"), "sample_rate": 8000},
		}}},
		m{"items": l{}}, m{"items": nil}, l{}, nil, m{"items": l{m{"text": 1}}},
	} {
		f.Add(pack(x))
	}
	f.Add([]byte("\x81\xa5items\xdd\xff\xff\xff\xff"))
	f.Add([]byte("\x81\xa5items\x91\x81\xabmultivector\x91\xc7\x0e\x4e<f4|2|\x00\x00\x80?\x00\x00\x80?"))
	f.Add([]byte("\x81\xa5items\x91\x81\xa8metadata\x81\xa1a" + strings.Repeat("\x91", 1200)))
	f.Fuzz(func(t *testing.T, body []byte) {
		checkDecode(t, "msgpack", body)
		src := &mpack{b: body}
		j, ok := twin(src, nil, 0)
		if !ok || src.end() != nil {
			return
		}
		a, errA := DecodeEncode(mp, body, Limits{})
		b, errB := DecodeEncode(js, j, Limits{})
		if (errA == nil) != (errB == nil) {
			t.Fatalf("msgpack: %v\nJSON: %v\n%q\n%s", errA, errB, body, j)
		}
		if errA != nil {
			return
		}
		if !reflect.DeepEqual(normal(t, a.Items), normal(t, b.Items)) ||
			!reflect.DeepEqual(a.OutputTypes, b.OutputTypes) || a.OutputDType != b.OutputDType ||
			!reflect.DeepEqual(a.Instruction, b.Instruction) || !reflect.DeepEqual(a.Options, b.Options) ||
			!reflect.DeepEqual(a.IsQuery, b.IsQuery) {
			t.Fatalf("twins differ:\n%+v\n%+v\n%q\n%s", a, b, body, j)
		}
	})
}

// FuzzEncodeJSON checks the same for JSON. In addition, the standard library must read every
// accepted string or number in free-form data alike.
func FuzzEncodeJSON(f *testing.F) {
	for _, s := range []string{
		`{"items":[{"text":"Hi"}]}`,
		`{"items":[{"id":"\u00e9\ud83d\ude00","text":"a\nb","metadata":{"k":[1,-2.5e3,true,null,{"x":"y"}]}}],"params":{"output_dtype":"int8","options":{"profile":"p"}}}`,
		`{"items":[{"images":[{"data":"Zm9v","format":null}],"zz":[{"a":[[]]}]}]} `, `{"items":[{},]}`,
		`{"items":[{"text":"\ud800"}]}`, `{"items":[{"text":NaN}]}`, `[1e400]`, "\ufeff{}",
		`{"a":` + strings.Repeat("[", 1200),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkDecode(t, "json", body)
		r, err := DecodeEncode(js, body, Limits{})
		if err != nil {
			return
		}
		for _, it := range r.Items {
			if it.Extra == nil || it.Extra.Metadata.Empty() {
				continue
			}
			got, err := it.Extra.Metadata.Value("metadata", 1<<20)
			if err != nil {
				t.Fatalf("accepted metadata does not decode: %v", err)
			}
			var want any
			if err := json.Unmarshal(it.Extra.Metadata.Data, &want); err != nil {
				continue // the standard library has its own limits
			}
			a, _ := json.Marshal(got)
			var again any
			if err := json.Unmarshal(a, &again); err != nil || !reflect.DeepEqual(again, want) {
				t.Fatalf("%s\nwe read    %v\nothers read %v", it.Extra.Metadata.Data, again, want)
			}
		}
	})
}

// checkDecode decodes body as every kind of request and checks the rules that hold for any input.
func checkDecode(t *testing.T, format string, body []byte) {
	keep := bytes.Clone(body)
	for _, request := range []string{"encode", "score", "extract"} {
		if msg := decodeAs(request, format, body); strings.HasPrefix(msg, "not ") {
			t.Fatalf("%s: %s", request, msg)
		}
	}
	DecodeEmbeddings("application/"+format, body, Limits{})
	if !bytes.Equal(keep, body) {
		t.Fatal("the body was changed")
	}
	if n := testing.AllocsPerRun(1, func() { decodeAs("encode", format, body) }); n > float64(100+
		8*len(body)) {
		t.Fatalf("%v allocations for %d bytes", n, len(body))
	}
}

func BenchmarkDecodeEncode(b *testing.B) {
	const words = "the quick brown fox jumps over the lazy dog and runs away from the bear in the forest "
	for _, n := range []int{1, 5000} {
		items := make([]any, n)
		for i := range items {
			items[i] = map[string]any{"id": fmt.Sprint(i), "text": strings.Repeat(words, 7)}
		}
		req := map[string]any{"items": items, "params": map[string]any{"output_types": []any{"dense"}}}
		for _, f := range []Format{Msgpack, JSON} {
			body := appendFree(nil, f.writer(nil), req)
			b.Run(fmt.Sprintf("items=%d/format=%v", n, f), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					if _, err := DecodeEncode(f.ContentType(), body, Limits{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
