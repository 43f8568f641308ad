package api

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/errs"
)

// wire is the reader's side of AppendItem.
var wire = Limits{AcceptForeign: true}

// An item of a msgpack body is sent on as it came; one of a JSON body as an equal msgpack item.
func TestItemsCross(t *testing.T) {
	for body, form := range map[string]string{
		`{"items":[{"text":"a","id":"x","metadata":{"k":[1,2.5,null,{"é":"\n"}],"n":18446744073709551615}}]}`:            js,
		`{"items":[{"images":[{"data":"Zm9v","format":"png"},{"data":""}],"audio":{"data":"YQ==","sample_rate":8000}}]}`: js,
		`{"items":[{"video":{"format":"f"},"document":{"data":"YQ=="},"images":[]}]}`:                                    js,
		`{"items":[{"text":"","id":""},{},{"text":"\ud83d\ude00"}]}`:                                                     js,
		string(pack(map[string]any{"items": []any{
			map[string]any{"text": "a", "unknown": []any{1}, "metadata": map[string]any{"k": 1}},
			map[string]any{"images": []any{[]byte("raw"), map[string]any{"data": []byte("d")}}},
			map[string]any{},
		}})): mp,
	} {
		r, err := DecodeEncode(form, []byte(body), Limits{KeepItems: true})
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		for i := range r.Items {
			want := &r.Items[i]
			sent := AppendItem([]byte("front"), want)[len("front"):]
			if (form == mp) != (want.Raw != "") || form == mp && string(sent) != want.Raw {
				t.Errorf("%q: kept %q, sent %q", body, want.Raw, sent)
			}
			got, err := ReadItem(sent, i, wire)
			if err != nil {
				t.Fatalf("%q: %v", sent, err)
			}
			plain := *want
			plain.Raw = ""
			a, b := normal(t, []Item{plain}), normal(t, []Item{got})
			if !reflect.DeepEqual(a, b) {
				t.Errorf("%q:\n%+v\n%+v", body, a[0], b[0])
			}
			if again := AppendItem(nil, &got); form == js && !bytes.Equal(again, sent) {
				t.Errorf("%q, then %q", sent, again)
			}
		}
	}
}

// A key that only readers of the wire know does not gain a meaning on its way.
func TestForeignKeysStayWithoutMeaning(t *testing.T) {
	for _, key := range []string{"second", "tokens", "content"} {
		body := pack(map[string]any{"items": []any{map[string]any{"id": "i", key: "x"}, map[string]any{}}})
		r, err := DecodeEncode(mp, body, Limits{KeepItems: true})
		if err != nil || r.Items[0].Raw != "" || r.Items[1].Raw == "" {
			t.Fatalf("%s: %+v, %v", key, r, err)
		}
		all := Limits{AcceptForeign: true, AcceptContent: true}
		it, err := ReadItem(AppendItem(nil, &r.Items[0]), 0, all)
		if err != nil || it != (Item{ID: "i", HasID: true}) {
			t.Errorf("%s: %+v, %v", key, it, err)
		}
	}
}

