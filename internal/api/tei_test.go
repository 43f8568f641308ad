package api

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
)

func no() *bool { b := false; return &b }

// The bodies come from TEI's documentation and huggingface_hub's InferenceClient.
func TestDecodeTEI(t *testing.T) {
	for _, c := range []struct {
		body   string
		decode func([]byte) (any, error)
		want   any
	}{
		{`{"inputs":"a"}`, embedOf, &TEIEmbedRequest{Texts: []string{"a"}, Normalize: true}},
		{`{"inputs":["a","b"],"normalize":false,"truncate":false,"truncation_direction":"Left","prompt_name":"query","dimensions":8,"model":"x"}`,
			embedOf, &TEIEmbedRequest{
				TEIOptions: TEIOptions{Truncate: no(), Left: true, PromptName: "query"},
				Texts:      []string{"a", "b"},
				Dimensions: 8,
			}},
		{`{"inputs":[[1,2],[3]],"prompt_name":null,"dimensions":null,"truncation_direction":"right"}`,
			embedOf, &TEIEmbedRequest{Tokens: [][]int32{{1, 2}, {3}}, Normalize: true}},
		{`{"query":"q","texts":["a"],"raw_scores":true,"return_text":true}`, rerankOf,
			&TEIRerankRequest{Query: "q", Texts: []string{"a"}, RawScores: true, ReturnText: true}},
		{`{"inputs":"a"}`, predictOf, &TEIPredictRequest{Inputs: []TEISequence{{Text: "a"}}}},
		{`{"inputs":["a","b"]}`, predictOf,
			&TEIPredictRequest{Inputs: []TEISequence{{Text: "a", Second: "b", Pair: true}}}},
		{`{"inputs":["a"]}`, predictOf, &TEIPredictRequest{Inputs: []TEISequence{{Text: "a"}}}},
		{`{"inputs":[["a"],["b","c"]],"raw_scores":true,"parameters":{}}`, predictOf, &TEIPredictRequest{
			Inputs:    []TEISequence{{Text: "a"}, {Text: "b", Second: "c", Pair: true}},
			Batch:     true,
			RawScores: true,
		}},
		{`{"inputs":{"source_sentence":"s","sentences":["a","b"]},"parameters":{"truncate":false,"prompt_name":"document"}}`,
			similarityOf, &TEISimilarityRequest{
				TEIOptions: TEIOptions{Truncate: no(), PromptName: "document"},
				Source:     "s",
				Sentences:  []string{"a", "b"},
			}},
		{`{"inputs":"a"}`, tokenizeOf, &TEITokenizeRequest{Texts: []string{"a"}, AddSpecial: true}},
		{`{"inputs":["a",""],"add_special_tokens":false}`, tokenizeOf,
			&TEITokenizeRequest{Texts: []string{"a", ""}}},
		{`{"ids":[1,2]}`, decodeOf, &TEIDecodeRequest{IDs: [][]int32{{1, 2}}, SkipSpecial: true}},
		{`{"ids":[[1],[2]],"skip_special_tokens":false}`, decodeOf,
			&TEIDecodeRequest{IDs: [][]int32{{1}, {2}}}},
	} {
		got, err := c.decode([]byte(c.body))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.body, got, err, c.want)
		}
	}
}

var small = Limits{MaxItems: 2, MaxScoreItems: 2, MaxItemTextBytes: 50}

func embedOf(b []byte) (any, error)      { return DecodeTEIEmbed(b, small) }
func rerankOf(b []byte) (any, error)     { return DecodeTEIRerank(b, small) }
func predictOf(b []byte) (any, error)    { return DecodeTEIPredict(b, small) }
func similarityOf(b []byte) (any, error) { return DecodeTEISimilarity(b, small) }
func tokenizeOf(b []byte) (any, error)   { return DecodeTEITokenize(b, small) }
func decodeOf(b []byte) (any, error)     { return DecodeTEIDecode(b, small) }

