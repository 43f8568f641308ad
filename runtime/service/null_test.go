package service_test

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/nulldev"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/service/servicetest"
)

// nullService starts a service over the built-in catalog without a device.
func nullService(t *testing.T, change func(*servicetest.Options)) *servicetest.Rig {
	t.Helper()
	all, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return servicetest.Start(t, func(o *servicetest.Options) {
		o.Catalog, o.Null = all, &model.Null{}
		if change != nil {
			change(o)
		}
	}, nil)
}

const everything = "BAAI/bge-m3" // it gives dense, sparse and token vectors

// run runs one operation on the null device.
func onNull[Q, R any](t *testing.T, r *servicetest.Rig, id string, q Q,
	op func(service.Model, *admit.Work, Q) (R, error)) (R, error) {
	t.Helper()
	w, err := r.Gate().Enter(admit.Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.End()
	m, err := r.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	return op(m, w, q)
}

// Every operation of every model of the catalog is answered, in the right shape, with the answers
// that internal/nulldev says.
func TestNullDeviceAnswers(t *testing.T) {
	r := nullService(t, nil)
	texts := items("hello", "", "a longer text of some words")
	res, err := onNull(t, r, everything, &api.EncodeRequest{
		Items: texts, OutputTypes: []string{"dense", "sparse", "multivector"},
	}, service.Model.Encode)
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	for i, it := range res.Items {
		text := texts[i].Text
		tokens += nulldev.Tokens(text)
		want := nulldev.Dense(everything, nulldev.Document, text, 1024)
		columns, weights := nulldev.Sparse(everything, nulldev.Document, text, it.Sparse.Dims)
		if !slices.Equal(floats(it.Dense.Values.Data), want) || it.Dense.Dims != 1024 ||
			!slices.Equal(floats(it.Sparse.Values.Data), weights) || it.Sparse.Indices.Cols != len(columns) ||
			it.Multivector.Values.Rows != nulldev.Tokens(text) || it.Multivector.Values.Cols != 1024 {
			t.Errorf("%q: %d dims, %d rows", text, it.Dense.Dims, it.Multivector.Values.Rows)
		}
	}
	if res.Usage.InputTokens != tokens {
		t.Errorf("%d tokens, want %d", res.Usage.InputTokens, tokens)
	}
	asked := true
	for _, dtype := range []string{"float16", "int8", "uint8", "binary"} {
		res, err := onNull(t, r, everything, &api.EncodeRequest{
			Items: texts, OutputDType: dtype, IsQuery: &asked,
		}, service.Model.Encode)
		if err != nil || res.Items[0].Dense.Values.Cols != map[string]int{"binary": 128}[dtype]+
			map[bool]int{true: 1024}[dtype != "binary"] {
			t.Errorf("%s: %v", dtype, err)
		}
	}
	scores, err := onNull(t, r, "BAAI/bge-reranker-v2-m3",
		&api.ScoreRequest{Query: items("q")[0], Items: texts}, service.Model.Score)
	if err != nil || scores.Scores[0].Score < scores.Scores[2].Score || scores.Scores[0].Score !=
		nulldev.Score("BAAI/bge-reranker-v2-m3", "q", texts[scores.Scores[0].Index].Text) {
		t.Errorf("%+v, %v", scores, err)
	}
	for _, m := range r.Catalog().List() {
		if m.Usable() != nil {
			continue
		}
		if m.Has("json") {
			found, err := onNull(t, r, m.ID, &api.ExtractRequest{Items: texts, Labels: []string{"LABEL_0"}},
				service.Model.Extract)
			if err != nil || len(found.Items) != 3 || found.Items[1].ID != "item-1" {
				t.Errorf("%s: %+v, %v", m.ID, found, err)
			}
		}
		for _, out := range m.AllowedOutputTypes(nil) {
			q := &api.EncodeRequest{Items: texts, OutputTypes: []string{string(out)}}
			if _, err := onNull(t, r, m.ID, q, service.Model.Encode); err != nil {
				t.Errorf("%s, %s: %v", m.ID, out, err)
			}
		}
	}
}

func floats(b []byte) (out []float32) {
	for ; len(b) > 0; b = b[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return out
}

// What extract finds is known: the labels of the request, or the model's own that it wants, by
// score, or the whole text as an entity.
func TestNullDeviceExtracts(t *testing.T) {
	families := map[string]catalog.Family{"zero": catalog.FamilyZeroShot,
		"fixed": catalog.FamilySequenceClassifier, "tags": catalog.FamilyTagger}
	r := nullService(t, func(o *servicetest.Options) {
		var more []*catalog.Model
		for id, family := range families {
			m, err := catalog.AdHoc(id, catalog.AdHocInfo{WeightsPath: "/none", Family: family})
			if err != nil {
				t.Fatal(err)
			}
			more = append(more, m)
		}
		var err error
		if o.Catalog, err = o.Catalog.With(more...); err != nil {
			t.Fatal(err)
		}
	})
	texts := []string{"hello", "", "déjà vu"}
	for id, want := range map[string][]string{
		"zero": {"person", "place", "time"}, "fixed": nulldev.Labels, "tags": nil,
	} {
		labels := want
		if id != "zero" {
			labels = nil
		}
		res, err := onNull(t, r, id, &api.ExtractRequest{Items: items(texts...), Labels: labels},
			service.Model.Extract)
		if err != nil {
			t.Fatal(err)
		}
		for i, it := range res.Items {
			if id == "tags" {
				if e := it.Entities; len(e) != 1 || e[0].Text != texts[i] || e[0].Start != 0 ||
					e[0].End != len([]rune(texts[i])) ||
					e[0].Score != nulldev.Label(id, texts[i], e[0].Label) {
					t.Errorf("%s: %+v", id, e)
				}
				continue
			}
			last := 1.0
			for _, c := range it.Classifications {
				if c.Score > last || c.Score != nulldev.Label(id, texts[i], c.Label) ||
					!slices.Contains(want, c.Label) {
					t.Errorf("%s: %+v after %v", id, c, last)
				}
				last = c.Score
			}
			if len(it.Classifications) != len(want) {
				t.Errorf("%s: %+v", id, it.Classifications)
			}
		}
	}
	res, err := onNull(t, r, "fixed", &api.ExtractRequest{Items: items("a"), Labels: []string{"LABEL_1"}},
		service.Model.Extract)
	if err != nil || len(res.Items[0].Classifications) != 1 ||
		res.Items[0].Classifications[0].Label != "LABEL_1" {
		t.Errorf("one label: %+v, %v", res, err)
	}
}

// Faults work on their batch, and the device goes on.
func TestNullDeviceFaults(t *testing.T) {
	r := nullService(t, func(o *servicetest.Options) { o.Batch.MaxRequests = 1 })
	encode := func(text string) (*api.EncodeResponse, error) {
		return onNull(t, r, everything, &api.EncodeRequest{Items: items(text)}, service.Model.Encode)
	}
	if _, err := encode("!oom"); errs.As(err) == nil || errs.As(err).Code != errs.ResourceExhausted {
		t.Errorf("out of memory: %v", err)
	}
	res, err := encode("!sleep=30ms x")
	if err != nil || res.Timings.Inference < 30*time.Millisecond {
		t.Errorf("asleep: %v", err)
	}
	if res, err = encode("!big=5MiB"); err != nil || len(res.Items[0].Dense.Values.Data) != 5<<20 {
		t.Errorf("big: %v", err)
	}
	if _, err = encode("a"); err != nil {
		t.Error(err)
	}
}

// Texts are split into code points and put together again.
func TestNullDeviceTokenizes(t *testing.T) {
	r := nullService(t, nil)
	m, err := r.Find(everything)
	if err != nil {
		t.Fatal(err)
	}
	w := admit.Unbounded(t.Context())
	tokens, err := m.Tokenize(w, []string{"aé😀", ""}, true)
	if err != nil || len(tokens[0]) != 5 || len(tokens[1]) != 2 || *tokens[0][3].Stop != 7 {
		t.Fatalf("%+v, %v", tokens, err)
	}
	var ids []int32
	for _, k := range tokens[0] {
		ids = append(ids, int32(k.ID))
	}
	for skip, want := range map[bool]string{true: "aé😀", false: "[FIRST]aé😀[LAST]"} {
		if got, err := m.Detokenize(w, [][]int32{ids}, skip); err != nil || got[0] != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	_, err = m.Detokenize(w, [][]int32{{1}, {-1}}, true)
	if err == nil || !strings.Contains(err.Error(), "ids[1]") {
		t.Errorf("%v", err)
	}
}

// A model takes its time to load, and a cold request is told so.
func TestNullDeviceLoads(t *testing.T) {
	r := nullService(t, func(o *servicetest.Options) {
		o.Null.LoadTime, o.LoadWait = time.Hour, time.Millisecond
	})
	_, err := onNull(t, r, everything, &api.EncodeRequest{Items: items("a")}, service.Model.Encode)
	if e := errs.As(err); e == nil || e.Code != errs.ModelLoading {
		t.Errorf("%v", err)
	}
}