// Pairs and token ids cross, and are read only where they may come.
func TestForeignItemsCross(t *testing.T) {
	second := "b"
	for _, x := range []ItemExtra{
		{Second: &second}, {Tokens: []int32{}}, {Tokens: []int32{0, 101, 1<<31 - 1}},
	} {
		sent := AppendItem(nil, &Item{Text: "a", HasText: true, Extra: &x})
		got, err := ReadItem(sent, 0, wire)
		if err != nil || got.Text != "a" || !reflect.DeepEqual(*got.Extra, x) {
			t.Errorf("%+v: %+v, %v", x, got, err)
		}
		if got, err := ReadItem(sent, 0, Limits{}); err != nil || got.Extra != nil {
			t.Errorf("a body may have %+v: %+v, %v", x, got, err)
		}
	}
	for _, bad := range []any{[]any{-1}, []any{1 << 31}, []any{"1"}, 7, []any{[]any{}}} {
		_, err := ReadItem(pack(map[string]any{"tokens": bad}), 2, wire)
		if e := errs.As(err); e == nil || e.Code != errs.InvalidInput || !strings.HasPrefix(e.Param,
			"items[2].tokens") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// A bad item is refused with the words of a body that has it in the same place.
func TestReadItemSaysWhatABodySays(t *testing.T) {
	for _, bad := range []any{
		map[string]any{"text": 1}, map[string]any{"text": strings.Repeat("x", 50)}, "text", nil,
		map[string]any{"images": []any{1}}, map[string]any{"audio": map[string]any{"data": "x"}},
		map[string]any{"metadata": strings.Repeat("x", 40)}, msgp.Raw("\x81\xa4text\xa1\xff"),
		map[string]any{"metadata": map[string]any{"k": strings.Repeat("x", 40)}}, msgp.Raw("\x81\x01\x01"),
	} {
		lim := Limits{MaxItemTextBytes: 20}
		var item []byte
		if raw, ok := bad.(msgp.Raw); ok {
			item = raw
		} else {
			item = pack(bad)
		}
		body := append([]byte("\x81\xa5items\x93\x80\x80"), item...)
		_, want := DecodeEncode(mp, body, lim)
		_, got := ReadItem(item, 2, lim)
		if want == nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v:\n%v\n%v", bad, want, got)
		}
		body = append(append([]byte("\x82\xa5query"), item...), "\xa5items\x91\x80"...)
		_, want = DecodeScore(mp, body, lim)
		_, got = ReadItem(item, -1, lim)
		if want == nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v as a query:\n%v\n%v", bad, want, got)
		}
	}
	if _, err := ReadItem([]byte("\x80\x80"), 0, wire); err == nil {
		t.Error("bytes after an item are accepted")
	}
}

// JSON of free form becomes minimal msgpack of the same value, whose size counts alike.
func TestAppendRaw(t *testing.T) {
	deep := strings.Repeat(`[`, 900) + strings.Repeat(`]`, 900)
	for _, s := range []string{
		`{}`, `{"a":[]}`, `{"k":[1,-1,2.5,true,false,null,"\ud83d\ude00\n",{"x":{}}]}`,
		`{"big":18446744073709551615,"wide":123456789012345678901234567890,"e":1e3}`,
		`{"long":[` + strings.Repeat("0,", 70_000) + `0],"b":"` + strings.Repeat("x", 300) + `"}`,
		`{"deep":` + deep + `}`, ` { "a" : 1 , "a" : [ 2 ] } `,
	} {
		d, err := open(JSON, []byte(s), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		raw, w, err := d.free()
		if err != nil {
			t.Fatalf("%.60s: %v", s, err)
		}
		keep := bytes.Clone(raw.Data)
		packed := AppendRaw([]byte("front"), raw)[len("front"):]
		if len(packed) != w.size || !bytes.Equal(raw.Data, keep) {
			t.Errorf("%.60s: %d bytes, counted as %d", s, len(packed), w.size)
		}
		a, errA := raw.Value("v", 1<<20)
		b, errB := Raw{Data: packed}.Value("v", 1<<20)
		if errA != nil || errB != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%.60s: %v, %v; %.99v, %.99v", s, errA, errB, a, b)
		}
		if again := AppendRaw(nil, Raw{Data: packed}); !bytes.Equal(again, packed) {
			t.Errorf("%.60s: msgpack is changed", s)
		}
	}
	if got := AppendRaw(nil, Raw{}); got != nil {
		t.Errorf("an absent value is %q", got)
	}
}