func TestDecodeTEIErrors(t *testing.T) {
	long := strings.Repeat("x", 51)
	for _, c := range []struct {
		body   string
		decode func([]byte) (any, error)
		param  string
		text   string
		empty  bool
	}{
		{`{}`, embedOf, "inputs", "missing field `inputs`", false},
		{`{"inputs":[]}`, embedOf, "inputs", "`inputs` cannot be empty", true},
		{`{"inputs":["a","b","c"]}`, embedOf, "inputs", "batch size 3 > maximum allowed batch size 2", false},
		{`{"inputs":"` + long + `"}`, embedOf, "inputs", "at most 50 bytes", false},
		{`{"inputs":["a","` + long + `"]}`, embedOf, "inputs", "inputs[1]", false},
		{`{"inputs":"a","truncation_direction":"up"}`, embedOf, "truncation_direction",
			"'left' or 'right', got 'up'", false},
		{`{"inputs":"a","dimensions":0}`, embedOf, "dimensions", "at least 1", false},
		{`{"inputs":"a","normalize":"yes"}`, embedOf, "normalize", "Expected `bool | null`", false},
		{`{"inputs":1}`, embedOf, "inputs", "Expected `str | array`", false},
		{`{"texts":["a"]}`, rerankOf, "query", "missing field `query`", false},
		{`{"query":"q"}`, rerankOf, "texts", "missing field `texts`", false},
		{`{"query":"q","texts":[]}`, rerankOf, "texts", "`texts` cannot be empty", true},
		{`{"query":"q","texts":["a","b","c"]}`, rerankOf, "texts", "batch size 3", false},
		{`{"inputs":[]}`, predictOf, "inputs", "invalid length 0", false},
		{`{"inputs":["a","b","c"]}`, predictOf, "inputs", "invalid length 3", false},
		{`{"inputs":[["a","b","c"]]}`, predictOf, "inputs", "invalid length 3", false},
		{`{"inputs":[["a"],"b"]}`, predictOf, "inputs",
			"Expected `array`, got `str` - at `$.inputs[1]`", false},
		{`{"inputs":["a",["b"]]}`, predictOf, "inputs",
			"Expected `str`, got `array` - at `$.inputs[1]`", false},
		{`{"inputs":[["a"],["a"],["a"]]}`, predictOf, "inputs", "batch size 3", false},
		{`{"inputs":{"sentences":["a"]}}`, similarityOf, "inputs", "inputs.source_sentence", false},
		{`{"inputs":{"source_sentence":"a"}}`, similarityOf, "inputs", "inputs.sentences", false},
		{`{"inputs":{"source_sentence":"a","sentences":[]}}`, similarityOf, "inputs.sentences",
			"cannot be empty", true},
		{`{"inputs":[]}`, tokenizeOf, "inputs", "cannot be empty", true},
		{`{"inputs":[1]}`, tokenizeOf, "inputs", "Expected `str`", false},
		{`{"ids":[]}`, decodeOf, "ids", "cannot be empty", true},
		{`{"ids":"a"}`, decodeOf, "ids", "Expected `array of token ids`, got `str`", false},
		{`{"ids":[-1]}`, decodeOf, "ids", "token id between", false},
		{`{"inputs":"a"}}`, embedOf, "", "trailing characters", false},
	} {
		_, err := c.decode([]byte(c.body))
		e, ok := err.(*errs.Error)
		if !ok || e.Status != 400 || e.Param != c.param || !strings.Contains(e.Message, c.text) ||
			(e.OpenAICode == errs.CodeEmpty) != c.empty {
			t.Errorf("%.60s: %+v; want %s: %s", c.body, err, c.param, c.text)
		}
	}
}

