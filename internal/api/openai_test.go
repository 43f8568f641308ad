package api

import (
	"reflect"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
)

func TestDecodeEmbeddings(t *testing.T) {
	for body, want := range map[string]EmbeddingsRequest{
		`{"model":"m","input":"a"}`: {Model: "m", Texts: []string{"a"}},
		`{"model":"m","input":["a",""],"encoding_format":"base64","dimensions":64,"user":"u","x":[1]}`: {
			Model: "m", Texts: []string{"a", ""}, Base64: true, Dimensions: 64, User: "u",
		},
		`{"model":"m","input":[1,2,3],"encoding_format":"float"}`: {Model: "m", Tokens: [][]int32{{1, 2, 3}}},
		`{"model":"m","input":[[1],[2,3]],"encoding_format":null,"dimensions":null,"user":null}`: {Model: "m",
			Tokens: [][]int32{{1}, {2, 3}}},
		`{"input":"x","input":[0],"model":"n"}`: {Model: "n", Tokens: [][]int32{{0}}},
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
		`{"input":"a"}`:              {"model", "Object missing required field `model`"},
		`{"model":"m"}`:              {"input", "Object missing required field `input`"},
		`{"model":1,"input":"a"}`:    {"model", "Expected `str`, got `int` - at `$.model`"},
		`{"model":"m","input":[]}`:   {"input", "Input cannot be empty"},
		`{"model":"m","input":null}`: {"input", "Expected `str | array`, got `null` - at `$.input`"},
		`{"model":"m","input":[null]}`: {"input",
			"Expected `str | int | array`, got `null` - at `$.input[0]`"},
		`{"model":"m","input":["a",1]}`: {"input", "Expected `str`, got `int` - at `$.input[1]`"},
		`{"model":"m","input":[1,"a"]}`: {"input", "Expected `int`, got `str` - at `$.input[1]`"},
		`{"model":"m","input":[1.5]}`: {"input",
			"Expected `str | int | array`, got `float` - at `$.input[0]`"},
		`{"model":"m","input":[[1],2]}`:   {"input", "Expected `array`, got `int` - at `$.input[1]`"},
		`{"model":"m","input":[[1,"a"]]}`: {"input", "Expected `int`, got `str` - at `$.input[0][1]`"},
		`{"model":"m","input":[[]]}`: {"input",
			"A list of token ids must not be empty - at `$.input[0]`"},
		`{"model":"m","input":[-1]}`: {"input",
			"Expected a token id between 0 and 2147483647 - at `$.input[0]`"},
		`{"model":"m","input":[4294967296]}`: {"input",
			"Expected a token id between 0 and 2147483647 - at `$.input[0]`"},
		`{"model":"m","input":"a","encoding_format":"hex"}`: {"encoding_format",
			"Field 'encoding_format' must be 'float' or 'base64', got 'hex'"},
		`{"model":"m","input":"a","encoding_format":1}`: {"encoding_format",
			"Expected `str | null`, got `int` - at `$.encoding_format`"},
		`{"model":"m","input":"a","dimensions":0}`: {"dimensions",
			"Field 'dimensions' must be an integer of at least 1"},
		`{"model":"m","input":"a","dimensions":"64"}`: {"dimensions",
			"Expected `int | null`, got `str` - at `$.dimensions`"},
		`{"model":"m","input":["abcd","abcde"]}`: {"input",
			"Field 'input[1]' must hold at most 4 bytes of UTF-8 text"},
		`{"model":"m","input":["a","a","a"]}`: {"input", "Field 'input' must contain at most 2 inputs"},
		`{"model":"m","input":"a"}}`:          {"", "JSON is malformed: trailing characters (byte 26)"},
		`[]`:                                  {"", "Expected `object`, got `array`"},
		``:                                    {"", "Input data was truncated"},
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