func TestOptionsCross(t *testing.T) {
	for _, o := range []Options{nil, {}, {
		"a": int64(-1), "b": 2.5, "c": "x", "d": []any{nil, true, []byte{1}},
		"e": map[string]any{"f": int64(1 << 40)},
	}, {
		"label_groups": Ordered{Keys: []string{"z", "a"}, Values: map[string]any{"z": []any{"x"}, "a": nil}},
	}} {
		sent := AppendOptions(nil, o)
		got, err := ReadOptions(sent)
		if err != nil || !reflect.DeepEqual(got, o) {
			t.Errorf("%v: %v, %v", o, got, err)
		}
	}
	if o, err := ReadOptions([]byte{0xc0}); o != nil || err != nil {
		t.Errorf("null: %v, %v", o, err)
	}
	for raw, says := range map[string]string{
		"\x91\x01": "Expected `object | null`, got `array` - at `$.params.options`",
		"\x81\xa1k\xdd\x00\x00\x27\x11" + strings.Repeat("\xc0", 10_001): "at most 10000 values",
		"\x81\xa1k" + strings.Repeat("\x91", 1200):                       "recursion", "\x80\x80": "trailing",
		"\xdf\xff\xff\xff\xff": "truncated",
	} {
		if _, err := ReadOptions([]byte(raw)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v, want %q", raw, err, says)
		}
	}
}

// random makes results of all shapes; equal seeds make equal results.
type random struct{ *rand.Rand }

func (r random) has() bool { return r.IntN(2) == 0 }

func (r random) text() string {
	return strings.Repeat([]string{"", "a", "é", "\u2028", "\"<>&", "😀"}[r.IntN(6)], r.IntN(40))
}

func (r random) array(rows, cols int, t NumType) Array {
	data := make([]byte, max(1, rows)*cols*t.Size())
	if rows == 0 {
		data = data[:0]
	}
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return Array{Type: t, Rows: rows, Cols: cols, Data: data}
}

func (r random) encoded() EncodeItem {
	it := EncodeItem{HasID: r.has()}
	if it.HasID {
		it.ID = r.text()
	}
	if t := NumType(r.IntN(4)); r.has() {
		cols := r.IntN(300)
		it.Dense = &Dense{Dims: cols * (1 + 7*r.IntN(2)), Values: r.array(-1, cols, t)}
	}
	if r.has() {
		n := r.IntN(70)
		it.Sparse = &Sparse{Dims: r.IntN(2) * 30_522, Indices: r.array(-1, n, Int32),
			Values: r.array(-1, n, NumType(r.IntN(2)))}
	}
	if t := NumType(r.IntN(4)); r.has() {
		cols := r.IntN(40)
		it.Multivector = &Multivector{TokenDims: cols, Values: r.array(r.IntN(9), cols, t)}
	}
	return it
}

func (r random) number() float64 { return r.NormFloat64() * []float64{0, 1, 1e-7, 1e18}[r.IntN(4)] }

func (r random) box() []int {
	if r.has() {
		return nil
	}
	return []int{r.IntN(10), -r.IntN(10), 0, 1 << 20}[:r.IntN(5)]
}

func list[T any](n int, make func() T) (out []T) {
	for range n {
		out = append(out, make())
	}
	return out
}

func (r random) extracted() ExtractItem {
	it := ExtractItem{
		ID: r.text(),
		Entities: list(r.IntN(4), func() Entity {
			e := Entity{r.text(), r.text(), r.number(), -1, -1, r.box()}
			if r.has() {
				e.Start, e.End = r.IntN(9), r.IntN(1<<20)
			}
			return e
		}),
		Relations: list(r.IntN(3), func() Relation {
			return Relation{r.text(), r.text(), r.text(), r.number()}
		}),
		Classifications: list(r.IntN(20), func() Class { return Class{r.text(), r.number()} }),
		Objects:         list(r.IntN(3), func() Object { return Object{r.text(), r.number(), r.box()} }),
	}
	if r.has() {
		it.Data = map[string]any{
			"a": []any{1, r.text(), nil, 2.5, true}, "b": map[string]any{"c": []byte{1}},
		}
	}
	if r.has() {
		it.Error = errs.NonFiniteItem("m", "items[3]")
	}
	return it
}

func (r random) tokens() []Token {
	return list(r.IntN(40), func() Token {
		t := Token{ID: r.IntN(1 << 20), Text: r.text(), Special: r.has()}
		if r.has() {
			start, stop := r.IntN(9), r.IntN(1<<20)
			t.Start, t.Stop = &start, &stop
		}
		return t
	})
}

