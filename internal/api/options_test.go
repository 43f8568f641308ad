package api

import (
	"reflect"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
)

func TestOptionErrors(t *testing.T) {
	for options, want := range map[string]string{
		`{"normalize":"yes"}`:                  "Expected `bool | null`, got `str` - at `$.params.options.normalize`",
		`{"is_query":[]}`:                      "Expected `bool | null`, got `array` - at `$.params.options.is_query`",
		`{"instruction":5}`:                    "Expected `str | null`, got `int` - at `$.params.options.instruction`",
		`{"lora_id":{}}`:                       "Expected `str | null`, got `object` - at `$.params.options.lora_id`",
		`{"pooling":1.5}`:                      "Expected `str | null`, got `float` - at `$.params.options.pooling`",
		`{"query_template":true}`:              "Expected `str | null`, got `bool` - at `$.params.options.query_template`",
		`{"doc_template":[]}`:                  "Expected `str | null`, got `array` - at `$.params.options.doc_template`",
		`{"output_types":"dense"}`:             "Expected `array | null`, got `str` - at `$.params.options.output_types`",
		`{"output_types":["dense",1]}`:         "Expected `str`, got `int` - at `$.params.options.output_types[1]`",
		`{"output_dtype":8}`:                   "Expected `str | null`, got `int` - at `$.params.options.output_dtype`",
		`{"max_seq_length":"512"}`:             "Expected `int | null`, got `str` - at `$.params.options.max_seq_length`",
		`{"max_seq_length":0}`:                 "Expected `int` >= 1 - at `$.params.options.max_seq_length`",
		`{"dimensions":-1}`:                    "Expected `int` >= 1 - at `$.params.options.dimensions`",
		`{"dimensions":2.0}`:                   "Expected `int | null`, got `float` - at `$.params.options.dimensions`",
		`{"profile":1}`:                        "'options.profile' must be a non-empty string or null",
		`{"profile":" "}`:                      "'options.profile' must be a non-empty string or null",
		`{"overflow_policy":"x"}`:              "Invalid overflow_policy: 'x'. Must be one of ['default', 'error', 'truncate_text'].",
		`{"overflow_policy":7}`:                "Invalid overflow_policy: `int`. Must be one of ['default', 'error', 'truncate_text'].",
		`{"zzz":1,"pooling":1,"dimensions":0}`: "Expected `int` >= 1 - at `$.params.options.dimensions`",
		`{"anything":{"goes":[1]}}`:            "",
		`{"profile":null,"is_query":1,"instruction":null,"lora_id":null,"output_dtype":null,"muvera":{},"smve":null,"normalize":null,"pooling":null,"max_seq_length":null,"dimensions":null,"overflow_policy":null}`: "",
	} {
		if got := decodeAs("encode", "json", []byte(`{"items":[{}],"params":{"options":`+options+`}}`)); got != want {
			t.Errorf("%s:\n got %q\nwant %q", options, got, want)
		}
	}
}

