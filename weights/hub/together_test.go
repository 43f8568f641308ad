package hub

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Two parts of one commit, downloaded one after the other, are both there without the hub, in
// either order; neither makes a model of them, and the model does not undo them.
func TestPartsOfOneCommit(t *testing.T) {
	for _, adapterFirst := range []bool{true, false} {
		h := newHarness(t)
		files := adapterAndModel()
		delete(files, "adapter_model.safetensors") // a model's download leaves this one out:
		files["adapter_model.bin"] = []byte("pickle")
		h.hub.Add("t/both", files)
		online, offline := h.resolver(), h.resolver(func(o *Options) { o.Offline = true })
		adapter := func(r *Resolver) (Resolved, error) {
			return r.ResolveAdapter(t.Context(), adapterOf("t/both"))
		}
		tokenizer := func(r *Resolver) (Resolved, error) {
			return r.ResolveTokenizer(t.Context(), "t/both", "")
		}
		steps := []func(*Resolver) (Resolved, error){adapter, tokenizer}
		if !adapterFirst {
			slices.Reverse(steps)
		}
		for i, step := range steps {
			if _, err := step(online); err != nil {
				t.Fatal(err)
			}
			for _, earlier := range steps[:i+1] {
				if _, err := earlier(offline); err != nil {
					t.Errorf("adapter first %v, after %d: %v", adapterFirst, i+1, err)
				}
			}
		}
		_, err := offline.Resolve(t.Context(), "t/both", "")
		wantClass(t, err, ClassNotFound, "only a part")
		if _, err := online.Resolve(t.Context(), "t/both", ""); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, func(r *Resolver) (Resolved, error) {
			return r.Resolve(t.Context(), "t/both", "")
		})
		for i, step := range steps {
			if _, err := step(offline); err != nil {
				t.Errorf("adapter first %v, with the model, %d: %v", adapterFirst, i, err)
			}
		}
	}
}

// Files beside an adapter are downloaded where they are wanted. An adapter that was downloaded
// without asking for them does not count then; where the repository has none, that is remembered.
func TestFilesBesideAnAdapter(t *testing.T) {
	for _, has := range []bool{true, false} {
		h := newHarness(t)
		files := adapterAndModel()
		if !has {
			delete(files, "modules.json")
		}
		h.hub.Add("t/both", files)
		online, offline := h.resolver(), h.resolver(func(o *Options) { o.Offline = true })
		bare, with := adapterOf("t/both"), adapterOf("t/both")
		with.Beside = []string{"modules.json", "nowhere.json"}
		if _, err := online.ResolveAdapter(t.Context(), bare); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := online.FindAdapter(t.Context(), with); ok || err != nil {
			t.Errorf("modules.json in it %v: found without it: %v", has, err)
		}
		_, _, err := offline.Preview(t.Context(), "t/both", "", with.Beside...)
		wantClass(t, err, ClassNotFound, "only a part")
		if !errors.Is(err, ErrOnlyAdapter) {
			t.Errorf("%v is not ErrOnlyAdapter", err)
		}
		_, own := offline.ResolveAdapter(t.Context(), with)
		for _, err := range []error{err, own} { // what is missing, and how to get it
			wantClass(t, err, ClassNotFound, "whether it has modules.json, nowhere.json is not known")
			wantClass(t, err, ClassNotFound, "`sie-server pull t/both`")
		}
		many := with
		many.Beside = []string{"a", "b", "a", "adapter_config.json", "c", "d", "e"}
		_, err = offline.ResolveAdapter(t.Context(), many)
		wantClass(t, err, ClassNotFound, "whether it has a, b, c and 2 more is not known")
		found, err := online.ResolveAdapter(t.Context(), with)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"adapter_config.json", "adapter_model.safetensors"}
		if has {
			want = append(want, "modules.json")
		}
		if got := in(t, found.Dir); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		for _, a := range []Adapter{bare, with} {
			if again, err := offline.ResolveAdapter(t.Context(), a); err != nil || again.Dir != found.Dir {
				t.Errorf("modules.json in it %v, without the hub: %+v, %v", has, again, err)
			}
		}
		dir, remove, err := offline.Preview(t.Context(), "t/both", "", "modules.json")
		if err != nil || dir != found.Dir {
			t.Errorf("modules.json in it %v: the preview is %s, %v", has, dir, err)
		} else {
			remove()
		}
		if _, _, err := offline.Preview(t.Context(), "t/both", "", "config.json"); err == nil {
			t.Errorf("a preview with files that were not asked for")
		}
	}
}

