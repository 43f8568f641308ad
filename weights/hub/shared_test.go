package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/bucket/buckettest"
	"github.com/sie-engine/sie/weights/bucket/gcs"
	"github.com/sie-engine/sie/weights/bucket/s3"
)

// cluster is a harness with a bucket on a real S3 server. Each machine has its own cache.
type cluster struct {
	*harness
	bucket bucket.Bucket
	env    []string // environment for processes
	dir    string   // the bucket's objects as files
}

func newCluster(t *testing.T) *cluster {
	raw, env, dir := buckettest.S3(t)
	url, err := bucket.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{newHarness(t), s3.New(url), append(env, "SIE_TEST_BUCKET="+raw), dir}
}

// machine moves the harness to another machine, with an empty cache.
func (c *cluster) machine() { c.cache = filepath.Join(c.T.TempDir(), "cache") }

func (c *cluster) shared(o *Options) { o.Bucket = c.bucket }
func noHub(o *Options)               { o.Offline = true }

// fill downloads the model from the hub and waits until it is in the bucket.
func (c *cluster) fill() {
	c.Helper()
	r := c.resolver(c.shared)
	found, err := r.Resolve(context.Background(), modelID, "")
	if err != nil || found.Source != SourceHub {
		c.Fatalf("%+v, %v", found, err)
	}
	r.Shutdown(context.Background())
	c.hub.Requests()
}

// keys returns the keys of the bucket's objects.
func (c *cluster) keys() []string {
	c.Helper()
	list, err := c.bucket.List(context.Background(), "", 1000)
	if err != nil {
		c.Fatal(err)
	}
	var keys []string
	for _, o := range list {
		keys = append(keys, o.Key)
	}
	return keys
}

// wantFromBucket resolves on a new machine without a hub.
func (c *cluster) wantFromBucket() {
	c.Helper()
	c.machine()
	found, err := c.resolve(c.shared, noHub)
	if err != nil || found.Source != SourceBucket || found.Commit != c.model.Commit {
		c.Fatalf("%+v, %v; want it from the bucket", found, err)
	}
	c.wantWhole(found.Dir)
	again, err := c.resolve(noHub)
	if err != nil || again.Source != SourceCache || again.Dir != found.Dir {
		c.Errorf("then without a bucket: %+v, %v", again, err)
	}
}

func TestOneDownloadFillsTheBucketForOthers(t *testing.T) {
	c := newCluster(t)
	c.fill()
	var want []string
	folder := "models--sie-test--tiny-bert"
	for _, f := range c.listing().files {
		want = append(want, folder+"/blobs/"+f.hash)
	}
	want = append(want, folder+"/.sie/"+c.model.Commit+".json", folder+"/refs/main")
	slices.Sort(want)
	if got := c.keys(); !slices.Equal(got, slices.Compact(want)) {
		t.Errorf("objects %q, want %q", got, want)
	}
	if left, _ := filepath.Glob(filepath.Join(c.repo().dir, ".sie", "*.share")); len(left) > 0 {
		t.Errorf("marks left: %q", left)
	}
	c.hub.Requests()
	c.wantFromBucket()

	// With a commit and the hub running: the hub is not asked.
	c.machine()
	found, err := c.resolver(c.shared).Resolve(t.Context(), modelID, c.model.Commit)
	if err != nil || found.Source != SourceBucket {
		t.Errorf("%+v, %v", found, err)
	}
	c.wantWhole(found.Dir)
	if r := c.hub.Requests(); len(r) > 0 {
		t.Errorf("the hub was asked %+v", r)
	}
}

// An adapter from a repository with more files is not uploaded, because other machines would take
// it for the whole repository. An adapter that is the whole repository is uploaded.
func TestPartOfARepositoryStaysOutOfTheBucket(t *testing.T) {
	c := newCluster(t)
	c.hub.Add("t/both", adapterAndModel())
	whole := adapterAndModel()
	for name := range whole {
		if name != "adapter_config.json" && name != "adapter_model.safetensors" {
			delete(whole, name)
		}
	}
	c.hub.Add("t/adapter", whole)
	for id, want := range map[string]bool{"t/both": false, "t/adapter": true} {
		r := c.resolver(c.shared)
		found, err := r.ResolveAdapter(t.Context(), adapterOf(id))
		if err != nil {
			t.Fatal(err)
		}
		found.Release()
		r.Shutdown(t.Context())
		folder := "models--" + strings.ReplaceAll(id, "/", "--")
		if got := slices.ContainsFunc(c.keys(),
			func(key string) bool { return strings.HasPrefix(key, folder) }); got != want {
			t.Errorf("%s is in the bucket: %v", id, got)
		}
		if left, _ := filepath.Glob(filepath.Join(c.cache, folder, ".sie", "*.share")); len(left) > 0 {
			t.Errorf("marks left: %q", left)
		}
	}
}

