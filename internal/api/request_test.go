package api

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
)

// pack writes a Go tree as msgpack, for tests. Keys come in order.
func pack(x any) []byte { return appendFree(nil, mpackWriter{}, x) }

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const mp, js = "application/msgpack", "application/json"

// TestValidationMatrix checks the documented list of errors for bad bodies.
func TestValidationMatrix(t *testing.T) {
	type m = map[string]any
	type l = []any
	one := func(item any) []byte { return pack(m{"items": l{item}}) }
	params := func(p any) []byte { return pack(m{"items": l{m{}}, "params": p}) }
	deep := func(n int) string { return strings.Repeat("\x91", n) }
	const noMetadata = "\x81\xa5items\x91\x81\xa8metadata\x81\xa1a"
	for _, c := range []struct {
		request, format string
		body            []byte
		want            string
	}{
		{"encode", "msgpack", nil, "Input data was truncated"},
		{"encode", "json", nil, "Input data was truncated"},
		{"encode", "msgpack", []byte("\x81\xa5items\x91\x81\xa4te"), "Input data was truncated"},
		{"encode", "msgpack", []byte("\x81\xa5items\xdd\xff\xff\xff\xff"), "Input data was truncated"},
		{"encode", "msgpack", []byte("\xc1"),
			`MessagePack data is malformed: invalid opcode '\xc1' (byte 0)`},
		{"encode", "msgpack", append(one(m{}), 0),
			"MessagePack data is malformed: trailing characters (byte 9)"},
		{"encode", "msgpack", []byte(`{"items":[]}`), "Expected `object`, got `int`"},
		{"encode", "msgpack", []byte("hello"), "Expected `object`, got `int`"},
		{"encode", "msgpack", []byte("\xc0"), "Expected `object`, got `None`"},
		{"encode", "json", []byte("null"), "Expected `object`, got `null`"},
		{"encode", "json", []byte("[]"), "Expected `object`, got `array`"},
		{"encode", "json", []byte("5"), "Expected `object`, got `int`"},
		{"encode", "msgpack", pack(m{}), "Object missing required field `items`"},
		{"score", "msgpack", pack(m{"items": l{m{}}}), "Object missing required field `query`"},
		{"score", "msgpack", pack(m{"query": m{}}), "Object missing required field `items`"},
		{"encode", "msgpack", pack(m{"items": l{}}), "Field 'items' must not be empty"},
		{"score", "msgpack", pack(m{"items": l{}, "query": m{}}), "Field 'items' must not be empty"},
		{"extract", "json", []byte(`{"items":[]}`), "Field 'items' must not be empty"},
		{"encode", "msgpack", pack(m{"items": nil}), "Expected `array`, got `None` - at `$.items`"},
		{"encode", "json", []byte(`{"items":null}`), "Expected `array`, got `null` - at `$.items`"},
		{"encode", "msgpack", pack(m{"items": m{}}), "Expected `array`, got `object` - at `$.items`"},
		{"encode", "msgpack", pack(m{"items": "x"}), "Expected `array`, got `str` - at `$.items`"},
		{"encode", "msgpack", one("s"), "Expected `object`, got `str` - at `$.items[0]`"},
		{"encode", "msgpack", one(nil), "Expected `object`, got `None` - at `$.items[0]`"},
		{"encode", "msgpack", one(m{"text": 1}), "Expected `str | null`, got `int` - at `$.items[0].text`"},
		{"encode", "msgpack", one(m{"text": 1.5}),
			"Expected `str | null`, got `float` - at `$.items[0].text`"},
		{"encode", "msgpack", one(m{"text": true}),
			"Expected `str | null`, got `bool` - at `$.items[0].text`"},
		{"encode", "msgpack", one(m{"text": []byte("x")}),
			"Expected `str | null`, got `bytes` - at `$.items[0].text`"},
		{"encode", "msgpack", one(m{"text": l{}}),
			"Expected `str | null`, got `array` - at `$.items[0].text`"},
		{"encode", "msgpack", one(m{"text": m{}}),
			"Expected `str | null`, got `object` - at `$.items[0].text`"},
		{"encode", "msgpack", []byte("\x81\xa5items\x91\x81\xa4text\xd4\x05\x00"),
			"Expected `str | null`, got `ext` - at `$.items[0].text`"},
		{"encode", "msgpack", pack(m{"items": l{m{}, m{"id": 7}}}),
			"Expected `str | null`, got `int` - at `$.items[1].id`"},
		{"encode", "msgpack", one(m{"audio": []byte("x")}),
			"Expected `object | null`, got `bytes` - at `$.items[0].audio`"},
		{"encode", "msgpack", one(m{"document": []byte("x")}),
			"Expected `object | null`, got `bytes` - at `$.items[0].document`"},
		{"encode", "msgpack", one(m{"metadata": "x"}),
			"Expected `object | null`, got `str` - at `$.items[0].metadata`"},
		{"encode", "msgpack", []byte("\x81\xa5items\x91\x81\xa8metadata\x81\x01\x02"),
			"Expected `str`, got `int` - at `key` in `$.items[0].metadata`"},
		{"encode", "msgpack", []byte("\x81\xc4\x05items\x90"),
			"Expected `str`, got `bytes` - at `key` in `$`"},
		{"encode", "msgpack", []byte("\x81\x05\x90"), "Expected `str`, got `int` - at `key` in `$`"},
		{"encode", "msgpack", params(l{}), "Expected `object | null`, got `array` - at `$.params`"},
		{"encode", "msgpack", params(m{"output_types": "dense"}),
			"Expected `array | null`, got `str` - at `$.params.output_types`"},
		{"encode", "msgpack", params(m{"output_types": l{1}}),
			"Expected `str`, got `int` - at `$.params.output_types[0]`"},
		{"encode", "msgpack", params(m{"output_dtype": 1}),
			"Expected `str | null`, got `int` - at `$.params.output_dtype`"},
		{"encode", "msgpack", params(m{"options": l{}}),
			"Expected `object | null`, got `array` - at `$.params.options`"},
		{"extract", "msgpack", params(m{"labels": "person"}),
			"Expected `array | null`, got `str` - at `$.params.labels`"},
		{"extract", "msgpack", params(m{"labels": l{"a", 1}}),
			"Expected `str`, got `int` - at `$.params.labels[1]`"},
		{"extract", "msgpack", params(m{"output_schema": l{}}),
			"Expected `object | null`, got `array` - at `$.params.output_schema`"},
		{"encode", "msgpack", []byte("\x81\xa5items\x91\x81\xa4text\xa1\xff"),
			"Failed to parse request body: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"},
		{"encode", "msgpack", []byte(noMetadata + deep(2000) + "\xc0"),
			"Failed to parse request body: maximum recursion depth exceeded while deserializing an object"},
		{"encode", "msgpack", []byte(noMetadata + deep(1_000_000)),
			"Failed to parse request body: maximum recursion depth exceeded while deserializing an object"},
		{"encode", "msgpack", []byte("\x81\xa1x" + deep(1_000_000)),
			"Failed to parse request body: maximum recursion depth exceeded while deserializing an object"},
		{"encode", "json", []byte(`{"items":[{"metadata":{"a":` + strings.Repeat("[", 1_000_000)),
			"Failed to parse request body: maximum recursion depth exceeded while deserializing an object"},
		{"encode", "json", []byte(`{"x":` + strings.Repeat(`{"a":`, 2000)),
			"Failed to parse request body: maximum recursion depth exceeded while deserializing an object"},
		{"encode", "msgpack", []byte(noMetadata + deep(900) + "\xc0"), ""},
		{"encode", "json", []byte(`{"items":[{"text":NaN}]}`),
			"JSON is malformed: invalid character (byte 18)"},
		{"encode", "json", []byte(`{"items":[{"x":Infinity}]}`),
			"JSON is malformed: invalid character (byte 15)"},
		{"encode", "json", []byte(`{"items":[{},]}`), "JSON is malformed: trailing comma in array (byte 13)"},
		{"encode", "json", []byte("\ufeff{}"), "JSON is malformed: invalid character (byte 0)"},
		{"encode", "json", []byte(`{"items":[{"text":1e400}]}`),
			"Number out of range - at `$.items[0].text`"},
		{"encode", "json", []byte(`{"items":[{"text":"\ud800 lone......"}]}`),
			"JSON is malformed: unexpected end of escaped utf-16 surrogate pair (byte 25)"},
		{"encode", "json", []byte(`{"items":[{"text":"\udc00"}]}`),
			"JSON is malformed: invalid utf-16 surrogate pair (byte 25)"},
		// Accepted.
		{"encode", "msgpack", one(m{}), ""},
		{"encode", "msgpack", one(m{
			"text":     nil,
			"id":       nil,
			"images":   nil,
			"audio":    nil,
			"video":    nil,
			"document": nil,
			"metadata": nil,
		}), ""},
		{"encode", "msgpack", params(nil), ""},
		{"encode", "msgpack", one(m{"images": l{}}), ""},
		{"encode", "msgpack", one(m{"images": l{[]byte("raw")}}), ""},
		{"encode", "msgpack", one(m{"text": "a\x00b", "nobody": m{"knows": l{1}}}), ""},
		{"encode", "msgpack", params(m{"output_types": l{}, "is_query": true}), ""},
		{"extract", "msgpack", params(m{"threshold": 0.5}), ""},
		{"encode", "json", []byte("{\"items\":[{}]} \r\n\t"), ""},
		{"encode", "json", []byte(`{"items":[],"items":[{"text":"1","text":"\ud83d\ude00"}]}`), ""},
		{"encode", "msgpack", []byte("\x81\xa5items\x91\x81\xa8metadata\x81\xa1a\xc7\x02\x4eab"), ""},
		{"encode", "msgpack", []byte("\x81\xa5items\x91\x81\xabmultivector\x81\xc4\x02nd\xc3"), ""},
		// Ours.
		{"extract", "msgpack", params(m{"threshold": math.NaN()}),
			"Expected a finite number - at `$.params.threshold`"},
		{"encode", "json", []byte(`{"items":[{"images":[{"data":"Zg="}]}]}`),
			"Invalid base64 encoded string - at `$.items[0].images[0].data`"},
		{"encode", "json", []byte(`{"items":[{"images":[{"data":"Zm9v\n==="}]}]}`),
			"Invalid base64 encoded string - at `$.items[0].images[0].data`"},
		{"encode", "msgpack", one(m{"audio": m{"data": []byte{}, "sample_rate": -1}}),
			"Expected a sample rate in hertz, 0 or more - at `$.items[0].audio.sample_rate`"},
		{"encode", "msgpack", params(m{"options": m{"k": slices.Repeat(l{nil}, 10_000)}}),
			"Field 'options' must contain at most 10000 values"},
	} {
		if got := decodeAs(c.request, c.format, c.body); got != c.want {
			t.Errorf("%s %s %.80q\n got %q\nwant %q", c.request, c.format, c.body, got, c.want)
		}
	}
}

