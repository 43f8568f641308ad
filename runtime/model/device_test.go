package model

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/engine"
)

// failing returns the error of a device with that status.
func failing(s engine.Status) error { return &engine.Error{Op: "run", Status: s, Msg: "planted"} }

// A batch that is too large for the device's memory runs in parts, and all requests succeed.
func TestOutOfMemoryIsTriedInHalves(t *testing.T) {
	texts := words(8)
	want := start(t, nil, []string{mean}).encode(&Request{Model: mean, Texts: texts})
	var runs atomic.Int64
	r := start(t, func(o *Options) {
		held(len(texts))(o)
		o.Intercept = func(b *engine.Batch) error {
			runs.Add(1)
			if len(b.Items[0]) > 2 {
				return failing(engine.StatusNoMemory)
			}
			return nil
		}
	}, []string{mean})
	for i, row := range r.encode(&Request{Model: mean, Texts: texts}) {
		if !bytes.Equal(row, want[i]) {
			t.Errorf("text %d has another vector than on a device with memory", i)
		}
	}
	if runs.Load() != 1+2+4 {
		t.Errorf("%d runs: one of eight texts, two of four and four of two are needed", runs.Load())
	}
}

// A text that the device cannot run fails only its own request; other requests in the batch get
// their vectors.
func TestOneTextFailsAlone(t *testing.T) {
	texts := words(3)
	bad := []int32{2, 97, 98, 99, 3}
	want := start(t, nil, []string{mean}).encode(&Request{Model: mean, Texts: texts})
	for status, c := range map[engine.Status]struct {
		code    errs.Code
		status  int
		message string
	}{
		engine.StatusNoMemory: {errs.ResourceExhausted, 503,
			"Inference temporarily unavailable due to resource pressure: out of memory"},
		engine.StatusInternal: {errs.InferenceError, 500, "internal error during encoding"},
	} {
		r := start(t, func(o *Options) {
			held(len(texts) + 1)(o)
			o.Intercept = func(b *engine.Batch) error {
				for i := range b.Items[0] {
					if slices.Equal(b.IDs[b.CuSeqlens[i]:b.CuSeqlens[i+1]], bad) {
						return failing(status)
					}
				}
				return nil
			}
		}, []string{mean})
		rows, failures := r.all(&Request{Model: mean, Texts: texts[:2]},
			&Request{Model: mean, Tokens: [][]int32{bad}}, &Request{Model: mean, Texts: texts[2:]})
		if e := failures[1]; e == nil || e.Code != c.code || e.Status != c.status || e.Message != c.message ||
			e.Cause == nil {
			t.Errorf("the text that fails gets %v, want %s with status %d", e, c.code, c.status)
		}
		if failures[0] != nil || failures[2] != nil {
			t.Errorf("the others get %v and %v", failures[0], failures[2])
			continue
		}
		for i, row := range append(rows[0], rows[2]...) {
			if !bytes.Equal(row, want[i]) {
				t.Errorf("text %d has another vector beside one that fails", i)
			}
		}
		if r.Lost() {
			t.Errorf("the device counts as lost after %v", failing(status))
		}
	}
}

// A lost device fails its batches once, with an error that sends clients to another worker. A batch
// that finished before keeps its answers, and LostC closes.
func TestLostDevice(t *testing.T) {
	lost, running := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	r := start(t, func(o *Options) {
		held(2)(o)
		o.Intercept = func(*engine.Batch) error {
			if runs.Add(1) == 1 {
				close(running)
				<-lost
				return nil
			}
			return failing(engine.StatusDeviceLost)
		}
	}, []string{mean})
	var before [][]byte
	var wg sync.WaitGroup
	wg.Go(func() { before = r.encode(&Request{Model: mean, Texts: words(2)}) })
	<-running
	_, failures := r.all(&Request{Model: mean, Texts: words(1)}, &Request{Model: mean, Texts: words(1)})
	for _, e := range failures {
		if e == nil || e.Code != errs.Draining || e.Status != 503 || e.RetryAfter < time.Second ||
			e.Cause == nil {
			t.Errorf("got %v, want a 503 that says to retry elsewhere", e)
		}
	}
	if runs.Load() != 2 {
		t.Errorf("%d runs: a lost device must not be asked again for halves", runs.Load())
	}
	select {
	case <-r.LostC():
	default:
		t.Error("LostC is open")
	}
	close(lost)
	wg.Wait()
	if len(before) != 2 || !r.Lost() {
		t.Errorf("%d answers of the batch before, lost %v", len(before), r.Lost())
	}
}
