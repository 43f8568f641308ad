package task_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/half"
)

// lateSetting is one entry of testdata/golden/late: a model, its load-time options and its folds.
type lateSetting struct {
	Model   string                     `json:"model"`
	Options map[string]any             `json:"options"`
	Folds   map[string]json.RawMessage `json:"folds"`
}

func lateSettings(t *testing.T, c *golden.Case) map[string]lateSetting {
	t.Helper()
	raw, err := json.Marshal(c.Notes["settings"])
	var out map[string]lateSetting
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil || len(out) == 0 {
		t.Fatalf("%d settings, %v", len(out), err)
	}
	return out
}

// profile returns the name of the profile with this fold.
func (s *lateSetting) profile(fold string) string { return strings.ReplaceAll(fold, " ", "-") }

// entry returns the model file of a setting. The load-time options are in a profile as the
// reference writes it, with one more profile per fold.
func (s *lateSetting) entry(t *testing.T, id string) *catalog.Model {
	t.Helper()
	options := func(more map[string]any) string {
		for k, v := range s.Options {
			more[k] = v
		}
		raw, err := json.Marshal(more)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	b := fmt.Appendf(nil, "sie_id: %s\nweights_path: %s\nmax_sequence_length: 60\n%s\nprofiles:\n"+
		"  default: {adapter_path: \"sie_server.adapters.colbert:ColBERTAdapter\", max_batch_tokens: 4096, adapter_options: {loadtime: %s}}\n",
		id, withTokenizer(t, s.Model, "st-mean", nil), colbertTasks, options(map[string]any{}))
	for fold, config := range s.Folds {
		kind, gives := "muvera", "dense"
		if strings.HasPrefix(fold, "smve") {
			kind, gives = "smve", "sparse"
		}
		b = fmt.Appendf(b,
			"  %s: {extends: default, adapter_options: {loadtime: %s, runtime: {%s: {}, output_types: [%s]}}}\n",
			s.profile(fold), options(map[string]any{kind + "_config": config}), kind, gives)
	}
	m, warn, err := catalog.ParseModel("late.yaml", b)
	if err != nil || len(warn) > 0 {
		t.Fatal(err, warn)
	}
	return m
}

// Encode gives the token vectors of sie-server's ColBERT adapter: with markers and filled queries,
// without punctuation and special tokens. Folding gives the dense and sparse rows of its
// post-processors, in every output type.
func TestColBERTEqualsTheReference(t *testing.T) {
	c := golden.Open(t, "late")
	data, err := os.ReadFile(filepath.Join(c.Dir, "texts.json"))
	var texts []string
	if err == nil {
		err = json.Unmarshal(data, &texts)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range lateSettings(t, c) {
		r := start(t, nil, nil, s.entry(t, "late"))
		for role, query := range map[string]bool{"query": true, "document": false} {
			l := lateCase{t: t, c: c, r: r, key: name + "." + role, texts: texts, query: query}
			l.vectors()
			for fold := range s.Folds {
				if strings.HasPrefix(fold, "smve") {
					l.sparse("late:"+s.profile(fold), fold)
				} else {
					l.dense("late:"+s.profile(fold), fold)
				}
			}
		}
	}
}

// A query that is filled up and loses its special tokens cannot be folded, because the device keeps
// one choice of rows, and that choice is the attention mask. A model file without muvera_config or
// smve_config folds with the reference's defaults.
func TestLateDefaults(t *testing.T) {
	r := start(t, nil, nil, lateModel(t, "late", "{}"))
	yes := true
	for _, fold := range []string{"muvera", "smve"} {
		req := &Request{
			Model:       "late",
			Texts:       words(2),
			OutputTypes: []string{"dense"},
			Options:     map[string]any{fold: map[string]any{}},
		}
		if fold == "smve" {
			req.OutputTypes = []string{"sparse"}
		}
		res, err := r.Encode(t.Context(), req)
		if err != nil || fold == "muvera" && res.Dims != 10240 || fold == "smve" && res.SparseDims != 65536 {
			t.Errorf("%s: %+v, %v", fold, res, err)
		}
		req.IsQuery = &yes
		if _, err := r.Encode(t.Context(), req); errs.As(err) == nil || errs.As(err).Status != 400 ||
			!strings.Contains(err.Error(), "skip_special_tokens: false") {
			t.Errorf("%s of a query: %v", fold, err)
		}
	}
}

// lateCase is one setting for one role, queries or documents.
type lateCase struct {
	t     *testing.T
	c     *golden.Case
	r     *rig
	key   string
	texts []string
	query bool
}

func (l *lateCase) encode(model, dtype string, n int, types ...string) *Result {
	l.t.Helper()
	res, err := l.r.Encode(l.t.Context(),
		&Request{Model: model, Texts: l.texts[:n], OutputTypes: types, OutputDType: dtype, IsQuery: &l.query})
	if err != nil {
		l.t.Fatalf("%s, %s %s: %v", l.key, model, dtype, err)
	}
	return res
}

func (l *lateCase) vectors() {
	l.t.Helper()
	want, shape := l.c.Float32(l.key)
	cu := l.c.Int32(l.key + ".cu")
	for i, m := range l.encode("late", "", len(l.texts), "multivector").Multi {
		rows := want[int(cu[i])*shape[1] : int(cu[i+1])*shape[1]]
		if d := golden.Compare(floats(m.Data), rows); m.Rows != int(cu[i+1]-cu[i]) || d.MaxAbs > 1e-5 {
			l.t.Errorf("%s, text %d: %d token rows, want %d: %v", l.key, i, m.Rows, cu[i+1]-cu[i], d)
		}
	}
}

// dense compares a fold in each output type. One code in fifty may be one off, where float32 sums
// in another order land on the other side of a half. Bits must be equal.
func (l *lateCase) dense(model, fold string) {
	l.t.Helper()
	key := l.key + "." + fold
	want, shape := l.c.Float32(key)
	var largest float32
	for _, w := range want {
		largest = max(largest, w, -w)
	}
	res := l.encode(model, "", shape[0])
	if res.Multi != nil || res.Dims != shape[1] {
		l.t.Fatalf("%s: %d columns, want %d; token rows %v", key, res.Dims, shape[1], res.Multi != nil)
	}
	for i, row := range res.Rows {
		d := golden.Compare(floats(row), want[i*shape[1]:(i+1)*shape[1]])
		if d.MaxAbs > 2e-5*float64(max(1, largest)) || d.Cosine < 1-1e-9 || d.NormRatio < 1-1e-5 ||
			d.NormRatio > 1+1e-5 {
			l.t.Errorf("%s, text %d: %v", key, i, d)
		}
	}
	if !l.c.Has(key + ".int8") {
		return
	}
	for _, dtype := range []string{"float16", "int8", "uint8", "binary", "ubinary"} {
		codes := l.c.Int32(key + "." + strings.Replace(dtype, "ubinary", "binary", 1))
		differ := 0
		for i, row := range l.encode(model, dtype, shape[0]).Rows {
			wide := shape[1]
			if strings.HasSuffix(dtype, "binary") {
				wide = (wide + 7) / 8
			}
			got := codesOf(dtype, row)
			if len(got) != wide {
				l.t.Fatalf("%s, %s: a row of %d elements, want %d", key, dtype, len(got), wide)
			}
			for j, w := range codes[i*wide : (i+1)*wide] {
				switch off := got[j] - w; {
				case off == 0:
				case strings.HasSuffix(dtype, "binary") || off < -1 || off > 1:
					l.t.Errorf("%s, %s, text %d, element %d: %d, want %d", key, dtype, i, j, got[j], w)
				default:
					differ++
				}
			}
		}
		if differ > len(codes)/50 {
			l.t.Errorf("%s, %s: %d of %d codes are one off", key, dtype, differ, len(codes))
		}
	}
}

// codesOf reads the elements of a row in the form of the golden data.
func codesOf(dtype string, row []byte) []int32 {
	var out []int32
	for i := 0; i < len(row); i++ {
		switch dtype {
		case "float16":
			out = append(out, int32(row[i])|int32(row[i+1])<<8)
			i++
		case "int8":
			out = append(out, int32(int8(row[i])))
		default:
			out = append(out, int32(row[i]))
		}
	}
	return out
}

func (l *lateCase) sparse(model, fold string) {
	l.t.Helper()
	key := l.key + "." + fold
	counts, columns := l.c.Int32(key+".counts"), l.c.Int32(key+".columns")
	values, _ := l.c.Float32(key + ".values")
	narrow := l.encode(model, "float16", len(counts)).Sparse
	for i, row := range l.encode(model, "", len(counts)).Sparse {
		n := int(counts[i])
		if got := ints(row.Columns); fmt.Sprint(got) != fmt.Sprint(columns[:n]) {
			l.t.Errorf("%s, text %d: columns %v, want %v", key, i, got, columns[:n])
		} else if d := golden.Compare(floats(row.Values), values[:n]); d.MaxAbs > 2e-5 {
			l.t.Errorf("%s, text %d: %v", key, i, d)
		}
		for j, v := range floats(row.Values) {
			if got := uint16(narrow[i].Values[2*j]) | uint16(narrow[i].Values[2*j+
				1])<<8; got != half.FromFloat32(v) {
				l.t.Errorf("%s, text %d, column %d: float16 %#x of %v", key, i, j, got, v)
			}
		}
		columns, values = columns[n:], values[n:]
	}
}
