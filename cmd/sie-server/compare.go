package main

import (
	"context"
	_ "embed" // recorded.json
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/task"
)

// recordedJSON has what the tests of the reference recorded of its models, on a CPU in float32,
// without templates: the first three components of a dense vector, the first three weights of a
// sparse one by their columns, the first three components of the first token's vector, and a score.
// Some dense vectors were recorded with an adapter that pools the last token when nobody asks for
// another: those of all-MiniLM-L6-v2, for one. A model has the recorded numbers if its own pooling
// gives them or that does; the line says which.
//
//go:embed recorded.json
var recordedJSON []byte

// recorded holds the numbers of one model; nil: not recorded.
type recorded struct {
	Dense  []float64 `json:"dense"`
	Sparse *struct {
		Columns []int     `json:"columns"`
		Values  []float64 `json:"values"`
	} `json:"sparse"`
	Multivector []float64 `json:"multivector"`
	Score       []float64 `json:"score"`
}

// The reference's probe texts.
const (
	probeText     = "test"
	probeQuery    = "what is artificial intelligence"
	probeDocument = "Artificial intelligence is the simulation of human intelligence by machines"
)

// recordedWithin is how far a number may be from the recorded one, which was rounded to float16,
// relative to the larger of 1 and that number.
const recordedWithin = 2e-3

// compare runs each model on its own, prints a line for it, and at the end the total. It fails if a
// model could not be run or differs.
func (c *checkModelCmd) compare(ctx context.Context, w io.Writer) error {
	all := map[string]recorded{}
	if err := json.Unmarshal(recordedJSON, &all); err != nil {
		return err
	}
	names := c.Model
	if slices.Equal(names, []string{"all"}) {
		cat, err := c.catalog()
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(id string) bool {
			_, err := cat.Resolve(id)
			return err != nil
		})
	}
	equal, bad, without := 0, 0, 0
	for _, ref := range names {
		line, ok := "", false
		id, _, _ := strings.Cut(refID(ref), ":")
		if want, known := all[id]; !known {
			line = "no number was recorded"
			without++
		} else if line, ok = c.compareOne(ctx, ref, want); ok {
			equal++
		} else {
			bad++
		}
		fmt.Fprintf(w, "%s: %s\n", refID(ref), line)
	}
	fmt.Fprintf(w, "%d of %d models have the recorded numbers, %d differ or could not be run, "+
		"%d have none recorded\n", equal, len(names), bad, without)
	if bad > 0 {
		return fmt.Errorf("%d of %d models differ from the recorded numbers or could not be run",
			bad, len(names))
	}
	return ctx.Err()
}

// compareOne loads a model and asks it. It returns the line about it, and whether all numbers are
// within the bound.
func (c *checkModelCmd) compareOne(ctx context.Context, ref string, want recorded) (line string, ok bool) {
	m, w, err := c.open(ctx, ref)
	if err != nil {
		return "cannot be run: " + err.Error(), false
	}
	defer w.Close()
	var parts []string
	ok = true
	note := func(what string, got, want []float64) {
		far, same := farthest(got, want)
		ok = ok && same
		if same {
			parts = append(parts, fmt.Sprintf("%s within %.1g", what, far))
		} else {
			parts = append(parts, fmt.Sprintf("%s differs by %.3g: here %.6g, recorded %.6g",
				what, far, got, want))
		}
	}
	if want.Score != nil {
		got, err := askScore(ctx, m)
		if err != nil {
			return "cannot be run: " + err.Error(), false
		}
		note("score", got, want.Score)
	}
	item, err := askEncode(ctx, m, want, "")
	if err != nil {
		return "cannot be run: " + err.Error(), false
	}
	if want.Dense != nil {
		what, got := "dense", floats(item.Dense.Values.Data, len(want.Dense))
		if _, same := farthest(got, want.Dense); !same {
			last, err := askEncode(ctx, m, recorded{Dense: want.Dense}, "last")
			if err == nil {
				row := floats(last.Dense.Values.Data, len(want.Dense))
				if _, same := farthest(row, want.Dense); same {
					what, got = "dense of the last token", row
				}
			}
		}
		note(what, got, want.Dense)
	}
	if want.Multivector != nil {
		note("multivector", floats(item.Multivector.Values.Data, len(want.Multivector)), want.Multivector)
	}
	if want.Sparse != nil {
		n := len(want.Sparse.Columns)
		note("columns", integers(item.Sparse.Indices.Data, n), asFloats(want.Sparse.Columns))
		note("sparse", floats(item.Sparse.Values.Data, n), want.Sparse.Values)
	}
	verdict := "equal"
	if !ok {
		verdict = "DIFFERENT"
	}
	return verdict + ", " + strings.Join(parts, ", "), ok
}

