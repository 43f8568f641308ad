package model

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sie-engine/sie/runtime/engine"
)

// The predicted scratch memory of a model is enough for a full batch of short texts with all
// outputs, token vectors included. A load of another model leaves that much free.
func TestLargestBatchTakesWhatWasSaid(t *testing.T) {
	const tokens, items = 4096, 512
	dir := withTokenizer(t, "bge-m3", "st-xlmr-mean-torch", map[string]any{})
	shrink(t, dir, 111)
	m := entry(t, "m3", dir, "bge_m3_flash",
		"tasks: {encode: {dense: {dim: 64}, sparse: {dim: 111}, multivector: {dim: 64}}, score: {}}")
	m.Profiles[0].MaxBatchTokens = tokens
	r := start(t, func(o *Options) { held(items)(o); o.LoadWait = 20 * time.Second }, nil, m)
	if err := r.Preload(t.Context(), "m3"); err != nil {
		t.Fatal(err)
	}
	said := r.copy("m3").largest() // before a request records the program of three outputs
	lists := slices.Repeat([][]int32{slices.Repeat([]int32{7, 8}, tokens/items/2)}, items)
	if _, err := r.Encode(t.Context(), &Request{
		Model: "m3", Tokens: lists, OutputTypes: []string{"dense", "sparse", "multivector"},
	}); err != nil {
		t.Fatal(err)
	}
	has := r.devices[0].runner.Stats()
	if has.Batches != 1 || has.Tokens != tokens {
		t.Fatalf("%d batches of %d tokens: the test proves nothing", has.Batches, has.Tokens)
	}
	arena, slots := said.Bytes()
	if now := r.copy("m3").largest(); !reflect.DeepEqual(now, said) || has.ArenaBytes > arena ||
		2*has.SlotBytes > slots {
		t.Errorf("the runner has %d bytes and in one of two slots %d; %+v was said, now %+v",
			has.ArenaBytes, has.SlotBytes, said, now)
	}
	// The arena of this batch must be replaced for another batch, and exists beside the new one
	// until this batch has run.
	if left, want := r.promised(r.devices[0], engine.Footprint{}), arena+slots-has.SlotBytes; left != want ||
		has.SlotBytes < slots/4 {
		t.Errorf("%d bytes are kept free for batches, want %d of %+v", left, want, said)
	}

	// Another pooling is recorded on demand; its batches count from then on.
	if _, err := r.copy("m3").Variant(r.copy("m3").weights.All()); err != nil {
		t.Fatal(err)
	}
	r.copy("m3").scratch = engine.Footprint{}
	want := r.copy("m3").weights.Own()
	want.Pooling = 1 + want.Pooling%2
	if _, err := r.copy("m3").Variant(want); err != nil || whole(r.copy("m3").largest()) == 0 {
		t.Errorf("a recorded program counts as %+v, %v", r.copy("m3").largest(), err)
	}
}