// The repositories of one model report as one download, whose bytes only grow and which ends once.
func TestOneReportForAllParts(t *testing.T) {
	h := newHarness(t)
	h.hub.Add("t/tuned", adapterAndModel())
	var seen []Progress
	r := h.resolver(func(o *Options) { o.Progress = func(p Progress) { seen = append(seen, p) } })
	get := func() {
		ctx, end := Together(t.Context(), "both")
		if _, err := r.Resolve(ctx, modelID, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ResolveAdapter(ctx, adapterOf("t/tuned")); err != nil {
			t.Fatal(err)
		}
		end()
	}
	get()
	var before Progress
	for i, p := range seen {
		if p.Model != "both" || p.Bytes < before.Bytes || p.Total < before.Total || p.Of < before.Of ||
			(p.Stage == StageDone) != (i == len(seen)-1) {
			t.Errorf("%d: %+v after %+v", i, p, before)
		}
		before = p
	}
	var bytes int64
	blobs, _ := filepath.Glob(filepath.Join(h.cache, "models--*", "blobs", "*"))
	for _, blob := range blobs {
		bytes += partialSize(blob, 1<<40)
	}
	n := len(blobs)
	if before.Total != bytes || before.Bytes != bytes || before.Files != n || before.Of != n {
		t.Errorf("in the end %+v; %d blobs have %d bytes", before, len(blobs), bytes)
	}
	seen = nil
	if get(); len(seen) > 0 {
		t.Errorf("with everything in the cache: %v", seen)
	}
}

// A part stays while its model is there, however long ago it was used, and leaves with it.
func TestPartsLeaveTheDiskWithTheirModel(t *testing.T) {
	d := newSmallDisk(t, 5*modelBytes) // 85 % of it holds four
	d.use("t/part")
	d.use("t/other")
	d.use("t/model")
	together := func() {
		model, err := d.get("t/model")
		if err != nil {
			t.Fatal(err)
		}
		part, _, err := d.small().Find(context.Background(), "t/part", "")
		if err != nil {
			t.Fatal(err)
		}
		model.KeepWith(part, Resolved{Dir: t.TempDir(), Source: SourceLocal})
		part.Release()
		model.Release()
		time.Sleep(5 * time.Millisecond)
	}
	together()
	d.use("t/other")
	d.use("t/a")
	d.wantModels("a", "model", "other", "part")
	d.use("t/b")
	d.wantModels("a", "b", "other") // one would have been enough
	d.use("t/part")
	d.wantModels("a", "b", "other", "part")
	d.use("t/model") // other goes
	together()
	d.use("t/a")
	d.use("t/b")
	d.use("t/part") // by itself, later
	d.use("t/c")
	d.wantModels("a", "b", "c", "part")
}

// A part of two models stays until both are gone.
func TestPartsOfTwoModels(t *testing.T) {
	d := newSmallDisk(t, 5*modelBytes)
	d.use("t/part")
	for _, id := range []string{"t/one", "t/two"} {
		model, err := d.get(id)
		if err != nil {
			t.Fatal(err)
		}
		part, _, err := d.small().Find(context.Background(), "t/part", "")
		if err != nil {
			t.Fatal(err)
		}
		model.KeepWith(part)
		part.Release()
		model.Release()
		time.Sleep(5 * time.Millisecond)
	}
	d.use("t/a")
	d.use("t/b")
	d.wantModels("a", "b", "part", "two")
	d.use("t/c")
	d.wantModels("a", "b", "c")
}
