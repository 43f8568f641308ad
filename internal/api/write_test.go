package api

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/half"
)

func f32(x ...float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func i32(x ...int32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// The arrays equal those that msgpack-numpy 0.4.8 writes.
func TestArrayMsgpackGolden(t *testing.T) {
	for name, c := range map[string]struct {
		a    Array
		want string
	}{
		"f4": {Vector(Float32, f32(1.5, -2)),
			"85c4026e64c3c40474797065a33c6634c4046b696e64c400c40573686170659102c40464617461c4080000c03f000000c0"},
		"f2": {Vector(Float16, []byte{0, 0x3e, 0, 0xc0}),
			"85c4026e64c3c40474797065a33c6632c4046b696e64c400c40573686170659102c40464617461c404003e00c0"},
		"i1": {Vector(Int8, []byte{0x80, 0, 0x7f}),
			"85c4026e64c3c40474797065a37c6931c4046b696e64c400c40573686170659103c40464617461c40380007f"},
		"u1": {Vector(Uint8, []byte{0, 255}),
			"85c4026e64c3c40474797065a37c7531c4046b696e64c400c40573686170659102c40464617461c40200ff"},
		"i4": {Vector(Int32, i32(7, 65536)),
			"85c4026e64c3c40474797065a33c6934c4046b696e64c400c40573686170659102c40464617461c4080700000000000100"},
		"2-D": {Matrix(Float32, 2, 2, f32(0, 1, 2, 3)),
			"85c4026e64c3c40474797065a33c6634c4046b696e64c400c4057368617065920202c40464617461c410000000000000803f0000004000004040"},
		"empty": {Vector(Float32, nil),
			"85c4026e64c3c40474797065a33c6634c4046b696e64c400c40573686170659100c40464617461c400"},
		"(0,4)": {Matrix(Float32, 0, 4, nil),
			"85c4026e64c3c40474797065a33c6634c4046b696e64c400c4057368617065920004c40464617461c400"},
		"f4 1024": {Vector(Float32, make([]byte, 4096)),
			"85c4026e64c3c40474797065a33c6634c4046b696e64c400c405736861706591cd0400c40464617461c51000" +
				strings.Repeat("00", 4096)},
	} {
		if got := hex.EncodeToString(mpackWriter{}.array(nil, c.a)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestEncodeMsgpackGolden(t *testing.T) {
	r := &EncodeResponse{Model: "m", Timing: &Timing{Total: 1.5, Inference: 1}, Items: []EncodeItem{
		{ID: "a", HasID: true, Dense: &Dense{Dims: 2, Values: Vector(Float32, f32(1.5, -2))}},
	}}
	const want = "83a56d6f64656ca16da56974656d739182a26964a161a564656e736583a464696d7302a56474797065a7666c6f61743332a676616c75657385c4026e64c3" +
		"c40474797065a33c6634c4046b696e64c400c40573686170659102c40464617461c4080000c03f000000c0a674696d696e6785a8746f74616c5f6d73cb3f" +
		"f8000000000000a871756575655f6d73cb0000000000000000af746f6b656e697a6174696f6e5f6d73cb0000000000000000ac696e666572656e63655f6d" +
		"73cb3ff0000000000000b1706f737470726f63657373696e675f6d73c0"
	if got := hex.EncodeToString(AppendEncodeMsgpack(nil, r)); got != want {
		t.Errorf("encode:\n got %s\nwant %s", got, want)
	}
	// The outputs alone: an item with nothing else is a one-entry map around them.
	item := func(it EncodeItem) string {
		return hex.EncodeToString(appendEncodeItem(nil, mpackWriter{}, &it))
	}
	sparse := "81a6737061727365" +
		"84a464696d73ce0003d092a56474797065a7666c6f61743332a7696e646963657385c4026e64c3c40474797065a33c6934c4046b696e64c400c405736861" +
		"70659102c40464617461c4080700000000000100a676616c75657385c4026e64c3c40474797065a33c6634c4046b696e64c400c40573686170659102c404" +
		"64617461c4080000003f0000803e"
	if got := item(EncodeItem{Sparse: &Sparse{
		Dims: 250002, Indices: Vector(Int32, i32(7, 65536)), Values: Vector(Float32, f32(0.5, 0.25)),
	}}); got != sparse {
		t.Errorf("sparse:\n got %s\nwant %s", got, sparse)
	}
	multi := "81ab6d756c7469766563746f72" +
		"84aa746f6b656e5f64696d7302aa6e756d5f746f6b656e7302a56474797065a7666c6f61743332a676616c75657385c4026e64c3c40474797065a33c6634" +
		"c4046b696e64c400c4057368617065920202c40464617461c410000000000000803f0000004000004040"
	if got := item(EncodeItem{
		Multivector: &Multivector{TokenDims: 2, Values: Matrix(Float32, 2, 2, f32(0, 1, 2, 3))},
	}); got != multi {
		t.Errorf("multivector:\n got %s\nwant %s", got, multi)
	}
	if got := item(EncodeItem{}); got != "80" {
		t.Errorf("empty item: %s", got)
	}
	score := &ScoreResponse{Model: "m", Scores: []Score{{ItemID: "item-0", Score: 0.5}}}
	const wantScore = "83a56d6f64656ca16da871756572795f6964c0a673636f7265739183a76974656d5f6964a66974656d2d30a573636f7265cb3fe0000000000000a472616e6b00"
	if got := hex.EncodeToString(AppendScore(nil, nil, Msgpack, score)); got != wantScore {
		t.Errorf("score:\n got %s\nwant %s", got, wantScore)
	}
}

func TestEncodeJSON(t *testing.T) {
	r := &EncodeResponse{Model: "BAAI/bge-m3", Usage: &Usage{InputTokens: 0}, Timing: &Timing{
		Total: 12.25, Queue: 1, Postprocessing: 0.5, Detailed: true, Preprocess: 0.125, BatchWait: 3,
	}, Items: []EncodeItem{
		{ID: "é\n", HasID: true, Dense: &Dense{
			Dims: 3, Values: Vector(Float32, f32(0.1, 1e-5, float32(math.Copysign(0, -1)))),
		}},
		{Dense: &Dense{Dims: 12, Values: Vector(Uint8, []byte{0, 255})}, Sparse: &Sparse{
			Indices: Vector(Int32, i32(-1, 70000)), Values: Vector(Float16, []byte{0, 0x3e, 1, 0}),
		}},
		{Multivector: &Multivector{TokenDims: 2, Values: Matrix(Int8, 2, 2, []byte{0x81, 0x7f, 0, 1})}},
		{Multivector: &Multivector{TokenDims: 4, Values: Matrix(Float32, 0, 4, nil)}},
	}}
	const want = `{"model":"BAAI/bge-m3","items":[` +
		`{"id":"é\n","dense":{"dims":3,"dtype":"float32","values":[0.10000000149011612,9.999999747378752e-06,-0.0]}},` +
		`{"dense":{"dims":12,"dtype":"binary","values":[0,255]},"sparse":{"dims":null,"dtype":"float16","indices":[-1,70000],"values":[1.5,5.960464477539063e-08]}},` +
		`{"multivector":{"token_dims":2,"num_tokens":2,"dtype":"int8","values":[[-127,127],[0,1]]}},` +
		`{"multivector":{"token_dims":4,"num_tokens":0,"dtype":"float32","values":[]}}],` +
		`"timing":{"total_ms":12.25,"queue_ms":1.0,"tokenization_ms":0.0,"inference_ms":0.0,"postprocessing_ms":0.5,"preprocess_ms":0.125,"batch_wait_ms":3.0},` +
		`"usage":{"input_tokens":0}}`
	got := string(AppendEncodeJSON([]byte("x"), r))
	if got != "x"+want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if !json.Valid([]byte(got[1:])) {
		t.Error("not JSON")
	}
	if got := string(
		AppendEncode(nil, nil, JSON, &EncodeResponse{})); got != `{"model":"","items":[],"timing":null}` {
		t.Errorf("empty response: %s", got)
	}
}

func TestDTypeLabel(t *testing.T) {
	for _, c := range []struct {
		a    Array
		dims int
		want string
	}{
		{Vector(Uint8, make([]byte, 48)), 384, "binary"}, {Vector(Uint8, make([]byte, 384)), 384, "uint8"},
		{Matrix(Uint8, 3, 16, make([]byte, 48)), 128, "binary"}, {Vector(Int8, make([]byte, 3)), 4, "int8"},
		{Vector(Float16, make([]byte, 4)), 2, "float16"},
	} {
		if got := c.a.dtype(c.dims); got != c.want {
			t.Errorf("%v of %d: %s, want %s", c.a.Type, c.dims, got, c.want)
		}
	}
}

func TestScoreAndExtractJSON(t *testing.T) {
	s := &ScoreResponse{
		Model:    "r",
		QueryID:  "q",
		HasQuery: true,
		Usage:    &Usage{InputTokens: 9, Images: 2, ContentTokens: 5, HasContent: true},
		Scores:   []Score{{ItemID: "b", Score: 2}, {ItemID: "item-0", Index: 1, Score: -1.5, Rank: 1}},
	}
	const want = `{"model":"r","query_id":"q","scores":[{"item_id":"b","score":2.0,"rank":0},{"item_id":"item-0","score":-1.5,"rank":1}],` +
		`"usage":{"input_tokens":9,"images":2,"input_tokens_details":{"content_tokens":5}}}`
	if got := string(AppendScore(nil, nil, JSON, s)); got != want {
		t.Errorf("score:\n got %s\nwant %s", got, want)
	}
	x := &ExtractResponse{Model: "g", Items: []ExtractItem{
		{ID: "item-0"},
		{
			ID: "a",
			Entities: []Entity{
				{"Ann", "person", 0.5, 0, 3, nil}, {"", "logo", 1, -1, -1, []int{1, 2, 3, 4}},
			},
			Relations:       []Relation{{"a", "b", "knows", 0.25}},
			Classifications: []Class{{"x", 1}},
			Objects:         []Object{{"cat", 0.5, []int{0, 0, 5, 5}}},
			Data: map[string]any{
				"b": []any{nil, true, int64(-3), 2.5, "s", []string{"t"}}, "a": map[string]any{},
			},
			Error: errs.TooLong("", "too long"),
		},
	}}
	const wantX = `{"model":"g","items":[{"id":"item-0","entities":[],"relations":[],"classifications":[],"objects":[],"data":{}},` +
		`{"id":"a","entities":[{"text":"Ann","label":"person","score":0.5,"start":0,"end":3,"bbox":null},{"text":"","label":"logo","score":1.0,"start":null,"end":null,"bbox":[1,2,3,4]}],` +
		`"relations":[{"head":"a","tail":"b","relation":"knows","score":0.25}],"classifications":[{"label":"x","score":1.0}],"objects":[{"label":"cat","score":0.5,"bbox":[0,0,5,5]}],` +
		`"data":{"a":{},"b":[null,true,-3,2.5,"s",["t"]]},"error":{"code":"INPUT_TOO_LONG","message":"too long"}}]}`
	if got := string(AppendExtract(nil, nil, JSON, x)); got != wantX {
		t.Errorf("extract:\n got %s\nwant %s", got, wantX)
	}
	// The msgpack answer has the same content: read it with the tree reader and compare as JSON.
	tree, err := Raw{Msgpack, AppendExtract(nil, nil, Msgpack, x)}.Value("metadata", 1000)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := json.Unmarshal(appendFree(nil, jsonWriter{}, tree), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(wantX), &b); err != nil {
		t.Fatal(err)
	}
	ja, _ := json.Marshal(a)
	jb, _ := json.Marshal(b)
	if !bytes.Equal(ja, jb) {
		t.Errorf("msgpack says\n%s\nJSON says\n%s", ja, jb)
	}
}

func TestEmbeddingsJSON(t *testing.T) {
	v := []Array{Vector(Float32, f32(1.5, -2)), Vector(Float32, f32(0, 1))}
	const want = `{"object":"list","data":[{"object":"embedding","embedding":[1.5,-2.0],"index":0},{"object":"embedding","embedding":[0.0,1.0],"index":1}],` +
		`"model":"m","usage":{"prompt_tokens":7,"total_tokens":7,"sie_token_source":"worker"}}`
	if got := string(AppendEmbeddingsJSON(nil, nil, "m", v, false, 7)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if got := string(AppendEmbeddingsJSON(nil, nil, "m", v[:1], true, 7)); !strings.Contains(got,
		`"embedding":"AADAPwAAAMA=","index":0}]`) {
		t.Errorf("base64: %s", got)
	}
}

// TestFloatsPrintAsInPython covers 12,000 values made by testdata/make_float_goldens.py.
func TestFloatsPrintAsInPython(t *testing.T) {
	f, err := os.Open("testdata/floats.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for lines := bufio.NewScanner(z); lines.Scan(); n++ {
		h, want, _ := strings.Cut(lines.Text(), " ")
		bits, err := strconv.ParseUint(h, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		switch len(h) {
		case 4:
			got = string(appendFloat32(nil, half.ToFloat32(uint16(bits))))
		case 8:
			got = string(appendFloat32(nil, math.Float32frombits(uint32(bits))))
		case 16:
			got = string(AppendJSONFloat(nil, math.Float64frombits(bits)))
		}
		if got != want {
			t.Fatalf("%s: %s, want %s", h, got, want)
		}
	}
	if n < 11_900 {
		t.Fatalf("only %d values", n)
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if got := string(AppendJSONFloat(nil, x)); got != "null" {
			t.Errorf("%v is written as %s", x, got)
		}
	}
	if !math.IsInf(float64(half.ToFloat32(0xfc00)), -1) || !math.IsNaN(float64(half.ToFloat32(0x7e00))) {
		t.Error("half infinity or NaN")
	}
}

func TestJSONString(t *testing.T) {
	for in, want := range map[string]string{
		"": `""`, "aé😀<&>\u2028\x7f": "\"aé😀<&>\u2028\x7f\"",
		"\"\\\b\f\n\r\t\x00\x1f": `"\"\\\b\f\n\r\t\u0000\u001f"`, "a\xffb\xc3": "\"a\ufffdb\ufffd\"",
	} {
		if got := string(AppendJSONString(nil, in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestModelsJSON(t *testing.T) {
	n, rev := 512, "abc"
	full := ModelInfo{
		Name: "a/b", Inputs: []string{"text"}, Outputs: []string{"dense"}, Dims: ModelDims{Dense: 384},
		Loaded: true, State: "loaded", MaxSequenceLength: &n, Revision: &rev,
		Profiles: map[string]ProfileInfo{"default": {IsDefault: true}},
	}
	failed := ModelInfo{
		Name:        "c<d>",
		State:       "failed",
		LastError:   &ModelError{"GATED", "m", 1, true},
		GatewayInfo: &GatewayInfo{Bundles: []string{"default"}, WorkerCount: 2, Workers: []string{}},
	}
	const want = `{"models":[{"name":"a/b","inputs":["text"],"outputs":["dense"],"dims":{"dense":384},"loaded":true,"state":"loaded","last_error":null,` +
		`"max_sequence_length":512,"profiles":{"default":{"is_default":true,"identity":null,"remote_contract_sha256":null,"remote_execution_sha256":null,"runtime_instance_id":null}},` +
		`"revision":"abc","capabilities":null,"routing":{"policy":null,"upstream_kind":null}},` +
		`{"name":"c<d>","inputs":[],"outputs":[],"dims":{},"loaded":false,"state":"failed","last_error":{"code":"GATED","message":"m","attempts":1,"permanent":true},` +
		`"max_sequence_length":null,"profiles":{},"revision":null,"capabilities":null,"routing":{"policy":null,"upstream_kind":null},"bundles":["default"],"worker_count":2,"workers":[]}]}`
	if got := string(AppendModelsJSON(nil, []ModelInfo{full, failed})); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// benchResponse has n items with one vector of width dim.
func benchResponse(n, dim int) *EncodeResponse {
	vec := make([]float32, dim)
	for i := range vec {
		vec[i] = float32(math.Sin(float64(i)*1.7)) * 0.05
	}
	d := &Dense{Dims: dim, Values: Vector(Float32, f32(vec...))}
	r := &EncodeResponse{Model: "m", Items: make([]EncodeItem, n), Timing: &Timing{}}
	for i := range r.Items {
		r.Items[i].Dense = d
	}
	return r
}

func BenchmarkEncodeResponse(b *testing.B) {
	r := benchResponse(5000, 384)
	for _, f := range []Format{Msgpack, JSON} {
		b.Run("items=5000/dim=384/format="+f.String(), func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = AppendEncode(dst[:0], nil, f, r)
			}
			b.SetBytes(int64(len(dst)))
		})
	}
}