func TestDiskComesBeforeBucket(t *testing.T) {
	c := newCluster(t)
	if _, err := c.resolve(); err != nil {
		t.Fatal(err)
	}
	closed := broken{
		c.bucket, func(string) error { t.Error("the bucket was asked"); return errors.New("no") }, nil,
	}
	if found, err := c.resolve(func(o *Options) { o.Bucket = closed }); err != nil ||
		found.Source != SourceCache {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestModelThatNobodyHas(t *testing.T) {
	c := newCluster(t)
	_, err := c.resolver(c.shared, noHub).Resolve(t.Context(), "nobody/nothing", "")
	wantClass(t, err, ClassNotFound, "the cluster cache s3://models/ does not have it", "downloads are off")
	_, err = c.resolver(c.shared).Resolve(t.Context(), "nobody/nothing", "")
	wantClass(t, err, ClassNotFound)
}

// broken is a bucket whose reads and writes may fail.
type broken struct {
	bucket.Bucket
	open func(key string) error
	put  func(key string) error
}

func (b broken) Open(
	ctx context.Context, key string, from int64, version string,
) (bucket.Object, io.ReadCloser, error) {
	if b.open != nil {
		if err := b.open(key); err != nil {
			return bucket.Object{}, nil, err
		}
	}
	return b.Bucket.Open(ctx, key, from, version)
}

func (b broken) Put(
	ctx context.Context, key string, body io.ReaderAt, size int64, when bucket.Condition,
) (string, error) {
	if b.put != nil {
		if err := b.put(key); err != nil {
			return "", err
		}
	}
	return b.Bucket.Put(ctx, key, body, size, when)
}

func TestUnreachableBucketFallsBackToTheHub(t *testing.T) {
	for name, failure := range map[string]error{
		"away": errors.New("connection refused"), "refused": bucket.ErrDenied,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			away := func(o *Options) {
				o.Bucket = broken{
					c.bucket, func(string) error { return failure }, func(string) error { return failure },
				}
			}
			r := c.resolver(away)
			found, err := r.Resolve(t.Context(), modelID, "")
			if err != nil || found.Source != SourceHub {
				t.Fatalf("%+v, %v", found, err)
			}
			c.wantWhole(found.Dir)
			r.Shutdown(t.Context())
			// The model is uploaded at the next load, when the bucket works again.
			again := c.resolver(c.shared)
			if found, err := again.Resolve(t.Context(), modelID, ""); err != nil ||
				found.Source != SourceCache {
				t.Errorf("%+v, %v", found, err)
			}
			again.Shutdown(t.Context())
			c.wantFromBucket()

			c.machine()
			_, err = c.resolve(away, noHub)
			if name == "away" {
				wantClass(t, err, ClassNetwork, "cluster cache", "connection refused")
			} else {
				wantClass(t, err, ClassConfig, "credentials")
			}
		})
	}
}

func TestNoModelWithoutItsManifest(t *testing.T) {
	c := newCluster(t)
	c.fill()
	if err := c.bucket.Delete(t.Context(), "models--sie-test--tiny-bert/.sie/"+c.model.Commit+
		".json"); err != nil {
		t.Fatal(err)
	}
	c.machine()
	_, err := c.resolve(c.shared, noHub)
	wantClass(t, err, ClassNotFound, "does not have it")
	c.wantInvisible()
}

func TestDamagedBlobIsNotUsedAndIsReplaced(t *testing.T) {
	c := newCluster(t)
	c.fill()
	key := "models--sie-test--tiny-bert/blobs/" + filepath.Base(c.blobOf("model.safetensors"))
	wrong := slices.Clone(c.model.Files["model.safetensors"])
	wrong[77]++
	if _, err := c.bucket.Put(t.Context(), key, bytes.NewReader(wrong), int64(len(wrong)),
		bucket.Condition{}); err != nil {
		t.Fatal(err)
	}
	c.machine()
	_, err := c.resolve(c.shared, noHub)
	wantClass(t, err, ClassNetwork, "arrived damaged")
	c.wantInvisible()
	c.fill()
	c.wantFromBucket()
}