// crosses sends x, reads it and sends it again; the bytes must be equal.
func crosses[T any](t *testing.T, x T, write func([]byte, T) []byte, read func([]byte) (T, error)) T {
	t.Helper()
	sent := write([]byte("front"), x)[len("front"):]
	got, err := read(sent)
	if err != nil {
		t.Fatalf("%+v: %v", x, err)
	}
	if again := write(nil, got); !bytes.Equal(again, sent) {
		t.Fatalf("%+v:\n%q\n%q", x, sent, again)
	}
	return got
}

func appendEncodeValue(dst []byte, it EncodeItem) []byte   { return AppendEncodeResult(dst, &it) }
func appendExtractValue(dst []byte, it ExtractItem) []byte { return AppendExtractResult(dst, &it) }

// An answer whose results crossed is written, in either format, as the original.
func TestResultsCross(t *testing.T) {
	for seed := range uint64(300) {
		r := random{rand.New(rand.NewPCG(seed, 1))}
		encoded := EncodeResponse{Model: "m", Items: list(r.IntN(4), r.encoded)}
		extracted := ExtractResponse{Model: "m", Items: list(r.IntN(4), r.extracted)}
		e2, x2 := encoded, extracted
		e2.Items, x2.Items = nil, nil
		for _, it := range encoded.Items {
			e2.Items = append(e2.Items, crosses(t, it, appendEncodeValue, ReadEncodeResult))
		}
		for _, it := range extracted.Items {
			x2.Items = append(x2.Items, crosses(t, it, appendExtractValue, ReadExtractResult))
		}
		for _, f := range []Format{Msgpack, JSON} {
			a, b := AppendEncode(nil, nil, f, &encoded), AppendEncode(nil, nil, f, &e2)
			if !bytes.Equal(a, b) {
				t.Fatalf("encode, %v:\n%q\n%q", f, a, b)
			}
			a, b = AppendExtract(nil, nil, f, &extracted), AppendExtract(nil, nil, f, &x2)
			if !bytes.Equal(a, b) {
				t.Fatalf("extract, %v:\n%q\n%q", f, a, b)
			}
		}
		tokens := r.tokens()
		if got := crosses(t, tokens, AppendTokens, ReadTokens); len(got)+len(tokens) > 0 &&
			!reflect.DeepEqual(got, tokens) {
			t.Fatalf("%+v\n%+v", tokens, got)
		}
		scores := list(r.IntN(30), r.number)
		crosses(t, scores, AppendClassifyResult, ReadClassifyResult)
		crosses(t, r.number(), AppendScoreResult, ReadScoreResult)
		crosses(t, r.text(), AppendText, ReadText)
		crosses(t, list(r.IntN(30), r.Int32), AppendTokenIDs, ReadTokenIDs)
	}
}

// Each error of an item keeps the status of its code.
func TestItemErrorsKeepTheirStatus(t *testing.T) {
	for _, e := range []*errs.Error{errs.NonFiniteItem("m", "items[3]"), errs.Invalid("items[0]", "bad")} {
		got := crosses(t, ExtractItem{ID: "i", Error: e}, appendExtractValue, ReadExtractResult)
		if got.Error.Code != e.Code || got.Error.Message != e.Message || got.Error.Status != e.Status {
			t.Errorf("%+v, want %+v", got.Error, e)
		}
	}
}

