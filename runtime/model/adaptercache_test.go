package model

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/golden"
)

// An adapter loads in the background, and until then requests get a 503. After that, requests with
// different adapters share a batch and get the same results as alone.
func TestLoRA(t *testing.T) {
	dir := withTokenizer(t, "lora-bert", "st-mean", nil)
	adapters := filepath.Join(golden.Open(t, "lora-bert").Dir, "adapters")
	m := loadtime(t, "lo", dir, "bert_flash", "tasks: {encode: {dense: {dim: 64}}}", fmt.Sprintf(
		"{lora_paths: {four: %s/rank4, other: %s/rslora, third: %s/patterns}}", adapters, adapters, adapters))
	r := start(t, func(o *Options) { o.MaxLoRAs = 2 }, nil, m)
	with := func(lora string) *Request {
		req := &Request{Model: "lo", Texts: []string{"the cat sat on the mat"}, Options: map[string]any{}}
		if lora != "" {
			req.Options["lora_id"] = lora
		}
		return req
	}
	row := func(lora string) string {
		t.Helper()
		deadline := time.Now().Add(2 * time.Minute)
		for {
			res, err := r.Encode(t.Context(), with(lora))
			if err == nil {
				return string(res.Rows[0])
			}
			if e := errs.As(err); e.Code != errs.LoRALoading || e.Status != 503 ||
				e.RetryAfter != time.Second || time.Now().After(deadline) {
				t.Fatalf("%q: %v (retry after %v)", lora, err, e.RetryAfter)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	plain := row("")
	// four and other are loaded: one must be removed first
	e := r.refused(t.Context(), with("third"), errs.LoRALoading, 503)
	if !strings.Contains(e.Message, "third") {
		t.Error(e.Message)
	}
	without := r.copy("lo").largest()
	seen := map[string]string{"": plain}
	for _, lora := range []string{"four", "other", "third", "four", "other"} { // three adapters, room for two
		got := row(lora)
		if was, ok := seen[lora]; ok && was != got {
			t.Errorf("%s gives another row than before it was unloaded", lora)
		}
		seen[lora] = got
	}
	if with := r.copy("lo").largest(); whole(with) <= whole(without) {
		t.Errorf("batches with adapters count as %+v, those without as %+v", with, without)
	}
	if len(seen) != 4 || seen["four"] == plain || seen["other"] == seen["four"] || seen["third"] == plain {
		t.Error("adapters change nothing")
	}
	var all sync.WaitGroup
	for i := range 60 {
		lora := []string{"", "four", "other"}[i%3]
		all.Go(func() {
			if res, err := r.Encode(t.Context(), with(lora)); err == nil &&
				string(res.Rows[0]) != seen[lora] {
				t.Errorf("%q: in company another row", lora)
			}
		})
	}
	all.Wait()
	for lora, want := range map[string]string{
		"/etc": "must name a hub repository", "../x": "must name a hub repository",
	} {
		if e := r.refused(t.Context(), with(lora), errs.InvalidInput, 400); !strings.Contains(e.Message,
			want) {
			t.Errorf("%s: %s", lora, e.Message)
		}
	}
	refusedAdapter(t, r, with("acme/nowhere"))
}

// refusedAdapter requests an adapter that cannot be loaded: the first answers say that it is
// loading, then it is an error of the client.
func refusedAdapter(t *testing.T, r *rig, req *Request) {
	for {
		_, err := r.Encode(context.Background(), req)
		e := errs.As(err)
		if e.Code == errs.LoRALoading {
			time.Sleep(time.Millisecond)
			continue
		}
		if e.Status != 400 || e.Param != "options.lora_id" ||
			!strings.Contains(e.Message, `names "acme/nowhere", which cannot be used`) {
			t.Errorf("%v", err)
		}
		return
	}
}