func TestManifestOfAnotherSizeIsRefused(t *testing.T) {
	c := newCluster(t)
	c.fill()
	key := "models--sie-test--tiny-bert/.sie/" + c.model.Commit + ".json"
	raw, _, err := bucket.Read(t.Context(), c.bucket, key, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for old, bad := range map[string]string{
		`"size": 100000`: `"size": 99999`,
		`"format": 1`:    `"format": 2`,
		`"config.json"`:  `"../config.json"`,
		`"hash": "`:      `"hash": "../`,
	} {
		text := strings.Replace(string(raw), old, bad, 1)
		if text == string(raw) {
			t.Fatalf("the manifest has no %s", old)
		}
		if _, err := c.bucket.Put(t.Context(), key, strings.NewReader(text), int64(len(text)),
			bucket.Condition{}); err != nil {
			t.Fatal(err)
		}
		c.machine()
		if _, err := c.resolve(c.shared, noHub); ClassOf(err) != ClassConfig && ClassOf(err) != ClassNetwork {
			t.Errorf("%s: %v", bad, err)
		}
		c.wantInvisible()
	}
}

// copyByHand copies a model into the bucket as `aws s3 cp --recursive` of a Hugging Face cache
// does.
func (c *cluster) copyByHand(without string) {
	folder := "models--sie-test--tiny-bert/"
	put := func(key string, data []byte) {
		if _, err := c.bucket.Put(context.Background(), folder+key, bytes.NewReader(data), int64(len(data)),
			bucket.Condition{}); err != nil {
			c.Fatal(err)
		}
	}
	for name, data := range c.model.Files {
		if name != without {
			put("snapshots/"+c.model.Commit+"/"+name, data)
		}
	}
	put("refs/main", []byte(c.model.Commit))
}

func TestCacheCopiedByHand(t *testing.T) {
	c := newCluster(t)
	c.copyByHand("")
	c.wantFromBucket()
	c = newCluster(t)
	c.copyByHand("tokenizer.json")
	_, err := c.resolve(c.shared, noHub)
	wantClass(t, err, ClassNotFound)
	if found, err := c.resolve(c.shared); err != nil || found.Source != SourceHub {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestKillNineInTheBucket kills a process that downloads from the bucket. The next one asks only
// for the rest.
func TestKillNineInTheBucket(t *testing.T) {
	for _, kind := range []string{"manifest", "by hand"} {
		t.Run(kind, func(t *testing.T) {
			c := newCluster(t)
			if kind == "manifest" {
				c.fill()
			} else {
				c.copyByHand("")
			}
			c.machine()
			victim, lines := c.process(append(c.env, "SIE_TEST_STALL=get", "SIE_HF_FALLBACK=0")...)
			for lines.Scan() && lines.Text() != "stalled" {
			}
			victim.Process.Kill()
			victim.Wait()
			if got := largestIn(c.repo().dir + "/blobs"); got != stallAfter {
				t.Fatalf("the victim left %d bytes, want %d", got, stallAfter)
			}
			c.wantInvisible()
			var mu sync.Mutex
			var froms []int64
			watched := watching{c.bucket, func(key string, from int64) {
				mu.Lock()
				defer mu.Unlock()
				if from > 0 {
					froms = append(froms, from)
				}
			}}
			found, err := c.resolve(func(o *Options) { o.Bucket = watched }, noHub)
			if err != nil || found.Source != SourceBucket {
				t.Fatalf("%+v, %v", found, err)
			}
			c.wantWhole(found.Dir)
			if !slices.Equal(froms, []int64{stallAfter}) {
				t.Errorf("resumed from %v", froms)
			}
		})
	}
}

type watching struct {
	bucket.Bucket
	opened func(key string, from int64)
}

func (w watching) Open(
	ctx context.Context, key string, from int64, version string,
) (bucket.Object, io.ReadCloser, error) {
	w.opened(key, from)
	return w.Bucket.Open(ctx, key, from, version)
}

// TestKillNineWhileFilling kills a process at each step of an upload to the bucket. Nothing is
// visible there. The next process that loads the model finishes the upload once the dead process's
// lock is old.
func TestKillNineWhileFilling(t *testing.T) {
	for _, step := range []string{"put blobs", "put .sie", "put refs"} {
		t.Run(step, func(t *testing.T) {
			c := newCluster(t)
			victim, lines := c.process(append(c.env, "SIE_TEST_STALL="+step)...)
			for lines.Scan() && lines.Text() != "stalled" {
			}
			victim.Process.Kill()
			victim.Wait()
			cache := c.cache
			c.machine()
			if _, err := c.resolve(c.shared, noHub); ClassOf(err) != ClassNotFound {
				t.Errorf("half of it is visible: %v", err)
			}
			c.cache = cache
			r := c.resolver(c.shared)
			r.uploads.lease = time.Hour
			if _, err := r.Resolve(t.Context(), modelID, ""); err != nil {
				t.Fatal(err)
			}
			r.Shutdown(t.Context())
			locked := slices.ContainsFunc(c.keys(),
				func(key string) bool { return strings.HasSuffix(key, ".lock") })
			if !locked {
				if step != "put refs" { // the manifest is there, so no lock was needed
					t.Error("a lock that is not old was taken")
				}
			}
			r = c.resolver(c.shared)
			r.uploads.lease = time.Millisecond
			if _, err := r.Resolve(t.Context(), modelID, ""); err != nil {
				t.Fatal(err)
			}
			r.Shutdown(t.Context())
			c.wantFromBucket()
		})
	}
}

// TestOneProcessFillsTheBucketAtATime lets four machines download from the hub at once. The
// contents are uploaded only once.
func TestOneProcessFillsTheBucketAtATime(t *testing.T) {
	c := newCluster(t)
	var uploads atomic.Int64
	gate := make(chan struct{})
	counted := broken{c.bucket, nil, func(key string) error {
		if strings.Contains(key, "/blobs/") {
			<-gate
			uploads.Add(1)
		}
		return nil
	}}
	var resolvers []*Resolver
	for range 4 {
		c.machine()
		// The bucket is skipped for downloads, so that all four come from the hub.
		r := c.resolver(func(o *Options) { o.Bucket = counted })
		r.sources = slices.DeleteFunc(r.sources,
			func(s source) bool { _, is := s.(*bucketSource); return is })
		if _, err := r.Resolve(t.Context(), modelID, ""); err != nil {
			t.Fatal(err)
		}
		resolvers = append(resolvers, r)
	}
	time.Sleep(200 * time.Millisecond) // all of them have asked for the lock
	close(gate)
	for _, r := range resolvers {
		r.Shutdown(t.Context())
	}
	different := map[string]bool{}
	for _, f := range c.listing().files {
		different[f.hash] = true
	}
	if n := uploads.Load(); n != int64(len(different)) {
		t.Errorf("%d uploads of %d contents", n, len(different))
	}
	c.wantFromBucket()
}

// TestDamagedDiskFillsNothing: a blob damaged on this disk does not get the name of a good one in
// the bucket.
func TestDamagedDiskFillsNothing(t *testing.T) {
	c := newCluster(t)
	r := c.resolver(func(o *Options) {
		o.Bucket = broken{c.bucket, nil, func(string) error { return errors.New("not now") }}
	})
	if _, err := r.Resolve(t.Context(), modelID, ""); err != nil {
		t.Fatal(err)
	}
	r.Shutdown(t.Context())
	wrong := slices.Clone(c.model.Files["model.safetensors"])
	wrong[0]++
	if err := os.WriteFile(c.blobOf("model.safetensors"), wrong, 0o644); err != nil {
		t.Fatal(err)
	}
	r = c.resolver(c.shared)
	if _, err := r.Resolve(t.Context(), modelID, ""); err != nil {
		t.Fatal(err)
	}
	r.Shutdown(t.Context())
	for _, key := range c.keys() {
		if strings.HasSuffix(key, ".json") ||
			strings.Contains(key, filepath.Base(c.blobOf("model.safetensors"))) {
			t.Errorf("uploaded %s", key)
		}
	}
}

// TestBucketOfGoogle runs upload and download over the imitation of Google's storage.
func TestBucketOfGoogle(t *testing.T) {
	raw, _, dir := buckettest.GCS(t)
	url, err := bucket.Parse(raw + "/cache")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{newHarness(t), gcs.New(url), nil, dir}
	c.fill()
	c.wantFromBucket()
	c.machine()
	c.copyByHand("")
	if err := c.bucket.Delete(t.Context(), "models--sie-test--tiny-bert/.sie/"+c.model.Commit+
		".json"); err != nil {
		t.Fatal(err)
	}
	c.wantFromBucket()
}

// TestProcessesShareOneBucketDownload starts three processes on one cache at once.
func TestProcessesShareOneBucketDownload(t *testing.T) {
	c := newCluster(t)
	c.fill()
	c.machine()
	var outs []func() string
	for range 3 {
		cmd, lines := c.process(append(c.env, "SIE_HF_FALLBACK=0")...)
		outs = append(outs, func() string {
			text := ""
			for lines.Scan() {
				text += lines.Text() + "\n"
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, text)
			}
			return text
		})
	}
	from := map[string]int{}
	for _, out := range outs {
		for line := range strings.Lines(out()) {
			from[strings.TrimSpace(line)]++
		}
	}
	if from["found bucket"] != 1 || from["found cache"] != 2 {
		t.Error(fmt.Sprint(from))
	}
}
