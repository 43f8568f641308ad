package errs

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// forms lists the wire formats.
var forms = []struct {
	name string
	send func(*Error) []byte
	read func([]byte) (*Error, error)
}{
	{"JSON", func(e *Error) []byte { return e.AppendJSON(nil) }, FromJSON},
	{"msgpack", func(e *Error) []byte { return e.AppendMsgpack(nil) }, FromMsgpack},
}

// texts are messages of errors: empty, plain, every character that JSON escapes, long.
func randomText(r *rand.Rand, limit int) string {
	const alphabet = "aZ09_-. '\"\\/\n\r\t\x00\x1f\u007f<&>é\u2028日😀\ufffd"
	letters := []rune(alphabet)
	var b strings.Builder
	for range r.IntN(2) * r.IntN(1+r.IntN(limit)) {
		if c := letters[r.IntN(len(letters))]; b.Len()+utf8.RuneLen(c) <= limit {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func randomCode(r *rand.Rand) Code {
	if r.IntN(2) == 0 {
		return table[r.IntN(len(table))].Code
	}
	const letters = "azAZ09_-."
	b := make([]byte, 1+r.IntN(maxNameBytes))
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return Code(b)
}

// randomError fills every field except the cause, or leaves it empty. It knows only the fields with
// rules of their own by name, so that a new field is sent or the test fails.
func randomError(t *testing.T, r *rand.Rand) *Error {
	e := &Error{}
	fill(t, r, reflect.ValueOf(e).Elem())
	e.Code, e.Status, e.Cause = randomCode(r), 400+r.IntN(200), io.EOF
	return e
}

func fill(t *testing.T, r *rand.Rand, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Pointer {
			if r.IntN(3) == 0 {
				continue
			}
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		name := v.Type().Field(i).Name
		switch {
		case f.Kind() == reflect.Struct:
			fill(t, r, f)
		case f.Kind() == reflect.String && name == "Message":
			f.SetString(randomText(r, maxMessageBytes))
		case f.Kind() == reflect.String:
			f.SetString(randomText(r, maxNameBytes))
		case f.Type() == reflect.TypeFor[time.Duration]():
			f.SetInt(r.Int64N(2) * r.Int64N(int64(maxRetryAfter)+1))
		case f.Kind() == reflect.Int:
			f.SetInt(r.Int64N(2) * r.Int64N(maxIndex+1))
		case f.Kind() == reflect.Bool:
			f.SetBool(r.IntN(2) == 0)
		case name == "Cause":
		default:
			t.Fatalf("the field %s of type %s has no wire form", name, f.Type())
		}
	}
}

// Every error comes back as it was sent, except for its cause, which is not sent.
func TestErrorsSurviveTheWire(t *testing.T) {
	for seed := range uint64(1000) {
		e := randomError(t, rand.New(rand.NewPCG(seed, 17)))
		for _, f := range forms {
			data := f.send(e)
			got, err := f.read(data)
			if err != nil {
				t.Fatalf("seed %d, %s: %v\n%q", seed, f.name, err, data)
			}
			want := *e
			want.Cause = nil
			if !reflect.DeepEqual(got, &want) {
				t.Fatalf("seed %d, %s:\n got %+v\nwant %+v", seed, f.name, got, &want)
			}
			if again := f.send(got); !bytes.Equal(again, data) {
				t.Fatalf("seed %d, %s: sent again it is\n%q, not\n%q", seed, f.name, again, data)
			}
			if bytes.Contains(data, []byte(io.EOF.Error())) {
				t.Fatalf("seed %d, %s: the cause is sent: %q", seed, f.name, data)
			}
		}
	}
}

// Other releases read this release's errors: their names and types do not change.
func TestWireFormIsFixed(t *testing.T) {
	worker, item := "l4", 3
	full := &Error{
		Code: ModelLoadFailed, Status: 502, Message: "m", Param: "p", RetryAfter: 1500 * time.Millisecond,
		OpenAICode: "o", Item: &item, Load: &LoadFailure{Class: "GATED", Attempts: 2, Permanent: true},
		Profile: &Mismatch{Requested: "h100", Worker: &worker},
	}
	least := &Error{Code: "NEW_CODE", Status: 418, Profile: &Mismatch{}}
	for _, c := range []struct {
		err          *Error
		json, packed string
	}{
		{full,
			`{"code":"MODEL_LOAD_FAILED","status":502,"message":"m","param":"p","retry_after_ns":1500000000,"openai_code":"o","item_index":3,` +
				`"load":{"class":"GATED","attempts":2,"permanent":true},"profile":{"requested":"h100","worker":"l4"}}`,
			""},
		{least, `{"code":"NEW_CODE","status":418,"message":"","profile":{"requested":"","worker":null}}`,
			"84a4636f6465a84e45575f434f4445a6737461747573d101a2a76d657373616765a0a770726f66696c6582a9726571756573746564a0a6776f726b6572c0"},
	} {
		if got := string(c.err.AppendJSON([]byte("x"))); got != "x"+c.json {
			t.Errorf("JSON is %s\nwant %s", got[1:], c.json)
		}
		packed := c.err.AppendMsgpack([]byte("x"))[1:]
		if got := hex.EncodeToString(packed); c.packed != "" && got != c.packed {
			t.Errorf("msgpack is %s\nwant %s", got, c.packed)
		}
		var asJSON bytes.Buffer
		if _, err := msgp.CopyToJSON(&asJSON, bytes.NewReader(packed)); err != nil ||
			asJSON.String() != c.json {
			t.Errorf("msgpack holds %s, %v\nwant %s", asJSON.String(), err, c.json)
		}
	}
}

// A newer release has keys and codes that this one does not know; an older one leaves keys out.
func TestWireFormOfOtherReleases(t *testing.T) {
	const newer = `{"status":503,"future":{"a":[1,{"b":null}]},"code":"NEW_CODE","message":"m","retry_after_ns":2000000000,"load":null}`
	const older = `{"code":"QUEUE_FULL","status":503}`
	for text, want := range map[string]*Error{
		newer: {Code: "NEW_CODE", Status: 503, Message: "m", RetryAfter: 2 * time.Second},
		older: {Code: QueueFull, Status: 503},
	} {
		var packed bytes.Buffer
		var values any
		if err := json.Unmarshal([]byte(text), &values); err != nil {
			t.Fatal(err)
		}
		pack(t, &packed, values)
		for i, data := range [][]byte{[]byte(text), packed.Bytes()} {
			if got, err := forms[i].read(data); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s of %s: %+v, %v", forms[i].name, text, got, err)
			}
		}
	}
	for _, c := range []struct {
		err  Error
		want Info
	}{
		{Error{Code: "NEW_CODE", Status: 503, RetryAfter: 2 * time.Second}, Info{
			Code:       "NEW_CODE",
			Status:     503,
			Transient:  true,
			RetryAfter: 2 * time.Second,
			OpenAIType: typeServer,
			OpenAICode: "NEW_CODE",
		}},
		{Error{Code: "NEW_CODE", Status: 499},
			Info{Code: "NEW_CODE", Status: 499, OpenAIType: typeInvalidRequest, OpenAICode: "NEW_CODE"}},
		{Error{Code: QueueFull, Status: 429}, Lookup(QueueFull)},
	} {
		if got := c.err.Info(); got != c.want || c.err.Transient() != c.want.Transient {
			t.Errorf("%+v is %+v, want %+v", c.err, got, c.want)
		}
	}
}

// pack writes a JSON value as msgpack; whole numbers as integers.
func pack(t *testing.T, b *bytes.Buffer, v any) {
	t.Helper()
	w := msgp.NewWriter(b)
	var put func(v any) any
	put = func(v any) any {
		switch x := v.(type) {
		case map[string]any:
			for k, e := range x {
				x[k] = put(e)
			}
		case float64:
			if x == float64(int64(x)) {
				return int64(x)
			}
		}
		return v
	}
	if err := w.WriteIntf(put(v)); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// Values over a bound are cut, so that the receiver accepts the error.
func TestLongErrorsAreCutForTheWire(t *testing.T) {
	long := strings.Repeat("é", maxMessageBytes)
	e := &Error{
		Code:       InternalError,
		Status:     500,
		Message:    "a" + long,
		Param:      long,
		OpenAICode: long,
		RetryAfter: 1 << 62,
		Load:       &LoadFailure{Class: long, Attempts: 1 << 40},
		Profile:    &Mismatch{Requested: long, Worker: &long},
	}
	for _, f := range forms {
		got, err := f.read(f.send(e))
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		for field, c := range map[string]struct {
			text string
			most int
		}{
			"message": {got.Message, maxMessageBytes}, "param": {got.Param, maxNameBytes},
			"openai_code": {got.OpenAICode, maxNameBytes}, "class": {got.Load.Class, maxNameBytes},
			"requested": {got.Profile.Requested, maxNameBytes}, "worker": {*got.Profile.Worker, maxNameBytes},
		} {
			if len(c.text) > c.most || len(c.text) < c.most-4 || !strings.HasSuffix(c.text, "é…") {
				t.Errorf("%s: %s has %d bytes of %d: %q",
					f.name, field, len(c.text), c.most, c.text[max(0, len(c.text)-9):])
			}
		}
		if got.RetryAfter != maxRetryAfter || got.Load.Attempts != maxIndex {
			t.Errorf("%s: retry after %v, %d attempts", f.name, got.RetryAfter, got.Load.Attempts)
		}
		broken := &Error{Code: InternalError, Status: 500, Message: "a\xffb"}
		if got, err := f.read(f.send(broken)); err != nil || got.Message != "a\ufffdb" {
			t.Errorf("%s: what is not UTF-8 is read as %+v, %v", f.name, got, err)
		}
	}
}

func TestWireFormsThatAreRefused(t *testing.T) {
	ok := wireError{Code: "C", Status: 500}
	index := func(i int) *int { return &i }
	over := strings.Repeat("x", maxNameBytes+1)
	for name, c := range map[string]struct {
		change func(*wireError)
		want   string
	}{
		"no code":             {func(w *wireError) { w.Code = "" }, "field 'code'"},
		"code with a newline": {func(w *wireError) { w.Code = "A\r\nX-Other: 1" }, "field 'code'"},
		"code too long":       {func(w *wireError) { w.Code = over }, "field 'code'"},
		"status of success":   {func(w *wireError) { w.Status = 399 }, "field 'status'"},
		"status too large":    {func(w *wireError) { w.Status = 600 }, "field 'status'"},
		"negative hint":       {func(w *wireError) { w.RetryAfter = -1 }, "field 'retry_after_ns'"},
		"hint too long": {func(w *wireError) { w.RetryAfter = int64(maxRetryAfter) + 1 },
			"field 'retry_after_ns'"},
		"negative item":  {func(w *wireError) { w.Item = index(-1) }, "field 'item_index'"},
		"item too large": {func(w *wireError) { w.Item = index(maxIndex + 1) }, "field 'item_index'"},
		"negative attempts": {func(w *wireError) { w.Load = &wireLoadFailure{Attempts: -1} },
			"field 'load.attempts'"},
		"too many attempts": {func(w *wireError) { w.Load = &wireLoadFailure{Attempts: maxIndex + 1} },
			"field 'load.attempts'"},
		"long message": {func(w *wireError) { w.Message = strings.Repeat("x", maxMessageBytes+1) },
			"field 'message'"},
		"long param":       {func(w *wireError) { w.Param = over }, "field 'param'"},
		"long OpenAI code": {func(w *wireError) { w.OpenAICode = over }, "field 'openai_code'"},
		"long class": {func(w *wireError) { w.Load = &wireLoadFailure{Class: over} },
			"field 'load.class'"},
		"long requested": {func(w *wireError) { w.Profile = &wireMismatch{Requested: over} },
			"field 'profile.requested'"},
		"long worker": {func(w *wireError) { w.Profile = &wireMismatch{Worker: &over} },
			"field 'profile.worker'"},
		"too many bytes": {func(w *wireError) { w.Message = strings.Repeat("x", MaxWireBytes) },
			"at most 65536 are read"},
	} {
		w := ok
		c.change(&w)
		asJSON, err := json.Marshal(&w)
		if err != nil {
			t.Fatal(err)
		}
		packed, err := w.MarshalMsg(nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, data := range [][]byte{asJSON, packed} {
			if got, err := forms[i].read(data); err == nil || got != nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s as %s: %+v, %v; want an error with %q", name, forms[i].name, got, err, c.want)
			}
		}
	}
	valid, err := ok.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	notUTF8 := ok
	notUTF8.Message = "\xff"
	bad, err := notUTF8.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	deep := append([]byte("\x83\xa4code\xa1C\xa6status\xcd\x01\xf4\xa1x"),
		bytes.Repeat([]byte{0x91}, MaxWireBytes-30)...)
	for name, data := range map[string][]byte{
		"cut":       valid[:len(valid)-1],
		"more":      append(bytes.Clone(valid), 0),
		"no UTF-8":  bad,
		"empty":     nil,
		"no map":    {0x93},
		"huge map":  {0xdf, 0xff, 0xff, 0xff, 0xff},
		"huge text": {0x81, 0xdb, 0xff, 0xff, 0xff, 0xff},
		"deep":      deep,
	} {
		if got, err := FromMsgpack(data); err == nil || got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, text := range []string{
		"", "{", "[]", `{"code":1}`, `{"code":"C","status":500} x`, `{"code":"C","status":5e2.5}`,
		`{"code":"C","status":500,"x":` + strings.Repeat("[", MaxWireBytes-40),
	} {
		if got, err := FromJSON([]byte(text)); err == nil || got != nil {
			t.Errorf("%.80q: %+v", text, got)
		}
	}
}

// FuzzWire checks that an error which was read is within the bounds and comes back unchanged from
// both formats.
func FuzzWire(f *testing.F) {
	for seed := range uint64(20) {
		e := randomError(&testing.T{}, rand.New(rand.NewPCG(seed, 3)))
		f.Add(e.AppendJSON(nil))
		f.Add(e.AppendMsgpack(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, form := range forms {
			e, err := form.read(data)
			if err != nil {
				if e != nil {
					t.Error("an error came with the failure")
				}
				continue
			}
			if len(e.Message) > maxMessageBytes || len(e.Code) > maxNameBytes || e.Status < 400 ||
				e.Status > 599 || e.Cause != nil {
				t.Errorf("over a bound: %+v", e)
			}
			for _, again := range forms {
				if got, err := again.read(again.send(e)); err != nil || !reflect.DeepEqual(got, e) {
					t.Errorf("%+v comes back from %s as %+v, %v", e, again.name, got, err)
				}
			}
		}
	})
}
