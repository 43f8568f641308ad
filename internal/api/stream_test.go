package api

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sie-engine/sie/internal/errs"
)

// large returns answers of every kind whose entries are either small or larger than any piece. It
// makes them anew for each use, because writing in pieces clears them.
func large() map[string]Answer {
	floats := func(n int) []byte {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(math.Sin(float64(i))) / 3
		}
		return f32(x...)
	}
	ids := func(n int) []byte {
		x := make([]int32, n)
		for i := range x {
			x[i] = int32(i * 7)
		}
		return i32(x...)
	}
	vectors := func() []Array {
		return []Array{Vector(Float32, floats(300)), Vector(Float32, nil), Vector(Float32, floats(60_000)),
			Vector(Float32, floats(5))}
	}
	matrices := func() []Array {
		return []Array{Matrix(Float32, 700, 33, floats(700*33)), Matrix(Float32, 0, 33, nil),
			Matrix(Float32, 2, 50_000, floats(100_000))}
	}
	sparse := func() []Sparse {
		return []Sparse{
			{Dims: 9, Indices: Vector(Int32, ids(40_000)), Values: Vector(Float32, floats(40_000))},
			{Indices: Vector(Int32, nil), Values: Vector(Float32, nil)},
		}
	}
	texts := func() []string {
		return []string{strings.Repeat("é\n", 30_000), "", "x", strings.Repeat("y", 90_000)}
	}
	all := map[string]Answer{
		"embeddings": func(dst []byte, out *Sink) []byte {
			return AppendEmbeddingsJSON(dst, out, "m", vectors(), false, 7)
		},
		"base64": func(dst []byte, out *Sink) []byte {
			return AppendEmbeddingsJSON(dst, out, "m", vectors(), true, 7)
		},
		"tei embed":  func(dst []byte, out *Sink) []byte { return AppendTEIEmbeddings(dst, out, vectors()) },
		"tei all":    func(dst []byte, out *Sink) []byte { return AppendTEIAll(dst, out, matrices()) },
		"tei sparse": func(dst []byte, out *Sink) []byte { return AppendTEISparse(dst, out, sparse()) },
		"tei texts":  func(dst []byte, out *Sink) []byte { return AppendTEITexts(dst, out, texts()) },
		"tei similarities": func(dst []byte, out *Sink) []byte {
			return AppendTEISimilarities(dst, out, make([]float64, 50_000))
		},
		"tei ranks": func(dst []byte, out *Sink) []byte {
			t := texts()
			return AppendTEIRanks(dst, out, append(make([]TEIRank, 9000), TEIRank{Text: &t[0]}))
		},
		"tei predictions": func(dst []byte, out *Sink) []byte {
			return AppendTEIPredictions(dst, out, true,
				[][]TEIPrediction{make([]TEIPrediction, 9000), nil, make([]TEIPrediction, 10)})
		},
		"tei prediction": func(dst []byte, out *Sink) []byte {
			return AppendTEIPredictions(dst, out, false, [][]TEIPrediction{make([]TEIPrediction, 9000)})
		},
		"tei tokens": func(dst []byte, out *Sink) []byte {
			return AppendTEITokens(dst, out, [][]Token{make([]Token, 5000), nil, make([]Token, 3)})
		},
		"rerank": func(dst []byte, out *Sink) []byte {
			return AppendRerankJSON(dst, out, &RerankResponse{
				ID: "i", Model: "m", APIVersion: 2, Tokens: 3, Results: make([]RerankResult, 9000),
			})
		},
	}
	for _, f := range []Format{JSON, Msgpack} {
		all["encode "+f.String()] = func(dst []byte, out *Sink) []byte {
			r := &EncodeResponse{Model: "m", Timing: &Timing{Total: 1}, Usage: &Usage{InputTokens: 5}}
			for i, v := range vectors() {
				it := EncodeItem{ID: "a", HasID: i%2 == 0, Dense: &Dense{Dims: v.Cols, Values: v}}
				it.Multivector = &Multivector{TokenDims: 33, Values: matrices()[i%3]}
				it.Sparse = &sparse()[i%2]
				r.Items = append(r.Items, it)
			}
			return AppendEncode(dst, out, f, r)
		}
		all["score "+f.String()] = func(dst []byte, out *Sink) []byte {
			return AppendScore(dst, out, f,
				&ScoreResponse{Model: "m", Scores: make([]Score, 9000), Usage: &Usage{}})
		}
		all["extract "+f.String()] = func(dst []byte, out *Sink) []byte {
			r := &ExtractResponse{Model: "m", Items: make([]ExtractItem, 5), Usage: &Usage{}}
			r.Items[1].Entities, r.Items[2].Classifications = make([]Entity, 5000), make([]Class, 5000)
			r.Items[3].Error = errs.Internal(nil)
			return AppendExtract(dst, out, f, r)
		}
	}
	return all
}

