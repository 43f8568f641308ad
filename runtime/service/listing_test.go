package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/service/servicetest"
	"github.com/sie-engine/sie/runtime/testmodels"
)

// What the catalog does not say of a model is listed once it is loaded.
func TestListings(t *testing.T) {
	damaged := testmodels.CopyModel(t, "st-mean")
	if err := os.Remove(filepath.Join(damaged, "config.json")); err != nil {
		t.Fatal(err)
	}
	s, r := start(t, []string{mean}, testmodels.AdHoc(t, "test/damaged", damaged))
	info, err := s.Model(mean)
	if err != nil || info.Loaded || info.State != "available" || info.Dims.Dense != 0 ||
		info.MaxSequenceLength != nil || info.LastError != nil {
		t.Errorf("before: %+v, %v", info, err)
	}
	r.Vectors(mean, "the cat")
	info, err = s.Model(mean)
	if err != nil || !info.Loaded || info.State != "loaded" || info.Dims.Dense != 32 ||
		info.MaxSequenceLength == nil || *info.MaxSequenceLength != 40 {
		t.Errorf("loaded: %+v, %v", info, err)
	}
	r.Refused(t.Context(), &servicetest.Request{Model: "test/damaged", Texts: []string{"a"}},
		errs.ModelLoadFailed, 502)
	list := s.Models()
	if len(list) != 2 || list[1].Name != mean || !list[1].Loaded || list[0].State != "failed" ||
		list[0].Loaded || list[0].LastError == nil || list[0].LastError.Code != "CONFIG" ||
		!list[0].LastError.Permanent || list[0].LastError.Attempts != 1 ||
		strings.Contains(list[0].LastError.Message, filepath.Dir(damaged)) {
		t.Errorf("all: %+v", list)
	}
	if _, err := s.Model("none"); errs.As(err).Status != 404 {
		t.Errorf("an unknown id: %v", err)
	}
	st := s.Status()
	m := st.Models[0]
	if len(st.Loaded) != 1 || st.Loaded[0] != mean || m.Name != mean || m.Device == nil ||
		*m.Device != "cpu" || m.MemoryBytes == 0 || *m.Config.MaxSequenceLength != 40 ||
		st.MaxBatchRequests != 64 || st.GPUs == nil || len(st.GPUs) != 0 {
		t.Errorf("status %+v", st)
	}
}

// The status lists every id; shared weights are counted once, under the first id.
func TestStatusListsEveryID(t *testing.T) {
	dir := golden.Open(t, "st-mean").Dir
	damaged := testmodels.CopyModel(t, "st-mean")
	if err := os.Remove(filepath.Join(damaged, "config.json")); err != nil {
		t.Fatal(err)
	}
	s, r := start(t, []string{testmodels.CLS}, testmodels.AdHoc(t, "test/damaged", damaged),
		testmodels.Family(t, "test/two", dir, "  short: {extends: default, max_batch_tokens: 2048}\n"))
	r.Vectors("test/two:short", "the cat")
	r.Refused(t.Context(), &servicetest.Request{Model: "test/damaged", Texts: []string{"a"}},
		errs.ModelLoadFailed, 502)
	st := s.Status()
	if want := []string{"test/two", "test/two:short"}; !slices.Equal(st.Loaded, want) {
		t.Errorf("loaded %v, want %v", st.Loaded, want)
	}
	var got []string
	for _, m := range st.Models {
		got = append(got, fmt.Sprintf("%s %s device:%v memory:%v batching:%v dims:%v",
			m.Name, m.State, m.Device != nil, m.MemoryBytes > 0, m.AdaptiveBatching != nil, m.Config.Dims))
	}
	want := []string{
		"test/two loaded device:true memory:true batching:true dims:map[dense:32]",
		"test/cls available device:false memory:false batching:false dims:map[]",
		"test/damaged failed device:false memory:false batching:false dims:map[]",
		"test/two:short loaded device:true memory:false batching:false dims:map[dense:32]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Watchers read these fields of a card.
func TestGPUsOnTheWire(t *testing.T) {
	const want = `[{"device":"cuda:2","name":"NVIDIA L4","gpu_type":"l4","utilization_pct":7,"memory_used_bytes":90,"memory_total_bytes":100,"memory_threshold_pct":95}]`
	got, err := json.Marshal(service.Cards([]model.GPU{
		{Device: "cuda:2", Name: "NVIDIA L4", Type: "l4", Utilization: 7, Used: 90, Total: 100,
			Threshold: 95},
	}))
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// A queue that takes no more items saturates the worker.
func TestStatusOfAFullQueue(t *testing.T) {
	r := servicetest.Start(t, func(o *servicetest.Options) { servicetest.Held(1000)(o); o.MaxQueueItems = 3 },
		[]string{mean})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for n := 1; n <= 3; n++ {
		all.Go(func() { _, _ = r.Encode(ctx, &servicetest.Request{Model: mean, Texts: []string{"a"}}) })
		r.Queued(mean, n)
		if st := r.Service.Status(); st.Saturated != (n == 3) || st.Models[0].QueueDepth != n {
			t.Errorf("%d of 3 items wait: saturated %v, %d", n, st.Saturated, st.Models[0].QueueDepth)
		}
	}
}