func TestResolve(t *testing.T) {
	s := func(x string) *string { return &x }
	no := false
	for _, c := range []struct {
		name, params string
		profile      map[string]any
		want         Settings
		err          string
	}{
		{"defaults", `null`, nil, Settings{OutputTypes: []string{"dense"}, OutputDType: "float32"}, ""},
		{"params", `{"output_types":["sparse","dense","sparse"],"output_dtype":"int8","instruction":"p","is_query":true}`,
			map[string]any{"instruction": "prof", "output_dtype": "uint8", "is_query": false},
			Settings{OutputTypes: []string{"sparse", "dense"}, OutputDType: "int8", Instruction: s("p"), IsQuery: true}, ""},
		{"options beat params", `{"output_types":["dense"],"is_query":true,"options":{"output_types":["multivector"],"is_query":false}}`, nil,
			Settings{OutputTypes: []string{"multivector"}, OutputDType: "float32", hasOutputTypes: true}, ""},
		{"profile", `{"output_types":["dense"],"options":{"profile":"x","normalize":false}}`,
			map[string]any{"output_types": []string{"sparse"}, "output_dtype": "float16", "instruction": "prof", "normalize": true, "max_seq_length": 256, "custom": 1},
			Settings{Profile: "x", OutputTypes: []string{"sparse"}, OutputDType: "float16", Instruction: s("prof"), Normalize: &no, MaxSeqLength: 256, Extra: Options{"custom": 1}, hasOutputTypes: true}, ""},
		{"null overrides", `{"options":{"instruction":null,"muvera":null}}`, map[string]any{"instruction": "prof", "muvera": map[string]any{}},
			Settings{OutputTypes: []string{"dense"}, OutputDType: "float32"}, ""},
		{"empty instruction wins", `{"instruction":""}`, map[string]any{"instruction": "prof"}, Settings{OutputTypes: []string{"dense"}, OutputDType: "float32", Instruction: s("")}, ""},
		{"empty params list is the default", `{"output_types":[]}`, nil, Settings{OutputTypes: []string{"dense"}, OutputDType: "float32"}, ""},
		{"empty dtype falls through", `{"output_dtype":"","options":{"output_dtype":"binary"}}`, nil, Settings{OutputTypes: []string{"dense"}, OutputDType: "binary"}, ""},
		{"the rest", `{"options":{"lora_id":"l","muvera":{},"smve":{},"pooling":"cls","query_template":"q","doc_template":"d","dimensions":64,"overflow_policy":"error","default_instruction":"di"}}`, nil,
			Settings{OutputTypes: []string{"dense"}, OutputDType: "float32", LoRA: "l", Muvera: true, SMVE: true, Pooling: "cls", QueryTemplate: s("q"), DocTemplate: s("d"), Dimensions: 64, OverflowPolicy: "error", DefaultInstruction: s("di")}, ""},
		{"bad type", `{"output_types":["dense","colour"]}`, nil, Settings{}, "'output_types' entries must be one of ['dense', 'multivector', 'sparse']"},
		{"empty option list", `{"options":{"output_types":[]}}`, nil, Settings{}, "'output_types' must be a non-empty array"},
		{"bad dtype", `{"output_dtype":"bfloat16"}`, nil, Settings{}, "Unsupported output_dtype: bfloat16. Use one of float32, float16, int8, uint8, binary, ubinary"},
		{"bad profile", `null`, map[string]any{"pooling": 3}, Settings{}, "Expected `str | null`, got `int` - at `$.params.options.pooling`"},
	} {
		r, err := DecodeEncode(js, []byte(`{"items":[{}],"params":`+c.params+`}`), Limits{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, err := r.Resolve(c.profile)
		if c.err != "" {
			if err == nil || errs.As(err).Message != c.err || errs.As(err).Status != 400 {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", c.name, err, got, c.want)
		}
	}
}

func TestOptionsHelpers(t *testing.T) {
	base := map[string]any{"a": 1, "b": 2}
	got := Options{"b": 3}.Over(base)
	if !reflect.DeepEqual(got, Options{"a": 1, "b": 3}) || base["b"] != 2 {
		t.Errorf("%v, base %v", got, base)
	}
	if p, err := (Options{"profile": "x"}).Profile(); p != "x" || err != nil {
		t.Error(p, err)
	}
	if p, err := (Options(nil)).Profile(); p != "" || err != nil {
		t.Error(p, err)
	}
	if _, err := (Options{"profile": ""}).Profile(); errs.As(err).Status != 400 {
		t.Error(err)
	}
	if err := CheckOptions(map[string]any{"normalize": "x"}); err == nil || errs.As(err).Param != "options.normalize" {
		t.Error(err)
	}
	if err := CheckOptions(map[string]any{"output_dtype": "f8"}); err == nil {
		t.Error("a dtype that does not exist passes")
	}
}

func TestDecodeEmbeddings(t *testing.T) {
	for body, want := range map[string]EmbeddingsRequest{
		`{"model":"m","input":"a"}`: {Model: "m", Texts: []string{"a"}},
		`{"model":"m","input":["a",""],"encoding_format":"base64","dimensions":64,"user":"u","x":[1]}`: {Model: "m", Texts: []string{"a", ""}, Base64: true, Dimensions: 64, User: "u"},
		`{"model":"m","input":[1,2,3],"encoding_format":"float"}`:                                      {Model: "m", Tokens: [][]int32{{1, 2, 3}}},
		`{"model":"m","input":[[1],[2,3]],"encoding_format":null,"dimensions":null,"user":null}`:       {Model: "m", Tokens: [][]int32{{1}, {2, 3}}},
		`{"input":"x","input":[0],"model":"n"}`:                                                        {Model: "n", Tokens: [][]int32{{0}}},
	} {
		got, err := DecodeEmbeddings(js, []byte(body), Limits{})
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
		if err == nil && got.Inputs() != max(len(want.Texts), len(want.Tokens)) {
			t.Errorf("%s: %d inputs", body, got.Inputs())
		}
	}
	for body, want := range map[string][2]string{
		`{"input":"a"}`:                                     {"model", "Object missing required field `model`"},
		`{"model":"m"}`:                                     {"input", "Object missing required field `input`"},
		`{"model":1,"input":"a"}`:                           {"model", "Expected `str`, got `int` - at `$.model`"},
		`{"model":"m","input":[]}`:                          {"input", "Input cannot be empty"},
		`{"model":"m","input":null}`:                        {"input", "Expected `str | array`, got `null` - at `$.input`"},
		`{"model":"m","input":[null]}`:                      {"input", "Expected `str | int | array`, got `null` - at `$.input[0]`"},
		`{"model":"m","input":["a",1]}`:                     {"input", "Expected `str`, got `int` - at `$.input[1]`"},
		`{"model":"m","input":[1,"a"]}`:                     {"input", "Expected `int`, got `str` - at `$.input[1]`"},
		`{"model":"m","input":[1.5]}`:                       {"input", "Expected `str | int | array`, got `float` - at `$.input[0]`"},
		`{"model":"m","input":[[1],2]}`:                     {"input", "Expected `array`, got `int` - at `$.input[1]`"},
		`{"model":"m","input":[[1,"a"]]}`:                   {"input", "Expected `int`, got `str` - at `$.input[0][1]`"},
		`{"model":"m","input":[[]]}`:                        {"input", "A list of token ids must not be empty - at `$.input[0]`"},
		`{"model":"m","input":[-1]}`:                        {"input", "Expected a token id between 0 and 2147483647 - at `$.input[0]`"},
		`{"model":"m","input":[4294967296]}`:                {"input", "Expected a token id between 0 and 2147483647 - at `$.input[0]`"},
		`{"model":"m","input":"a","encoding_format":"hex"}`: {"encoding_format", "Field 'encoding_format' must be 'float' or 'base64', got 'hex'"},
		`{"model":"m","input":"a","encoding_format":1}`:     {"encoding_format", "Expected `str | null`, got `int` - at `$.encoding_format`"},
		`{"model":"m","input":"a","dimensions":0}`:          {"dimensions", "Field 'dimensions' must be an integer of at least 1"},
		`{"model":"m","input":"a","dimensions":"64"}`:       {"dimensions", "Expected `int | null`, got `str` - at `$.dimensions`"},
		`{"model":"m","input":["abcd","abcde"]}`:            {"input", "Field 'input[1]' must hold at most 4 bytes of UTF-8 text"},
		`{"model":"m","input":["a","a","a"]}`:               {"input", "Field 'input' must contain at most 2 inputs"},
		`{"model":"m","input":"a"}}`:                        {"", "JSON is malformed: trailing characters (byte 26)"},
		`[]`:                                                {"", "Expected `object`, got `array`"},
		``:                                                  {"", "Input data was truncated"},
	} {
		_, err := DecodeEmbeddings(js, []byte(body), Limits{MaxItemTextBytes: 4, MaxItems: 2})
		if e := errs.As(err); e == nil || e.Param != want[0] || e.Message != want[1] || e.Status != 400 {
			t.Errorf("%s:\n got %+v\nwant %q", body, e, want)
		}
	}
	r, err := DecodeEmbeddings(mp, pack(map[string]any{"model": "m", "input": []any{int64(7)}}), Limits{})
	if err != nil || !slices.Equal(r.Tokens[0], []int32{7}) {
		t.Errorf("msgpack: %+v, %v", r, err)
	}
}