// An answer in pieces has the same bytes as in one buffer, for any size of pieces. No piece is much
// longer than requested.
func TestStreams(t *testing.T) {
	for name, a := range large() {
		want := a(nil, nil)
		if len(want) < 100_000 {
			t.Errorf("%s: %d bytes prove nothing", name, len(want))
		}
		s := NewStream(a)
		got, err := io.ReadAll(iotest.HalfReader(s))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: read %d bytes, %v; want %d", name, len(got), err, len(want))
		}
		s.Close()
		s = NewStream(a)
		var to bytes.Buffer
		if n, err := s.WriteTo(&to); err != nil || n != int64(len(want)) || !bytes.Equal(to.Bytes(), want) {
			t.Errorf("%s: wrote %d bytes, %v; want %d", name, n, err, len(want))
		}
		s.Close()
		if n := a.Length(); n != int64(len(want)) {
			t.Errorf("%s: length %d, want %d", name, n, len(want))
		}
		if got, ok := a.Within([]byte("x"), len(want)+2); !ok || string(got) != "x"+string(want) {
			t.Errorf("%s: as a whole %v, %d bytes", name, ok, len(got))
		}
		if got, ok := a.Within(nil, 5000); ok || len(got) > 5000+8*flushBytes &&
			!strings.Contains(name, "text") && !strings.Contains(name, "rank") {
			t.Errorf("%s: within 5,000 bytes %v, %d bytes", name, ok, len(got))
		}
		largest := 0
		a(nil, &Sink{
			limit: 1000, take: func(piece []byte) bool { largest = max(largest, len(piece)); return true },
		})
		if largest > 1000+8*flushBytes && !strings.Contains(name, "text") && !strings.Contains(name, "rank") {
			t.Errorf("%s: a piece of %d bytes", name, largest)
		}
	}
}

// A vector of several pieces is one base64 text.
func TestStreamedBase64(t *testing.T) {
	data := f32(make([]float32, 20_001)...)
	for i := range data {
		data[i] = byte(i * 7)
	}
	b, err := io.ReadAll(NewStream(func(dst []byte, out *Sink) []byte {
		return AppendEmbeddingsJSON(dst, out, "m", []Array{Vector(Float32, data)}, true, 7)
	}))
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Data []struct{ Embedding []byte } }
	if err := json.Unmarshal(b, &answer); err != nil || len(answer.Data) != 1 ||
		!bytes.Equal(answer.Data[0].Embedding, data) {
		t.Errorf("%v: %.100s", err, b)
	}
}

// After Close the rest of the answer is not written.
func TestStreamsEndEarly(t *testing.T) {
	for name, a := range large() {
		taken, after := 0, 0
		rest := a(nil, &Sink{limit: 100, take: func([]byte) bool {
			if taken++; taken > 2 {
				after++
			}
			return taken < 2
		}})
		if taken != 2 || after > 0 || len(rest) > 100_000 {
			t.Errorf("%s: %d pieces were handed on after the end, %d bytes are left", name, after, len(rest))
		}
		s := NewStream(a)
		if _, err := s.Read(make([]byte, 10)); err != nil {
			t.Error(err)
		}
		s.Close()
		s.Close()
	}
}

// Entries written in pieces are cleared at once, unless the answer is only counted.
func TestStreamsForget(t *testing.T) {
	r := &EncodeResponse{Items: make([]EncodeItem, 3)}
	for i := range r.Items {
		r.Items[i].Dense = &Dense{Values: Vector(Float32, make([]byte, 400_000))}
	}
	a := Answer(func(dst []byte, out *Sink) []byte { return AppendEncode(dst, out, JSON, r) })
	a.Length()
	a.Within(nil, 1000)
	if r.Items[0].Dense == nil {
		t.Error("counting forgets")
	}
	s := NewStream(a)
	defer s.Close()
	if _, err := io.CopyN(io.Discard, s, 600_000); err != nil {
		t.Fatal(err)
	}
	if r.Items[0].Dense != nil || r.Items[2].Dense == nil {
		t.Errorf("after one and a half of three items: %v %v",
			r.Items[0].Dense != nil, r.Items[2].Dense != nil)
	}
}

// BenchmarkStreamSmall measures a small answer in one buffer.
func BenchmarkStreamSmall(b *testing.B) {
	v := []Array{Vector(Float32, make([]byte, 1536))}
	for b.Loop() {
		AppendEmbeddingsJSON(nil, nil, "m", v, false, 3)
	}
}

// Entries that a stream has written are cleared also if the parts of all items share slices.
func TestStreamForgetsParts(t *testing.T) {
	parts := make([]Dense, 2)
	r := &EncodeResponse{Items: make([]EncodeItem, len(parts))}
	for i := range parts {
		parts[i] = Dense{Dims: 4, Values: Vector(Float32, make([]byte, 16))}
		r.Items[i].Dense = &parts[i]
	}
	s := NewStream(func(dst []byte, to *Sink) []byte { return AppendEncode(dst, to, Msgpack, r) })
	defer s.Close()
	if _, err := io.Copy(io.Discard, s); err != nil {
		t.Fatal(err)
	}
	for i := range parts {
		if parts[i].Values.Data != nil || r.Items[i].Dense != nil {
			t.Errorf("the row of item %d is kept", i)
		}
	}
}