func TestAppendTEI(t *testing.T) {
	ids := []byte{5, 0, 0, 0, 200, 1, 0, 0}
	zero, three := 0, 3
	text := "x\"y"
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{AppendTEIEmbeddings(nil, nil, []Array{Vector(Float32, f32(0.1, -1)), Vector(Float32, nil)}),
			`[[0.1,-1.0],[]]`},
		{AppendTEIEmbeddings(nil, nil, []Array{Vector(Float32, f32(float32(math.NaN()), 1e-9))}),
			`[[null,1e-09]]`},
		{AppendTEIAll(nil, nil, []Array{
			Matrix(Float32, 2, 2, f32(1, 2, 3, 4)), Matrix(Float32, 1, 2, f32(5, 6)),
		}), `[[[1.0,2.0],[3.0,4.0]],[[5.0,6.0]]]`},
		{AppendTEISparse(nil, nil, []Sparse{
			{Indices: Vector(Int32, ids), Values: Vector(Float32, f32(0.5, 2))},
			{Indices: Vector(Int32, nil)},
		}), `[[{"index":5,"value":0.5},{"index":456,"value":2.0}],[]]`},
		{AppendTEISimilarities(nil, nil, []float64{0.25, 1}), `[0.25,1.0]`},
		{AppendTEIRanks(nil, nil, []TEIRank{{Index: 1, Text: &text, Score: 0.9}, {Score: 0.1}}),
			`[{"index":1,"text":"x\"y","score":0.9},{"index":0,"score":0.1}]`},
		{AppendTEIPredictions(nil, nil, false, [][]TEIPrediction{{{0.5, "a"}, {0.25, "b"}}}),
			`[{"score":0.5,"label":"a"},{"score":0.25,"label":"b"}]`},
		{AppendTEIPredictions(nil, nil, true, [][]TEIPrediction{{{1, "a"}}, {}}),
			`[[{"score":1.0,"label":"a"}],[]]`},
		{AppendTEITokens(nil, nil, [][]Token{
			{{ID: 101, Text: "[CLS]", Special: true}, {ID: 7, Text: "abc", Start: &zero, Stop: &three}},
		}),
			`[[{"id":101,"text":"[CLS]","special":true,"start":null,"stop":null},{"id":7,"text":"abc","special":false,"start":0,"stop":3}]]`},
		{AppendTEITexts(nil, nil, []string{"a", ""}), `["a",""]`},
		{AppendTEIInfo(nil, &TEIInfo{
			ModelID: "m", ModelType: TEIModelType{Embedding: &TEIEmbedding{"cls"}}, AutoTruncate: true,
		}),
			`{"model_id":"m","model_sha":null,"model_dtype":"","served_model_name":"","model_type":{"embedding":{"pooling":"cls"}},"max_concurrent_requests":0,` +
				`"max_input_length":0,"max_batch_tokens":0,"max_batch_requests":null,"max_client_batch_size":0,"auto_truncate":true,"tokenization_workers":0,` +
				`"version":"","sha":null,"docker_label":null}`},
	} {
		if string(c.got) != c.want || !json.Valid(c.got) {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

// Numbers read back as the same float32.
func TestShortFloats(t *testing.T) {
	for _, f := range []float32{0, 1, -0.1, 1e-45, math.MaxFloat32, 0.049999997, 1.0 / 3, 123456789} {
		var back float32
		if err := json.Unmarshal(appendShortest(nil, f), &back); err != nil || back != f {
			t.Errorf("%v: %s, %v", f, appendShortest(nil, f), err)
		}
	}
}

func FuzzDecodeTEI(f *testing.F) {
	for _, s := range []string{
		`{"inputs":[["a"],["b","c"]]}`, `{"inputs":{"source_sentence":"s","sentences":["a"]}}`,
		`{"ids":[[1]]}`, `{"query":"q","texts":["a"]}`,
		`{"inputs":"a","dimensions":4,"truncation_direction":"left"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, decode := range []func([]byte) (any, error){
			embedOf, rerankOf, predictOf, similarityOf, tokenizeOf, decodeOf,
		} {
			if _, err := decode(body); err != nil {
				if _, ok := err.(*errs.Error); !ok {
					t.Fatalf("%T: %v", err, err)
				}
			}
		}
	})
}