func TestErrorNamesTheField(t *testing.T) {
	for body, want := range map[string]string{
		`{"items":[{"text":1}]}`: "items[0].text", `{"items":[]}`: "items", `{`: "",
		`{"items":[{}],"zz":[nul]}`: "",
	} {
		_, err := DecodeEncode(js, []byte(body), Limits{})
		if e := errs.As(err); e == nil || e.Param != want {
			t.Errorf("%s: %+v, want param %q", body, e, want)
		}
	}
}

// TestClientBodies decodes bodies recorded from the official clients.
func TestClientBodies(t *testing.T) {
	enc := func(h string) *EncodeRequest {
		t.Helper()
		r, err := DecodeEncode(mp, unhex(t, h), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	yes, i := true, "I"
	full := []Item{{ID: "a", HasID: true, Text: "Hi", HasText: true}, {Text: "é😀", HasText: true}}
	for _, c := range []struct {
		name, hex string
		want      *EncodeRequest
	}{
		{"py", "81a56974656d739181a474657874a24869",
			&EncodeRequest{Items: []Item{{Text: "Hi", HasText: true}}}},
		{"py all params",
			"82a56974656d739282a26964a161a474657874a2486981a474657874a6c3a9f09f9880a6706172616d7384ac6f75747075745f747970657392a564656e7365a6737061727365ab696e737472756374696f6ea149ac6f75747075745f6474797065a4696e7438a76f7074696f6e7383a96e6f726d616c697a65c3a770726f66696c65a6737061727365a869735f7175657279c3",
			&EncodeRequest{
				Items:       full,
				OutputTypes: []string{"dense", "sparse"},
				OutputDType: "int8",
				Instruction: &i,
				Options:     Options{"normalize": true, "profile": "sparse", "is_query": true},
			}},
		{"py multivector",
			"81a56974656d739181ab6d756c7469766563746f7285c4026e64c3c40474797065a33c6634c4046b696e64c400c4057368617065920102c40464617461c4080000803f0000803f",
			&EncodeRequest{Items: []Item{{}}}},
		{"ts undefined id, isQuery",
			"82a56974656d739282a26964a161a474657874a2486982a474657874a6c3a9f09f9880a26964c0a6706172616d7384ac6f75747075745f747970657391a564656e7365ab696e737472756374696f6ea149a869735f7175657279c3ac6f75747075745f6474797065a4696e7438",
			&EncodeRequest{
				Items:       full,
				OutputTypes: []string{"dense"},
				OutputDType: "int8",
				Instruction: &i,
				IsQuery:     &yes,
			}},
		{"ts images", "81a56974656d739181a6696d6167657391c403ffd8ff", &EncodeRequest{
			Items: []Item{{Extra: &ItemExtra{Images: []Media{{Data: []byte("\xff\xd8\xff")}}}}},
		}},
		{"ts ext 78", "81a56974656d739181ab6d756c7469766563746f7291c70e4e3c66347c327c0000803f0000803f",
			&EncodeRequest{Items: []Item{{}}}},
	} {
		if got := enc(c.hex); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
	meta := enc(
		"81a56974656d739182a474657874a178a86d6574616461746182a16183c4026e64c2c40474797065a33c6634c40464617461c4040000c03fa16282c407636f6d706c6578c3c40464617461a628312b326a29")
	got, err := meta.Items[0].Extra.Metadata.Value("metadata", 100)
	if want := map[string]any{
		"a": map[string]any{"nd": false, "type": "<f4", "data": []byte{0, 0, 0xc0, 0x3f}},
		"b": map[string]any{"complex": true, "data": "(1+2j)"},
	}; err != nil || !reflect.DeepEqual(got, any(want)) {
		t.Errorf("metadata: %v, %v", got, err)
	}
	if _, err := meta.Items[0].Extra.Metadata.Value("metadata", 3); err == nil {
		t.Error("Value does not stop at its limit")
	}

	s, err := DecodeScore(mp, unhex(t,
		"84a5717565727982a474657874a171a26964a27131a56974656d739281a474657874a2643182a26964a178a474657874a26432ab696e737472756374696f6ea149a76f7074696f6e7382a96e6f726d616c697a65c3a16b01"),
		Limits{})
	want := &ScoreRequest{
		Query:       Item{ID: "q1", HasID: true, Text: "q", HasText: true},
		Items:       []Item{{Text: "d1", HasText: true}, {ID: "x", HasID: true, Text: "d2", HasText: true}},
		Instruction: &i,
		Options:     Options{"normalize": true, "k": int64(1)},
	}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("score: %+v, %v", s, err)
	}
	if ItemID(&s.Items[0], 0) != "item-0" || ItemID(&s.Items[1], 1) != "x" {
		t.Error("item ids")
	}

	x, err := DecodeExtract(mp, unhex(t,
		"82a56974656d739181a474657874a174a6706172616d7384a66c6162656c7391a6706572736f6ead6f75747075745f736368656d6181a474797065a66f626a656374ab696e737472756374696f6ea149a76f7074696f6e7382a96e6f726d616c697a65c3a97468726573686f6c64cb3fd3333333333333"),
		Limits{})
	if err != nil || !slices.Equal(x.Labels, []string{"person"}) || x.Options["threshold"] != 0.3 ||
		string(x.OutputSchema.Data) != "\x81\xa4type\xa6object" {
		t.Errorf("extract: %+v, %v", x, err)
	}
	x, err = DecodeExtract(mp, unhex(t,
		"82a56974656d739181a474657874a174a6706172616d7382a66c6162656c7391a6706572736f6ea97468726573686f6c64cb3fe0000000000000"),
		Limits{})
	if err != nil || x.Options["threshold"] != 0.5 {
		t.Errorf("ts threshold: %+v, %v", x, err)
	}
	x, err = DecodeExtract(mp,
		unhex(t, "81a56974656d739181a8646f63756d656e7482a464617461c408255044462d312e34a6666f726d6174c0"),
		Limits{})
	if err != nil || string(x.Items[0].Extra.Document.Data) != "%PDF-1.4" {
		t.Errorf("document: %+v, %v", x, err)
	}
}

func TestJSONMedia(t *testing.T) {
	r, err := DecodeEncode(js, []byte(
		`{"items":[{"images":[{"data":"/9j/","format":"jpeg"},"Zm9v"],"audio":{"data":"Zg==","sample_rate":16000},"text":"\u00e9\n\ud83d\ude00"}]}`),
		Limits{})
	if err != nil {
		t.Fatal(err)
	}
	it := r.Items[0]
	if it.Text != "é\n😀" || string(it.Extra.Images[0].Data) != "\xff\xd8\xff" ||
		it.Extra.Images[0].Format != "jpeg" || string(it.Extra.Images[1].Data) != "foo" ||
		string(it.Extra.Audio.Data) != "f" || it.Extra.Audio.SampleRate != 16000 {
		t.Errorf("%+v %+v", it, it.Extra)
	}
	if e := errs.As(NoMediaData("image", 2)); e.Message !=
		"image input must be a mapping with a 'data' field" || e.Param != "items[2]" {
		t.Error(e)
	}
}

func TestBodyMayBeReused(t *testing.T) {
	for _, ct := range []string{mp, js} {
		body := []byte(`{"items":[{"id":"a","text":"b\u00e9","metadata":{"k":"\n"}}]}`)
		if ct == mp {
			body = pack(map[string]any{
				"items": []any{
					map[string]any{"id": "a", "text": "bé", "metadata": map[string]any{"k": "\n"}},
				},
			})
		}
		before := string(body)
		r, err := DecodeEncode(ct, body, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if string(body) != before {
			t.Error("the caller's body was changed")
		}
		for i := range body {
			body[i] = 'X'
		}
		m, err := r.Items[0].Extra.Metadata.Value("metadata", 10)
		if r.Items[0].ID != "a" || r.Items[0].Text != "bé" || err != nil || m.(map[string]any)["k"] != "\n" {
			t.Errorf("%s: the request changed with the body: %+v, %v", ct, r.Items[0], m)
		}
	}
}

func TestLimits(t *testing.T) {
	long := strings.Repeat("é", 50) // 100 bytes
	items := func(n int) []any { return slices.Repeat([]any{map[string]any{}}, n) }
	type m = map[string]any
	for _, c := range []struct {
		name    string
		lim     Limits
		request string
		body    any
		want    string
	}{
		{"text at the limit", Limits{MaxItemTextBytes: 100}, "encode",
			m{"items": []any{m{"text": long}}}, ""},
		{"text over", Limits{MaxItemTextBytes: 99}, "encode", m{"items": []any{m{}, m{"text": long}}},
			"Field 'items[1]' must hold at most 99 bytes of UTF-8 text"},
		{"text and metadata", Limits{MaxItemTextBytes: 104}, "encode",
			m{"items": []any{m{"text": long, "metadata": m{"k": 5}}}}, ""},
		{"text and metadata over", Limits{MaxItemTextBytes: 103}, "encode",
			m{"items": []any{m{"text": long, "metadata": m{"k": 5}}}},
			"Field 'items[0]' must hold at most 103 bytes of UTF-8 text and metadata"},
		{"empty metadata", Limits{MaxItemTextBytes: 100}, "encode",
			m{"items": []any{m{"text": long, "metadata": m{}}}}, ""},
		{"no text limit", Limits{MaxItemTextBytes: -1}, "encode",
			m{"items": []any{m{"text": strings.Repeat("x", 3<<20)}}}, ""},
		{"default text limit", Limits{}, "encode", m{"items": []any{m{"text": strings.Repeat("x", 2<<20+1)}}},
			"Field 'items[0]' must hold at most 2097152 bytes of UTF-8 text"},
		{"query", Limits{MaxItemTextBytes: 9}, "score", m{"query": m{"text": long}, "items": items(1)},
			"Field 'query' must hold at most 9 bytes of UTF-8 text"},
		{"empty before long", Limits{MaxItemTextBytes: 9}, "score",
			m{"query": m{"text": long}, "items": []any{}}, "Field 'items' must not be empty"},
		{"no count limit", Limits{}, "score", m{"query": m{}, "items": items(5000)}, ""},
		{"candidates", Limits{MaxScoreItems: 1000}, "score", m{"query": m{}, "items": items(1001)},
			"Field 'items' must contain at most 1000 candidates"},
		{"candidates at the limit", Limits{MaxScoreItems: 1000}, "score",
			m{"query": m{}, "items": items(1000)}, ""},
		{"items", Limits{MaxItems: 2}, "encode", m{"items": items(3)},
			"Field 'items' must contain at most 2 items"},
		{"labels", Limits{MaxLabels: 1}, "extract",
			m{"items": items(1), "params": m{"labels": []string{"a", "b"}}},
			"Field 'labels' must contain at most 1 labels"},
		{"schema values", Limits{}, "extract",
			m{"items": items(1), "params": m{"output_schema": m{"a": items(100_000)}}},
			"Field 'output_schema' must contain at most 100000 values"},
		{"all values", Limits{}, "encode", m{"items": items(1<<20 + 1)},
			"The request holds more than 1048576 items, media, labels and lists; split it into smaller requests"},
	} {
		for _, f := range []Format{Msgpack, JSON} {
			body := appendFree(nil, f.writer(nil), c.body)
			var err error
			switch c.request {
			case "encode":
				_, err = DecodeEncode(f.ContentType(), body, c.lim)
			case "score":
				_, err = DecodeScore(f.ContentType(), body, c.lim)
			case "extract":
				_, err = DecodeExtract(f.ContentType(), body, c.lim)
			}
			got := ""
			if err != nil {
				got = errs.As(err).Message
			}
			if got != c.want {
				t.Errorf("%s, %v:\n got %q\nwant %q", c.name, f, got, c.want)
			}
		}
	}
	nest := `{"a":1}`
	for range 127 {
		nest = `{"a":` + nest + `}`
	}
	schema := func(s string) error {
		_, err := DecodeExtract(js, []byte(`{"items":[{}],"params":{"output_schema":`+s+`}}`), Limits{})
		return err
	}
	if err := schema(nest); err != nil {
		t.Error(err)
	}
	if err := schema(`{"a":` + nest + `}`); err == nil ||
		errs.As(err).Message != "Field 'output_schema' must nest objects and arrays at most 128 levels deep" {
		t.Error(err)
	}
}

func TestBodyLimit(t *testing.T) {
	body := pack(map[string]any{"items": []any{map[string]any{"text": "x"}}})
	for _, n := range []int{len(body), -1} {
		if _, err := DecodeEncode(mp, body, Limits{MaxBodyBytes: n}); err != nil {
			t.Errorf("limit %d: %v", n, err)
		}
	}
	_, err := DecodeEncode(mp, body, Limits{MaxBodyBytes: len(body) - 1})
	if e, ok := errors.AsType[*errs.Error](err); !ok || e.Status != 413 || e.Code != errs.InputTooLong ||
		e.Message != "request body exceeds the limit of 15 bytes" {
		t.Errorf("%v", err)
	}
	if (Limits{}).BodyLimit() != 34<<20 {
		t.Error("default body limit")
	}
}

func TestContentAlias(t *testing.T) {
	for body, want := range map[string][2]Item{
		`{"items":[{"content":"c"}]}`:              {{}, {Text: "c", HasText: true}},
		`{"items":[{"text":"t","content":"c"}]}`:   {{Text: "t", HasText: true}, {Text: "t", HasText: true}},
		`{"items":[{"content":null,"text":null}]}`: {{}, {}},
		`{"items":[{"content":"c","text":"","id":"i"}]}`: {{HasText: true, ID: "i", HasID: true},
			{HasText: true, ID: "i", HasID: true}},
	} {
		for i, lim := range []Limits{{}, {AcceptContent: true}} {
			r, err := DecodeEncode(js, []byte(body), lim)
			if err != nil || r.Items[0] != want[i] {
				t.Errorf("%s: %+v, %v; want %+v", body, r, err, want[i])
			}
		}
	}
}

func TestNegotiation(t *testing.T) {
	for accept, want := range map[string]Format{
		"": Msgpack, "*/*": Msgpack, "text/html": Msgpack, "application/json": JSON,
		"Application/JSON; q=0.9": JSON, "application/msgpack": Msgpack, "application/x-msgpack": Msgpack,
		"application/json, application/msgpack": Msgpack, "application/json, */*": JSON,
	} {
		if got := ResponseFormat(accept); got != want {
			t.Errorf("Accept %q: %v, want %v", accept, got, want)
		}
	}
	for ct, want := range map[string]bool{
		"":                           false,
		"application/json":           false,
		"application/msgpack":        true,
		"Application/X-MsgPack; v=1": true,
		"text/plain":                 false,
	} {
		if got := IsMsgpack(ct); got != want {
			t.Errorf("Content-Type %q: %v", ct, got)
		}
	}
}

// TestControlCharacters checks that no control character is accepted in a JSON string, at any
// offset in the scanner's words.
func TestControlCharacters(t *testing.T) {
	for c := range 0x21 {
		for pad := range 9 {
			body := `{"items":[{"text":"` + strings.Repeat("x", pad) + string(rune(c)) + `"}]}`
			want := fmt.Sprintf("JSON is malformed: invalid character (byte %d)", 19+pad)
			if c == 0x20 {
				want = ""
			}
			if got := decodeAs("encode", "json", []byte(body)); got != want {
				t.Errorf("%q: %q, want %q", body, got, want)
			}
		}
	}
}

// TestFreeFormSize checks that free-form data counts with its size in minimal msgpack, in either
// format.
func TestFreeFormSize(t *testing.T) {
	ints := []any{}
	for bits := range 63 {
		for _, x := range []int64{1 << bits, 1<<bits - 1, -1 << bits, -1<<bits - 1} {
			ints = append(ints, x)
		}
	}
	for _, x := range []any{
		ints, "", "é\n", strings.Repeat("s", 31), strings.Repeat("s", 32), strings.Repeat("s", 255),
		strings.Repeat("s", 256), strings.Repeat("s", 1<<16),
		slices.Repeat([]any{true}, 15), slices.Repeat([]any{nil}, 16), slices.Repeat([]any{2.5}, 1<<16),
		map[string]any{"a": map[string]any{}, strings.Repeat("k", 40): false},
	} {
		m := map[string]any{"v": x}
		want := len(pack(m))
		for _, f := range []Format{Msgpack, JSON} {
			d, err := open(f, appendFree(nil, f.writer(nil), m), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			_, w, err := d.free()
			if err != nil || w.size != want {
				t.Errorf("%v %.40v: %d, want %d (%v)", f, x, w.size, want, err)
			}
		}
	}
}

// TestRepeatedKeysReplace checks that the last of repeated keys replaces the earlier ones
// completely.
func TestRepeatedKeysReplace(t *testing.T) {
	r, err := DecodeEncode(js, []byte(`{"items":[{"text":"a","text":null,"metadata":{"k":1},"metadata":null}],
		"params":{"output_dtype":"int8","output_types":["sparse"],"is_query":true,"instruction":"i","options":{"k":1}},"params":{"options":{"z":2}}}`),
		Limits{})
	want := &EncodeRequest{Items: []Item{{Extra: &ItemExtra{}}}, Options: Options{"z": int64(2)}}
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("encode: %+v, %v", r, err)
	}
	s, err := DecodeScore(js,
		[]byte(`{"query":{"id":"a","text":"b"},"query":{"text":"c"},"items":[{}]}`), Limits{})
	if err != nil || s.Query != (Item{Text: "c", HasText: true}) {
		t.Errorf("score: %+v, %v", s, err)
	}
	x, err := DecodeExtract(js,
		[]byte(`{"items":[{}],"params":{"labels":["a"],"threshold":1,"output_schema":{}},"params":null}`),
		Limits{})
	if err != nil || !reflect.DeepEqual(x, &ExtractRequest{Items: []Item{{}}}) {
		t.Errorf("extract: %+v, %v", x, err)
	}
}