// open loads the model into a service of its own, which the caller closes.
func (c *checkModelCmd) open(
	ctx context.Context, ref string,
) (m service.Model, w *service.Service, err error) {
	source := c.source(ref)
	cat, err := source.catalog()
	if err != nil {
		return m, nil, err
	}
	bars := &downloadBars{}
	w, err = newWorker(&source, &c.computeFlags,
		&batchFlags{MaxBatchRequests: 64, MaxBatchWait: 15, MaxQueued: 2048, MemoryPercent: 95, MaxLoRAs: 10},
		cat, obs.NewLogger(io.Discard, false, false), metrics.New(), admit.Options{}, bars.update)
	if err != nil {
		return m, nil, err
	}
	if err = w.Preload(ctx, refID(ref)); err == nil {
		m, err = w.Find(refID(ref))
	}
	if err != nil {
		w.Close()
	}
	return m, w, err
}

func askScore(ctx context.Context, m service.Model) ([]float64, error) {
	res, err := m.Score(admit.Unbounded(ctx), &api.ScoreRequest{
		Query: task.Texts([]string{probeQuery})[0], Items: task.Texts([]string{probeDocument}),
	})
	if err != nil {
		return nil, err
	}
	return []float64{res.Scores[0].Score}, nil
}

// askEncode encodes the probe text as a document without a template. The outputs are those that
// have recorded numbers. pooling "" is the model's own.
func askEncode(
	ctx context.Context, m service.Model, want recorded, pooling string,
) (item api.EncodeItem, err error) {
	req := api.EncodeRequest{Items: task.Texts([]string{probeText}), OutputDType: "float32",
		Options: api.Options{}}
	for _, o := range []struct {
		name string
		on   bool
	}{{"dense", want.Dense != nil}, {"sparse", want.Sparse != nil},
		{"multivector", want.Multivector != nil}} {
		if o.on {
			req.OutputTypes = append(req.OutputTypes, o.name)
		}
	}
	if req.OutputTypes == nil {
		return item, nil
	}
	if m.Entry().Runtime.DocTemplate != nil {
		req.Options["doc_template"] = "{text}"
	}
	if pooling != "" {
		req.Options["pooling"] = pooling
	}
	res, err := m.Encode(admit.Unbounded(ctx), &req)
	if err != nil {
		return item, err
	}
	return res.Items[0], nil
}

// farthest returns the largest difference, and whether all are within the bound.
func farthest(got, want []float64) (far float64, ok bool) {
	if len(got) != len(want) {
		return math.Inf(1), false
	}
	ok = true
	for i := range want {
		d := math.Abs(got[i] - want[i])
		far = max(far, d)
		ok = ok && d <= recordedWithin*max(1, math.Abs(want[i]))
	}
	return far, ok
}

// floats returns the first n float32 of data.
func floats(data []byte, n int) []float64 {
	out := make([]float64, min(n, len(data)/4))
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
	}
	return out
}

// integers returns the first n int32 of data.
func integers(data []byte, n int) []float64 {
	out := make([]float64, min(n, len(data)/4))
	for i := range out {
		out[i] = float64(int32(binary.LittleEndian.Uint32(data[4*i:])))
	}
	return out
}

func asFloats(values []int) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}