// Results that contradict themselves are refused.
func TestBadResults(t *testing.T) {
	vector := func(cols int, data string) string {
		return "\x85\xc4\x02nd\xc3\xc4\x04type\xa3<f4\xc4\x04kind\xc4\x00\xc4\x05shape\x91" +
			string(rune(cols)) + "\xc4\x04data\xc4" + string(rune(len(data))) + data
	}
	dense := func(dims, dtype, values string) string {
		return "\x81\xa5dense\x83\xa4dims" + dims + "\xa5dtype" + dtype + "\xa6values" + values
	}
	if _, err := ReadEncodeResult([]byte(dense("\x01", "\xa7float32", vector(1, "1234")))); err != nil {
		t.Fatal(err)
	}
	for raw, says := range map[string]string{
		dense("\x01", "\xa7float32", vector(2, "1234")):      "2 float32 in 4 bytes",
		dense("\x01", "\xa4int8", vector(1, "1234")):         `dtype is "int8"`,
		dense("\xff", "\xa7float32", vector(1, "1234")):      "-1 is not from 0",
		dense("\x01", "\xa7float32", "\x80"):                 "in 0 bytes",
		dense("\x01", "\xa7float32", vector(1, "1234")[:40]): "truncated",
		"\x80\x80": "trailing", "": "truncated",
		"\x81\xa5dense\xc0": "Expected `object`", "\xdf\xff\xff\xff\xff": "truncated",
		"\x81\xa1x" + strings.Repeat("\x91", 1<<20): "recursion",
	} {
		if _, err := ReadEncodeResult([]byte(raw)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q", raw, err, says)
		}
	}
	for raw, says := range map[string]string{
		"\x81\xa8entities\x91\x81\xa5start\x01": "from 1 to -1", "\x81\xa5error\x80": "without a code",
		"\x81\xa8entities\xdd\xff\xff\xff\xff": "truncated", "\x81\xa4data\x01": "not an object",
		"\x81\xa8entities\x91\x81\xa5score\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00": "not finite",
	} {
		if _, err := ReadExtractResult([]byte(raw)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q", raw, err, says)
		}
	}
	for name, err := range map[string]error{
		"a score of a word":         second(ReadScoreResult([]byte("\xa1x"))),
		"a score that is no number": second(ReadScoreResult([]byte("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"))),
		"many scores":               second(ReadClassifyResult([]byte("\xdd\xff\xff\xff\xff"))),
		"a short token":             second(ReadTokens([]byte("\x91\x91\x01"))),
		"null as a text":            second(ReadText([]byte("\xc0"))),
		"a text that is not UTF-8":  second(ReadText([]byte("\xa1\xff"))),
		"null as token ids":         second(ReadTokenIDs([]byte("\xc0"))),
		"a negative id":             second(ReadTokenIDs([]byte("\x91\xff"))),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// FuzzWire reads any bytes as every part. What is read is sent and read again unchanged, and memory
// stays in proportion to the bytes.
func FuzzWire(f *testing.F) {
	r := random{rand.New(rand.NewPCG(7, 7))}
	for range 20 {
		e, x := r.encoded(), r.extracted()
		f.Add(AppendEncodeResult(nil, &e))
		f.Add(AppendExtractResult(nil, &x))
		f.Add(AppendTokens(nil, r.tokens()))
	}
	f.Add(AppendClassifyResult(nil, []float64{1, 2.5}))
	f.Add(pack(map[string]any{"text": "a", "tokens": []any{1}, "second": "b", "images": []any{[]byte("x")}}))
	f.Add([]byte("\xdf\xff\xff\xff\xff"))
	f.Add([]byte("\xdd\xff\xff\xff\xff"))
	f.Add([]byte("\x81\xa1k" + strings.Repeat("\x91", 1100)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		keep := bytes.Clone(raw)
		again(t, raw, appendEncodeValue, ReadEncodeResult)
		again(t, raw, appendExtractValue, ReadExtractResult)
		again(t, raw, AppendTokens, ReadTokens)
		again(t, raw, AppendClassifyResult, ReadClassifyResult)
		again(t, raw, AppendScoreResult, ReadScoreResult)
		again(t, raw, AppendText, ReadText)
		again(t, raw, AppendTokenIDs, ReadTokenIDs)
		again(t, raw, AppendOptions, ReadOptions)
		again(t, raw, func(dst []byte, it Item) []byte { return AppendItem(dst, &it) },
			func(raw []byte) (Item, error) { return ReadItem(raw, 0, wire) })
		if !bytes.Equal(raw, keep) {
			t.Fatal("the bytes were changed")
		}
		n := testing.AllocsPerRun(1, func() {
			ReadEncodeResult(raw)
			ReadExtractResult(raw)
			ReadTokens(raw)
			ReadItem(raw, 0, wire)
		})
		if n > float64(200+16*len(raw)) {
			t.Fatalf("%v allocations for %d bytes", n, len(raw))
		}
	})
}

// again checks that what is read from raw, if anything, crosses once more and stays the same.
func again[T any](t *testing.T, raw []byte, write func([]byte, T) []byte, read func([]byte) (T, error)) {
	t.Helper()
	x, err := read(raw)
	if err != nil {
		if len(err.Error()) > 1000 {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}
		return
	}
	once := write(nil, x)
	y, err := read(once)
	if err != nil {
		t.Fatalf("%q: %q is refused: %v", raw, once, err)
	}
	if twice := write(nil, y); !bytes.Equal(once, twice) {
		t.Fatalf("%q, then %q", once, twice)
	}
}

// A few bytes that claim much take little memory.
func TestHostileResultsAllocateLittle(t *testing.T) {
	for _, raw := range []string{
		"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\x81\xa8entities\xdd\xff\xff\xff\xff\x80",
		"\x81\xa4data\xdf\x7f\xff\xff\xff\xa1k", "\x81\xa6tokens\xdd\xff\xff\xff\xff",
		"\x81\xa5dense\x81\xa6values\x81\xc4\x04data\xc6\xff\xff\xff\xff",
	} {
		n := allocated(func() {
			ReadEncodeResult([]byte(raw))
			ReadExtractResult([]byte(raw))
			ReadTokens([]byte(raw))
			ReadClassifyResult([]byte(raw))
			ReadTokenIDs([]byte(raw))
			ReadOptions([]byte(raw))
			ReadItem([]byte(raw), 0, wire)
		})
		if n > 256<<10 {
			t.Errorf("%q allocates %d bytes", raw, n)
		}
	}
}

func BenchmarkReadEncodeResult(b *testing.B) {
	it := EncodeItem{Dense: &Dense{Dims: 384, Values: Vector(Float32, make([]byte, 1536))}}
	raw := AppendEncodeResult(nil, &it)
	b.Run(fmt.Sprintf("bytes=%d", len(raw)), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ReadEncodeResult(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Groups of labels keep the client's order on their way from either format over the queue. A name
// that is there twice has its first place and its last value. Nothing else is ordered.
func TestOrderedOption(t *testing.T) {
	body := []byte(`{"items":[{"text":"x"}],"params":{"options":{"a":{"label_groups":{"z":1}},"label_groups":` +
		`{"z":["q"],"a":{"z":1,"b":2},"z":["r"],"m":[{"d":1}]},"b":{"z":1,"a":2}}}}`)
	want := Options{
		"a": map[string]any{"label_groups": map[string]any{"z": int64(1)}},
		"label_groups": Ordered{Keys: []string{"z", "a", "m"}, Values: map[string]any{
			"z": []any{"r"}, "a": map[string]any{"z": int64(1), "b": int64(2)},
			"m": []any{map[string]any{"d": int64(1)}},
		}},
		"b": map[string]any{"z": int64(1), "a": int64(2)},
	}
	packed := AppendRaw(nil, Raw{Format: JSON, Data: body})
	for kind, b := range map[string][]byte{"application/json": body, "application/msgpack": packed} {
		r, err := DecodeExtract(kind, b, Limits{})
		if err != nil || !reflect.DeepEqual(r.Options, want) {
			t.Fatalf("%s: %#v, %v", kind, r, err)
		}
		got, err := ReadOptions(AppendOptions(nil, r.Options))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s over the queue: %#v, %v", kind, got, err)
		}
	}
	lists := []byte(`{"items":[{"text":"x"}],"params":{"options":{"label_groups":[{"z":1,"a":2}]}}}`)
	r, err := DecodeExtract("application/json", lists, Limits{})
	if _, plain := r.Options["label_groups"].([]any)[0].(map[string]any); err != nil || !plain {
		t.Errorf("a list: %#v, %v", r, err)
	}
}
