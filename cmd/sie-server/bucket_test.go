//go:build native

package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/bucket/buckettest"
)

const modelYAML = `sie_id: acme/%
hf_id: acme/%
tasks: {encode: {dense: {dim: 8}}}
profiles:
  default: {adapter_path: "sie_server.adapters.bert_flash:BertFlashAdapter", max_batch_tokens: 1024}
`

func TestModelsDirInABucket(t *testing.T) {
	for name, start := range map[string]func(testing.TB) (string, []string, string){
		"s3": buckettest.S3, "gcs": buckettest.GCS,
	} {
		t.Run(name, func(t *testing.T) {
			url, _, _ := start(t)
			b, err := openBucket("", url)
			if err != nil {
				t.Fatal(err)
			}
			put := func(key, text string) {
				if _, err := b.Put(t.Context(), key, strings.NewReader(text), int64(len(text)),
					bucket.Condition{}); err != nil {
					t.Fatal(err)
				}
			}
			put("conf/a.yaml", strings.ReplaceAll(modelYAML, "%", "a"))
			put("conf/deeper/b.yaml", strings.ReplaceAll(modelYAML, "%", "b"))
			put("conf/c.txt", "no")
			put("d.yaml", "not: ours")
			c, err := (&sourceFlags{ModelsDir: url + "/conf"}).catalog()
			if err != nil || c.Len() != 1 || c.Models()[0].ID != "acme/a" {
				t.Fatalf("%+v, %v", c, err)
			}
			put("conf/bad.yaml", "sie_id: 7")
			if _, err := (&sourceFlags{ModelsDir: url + "/conf"}).catalog(); err == nil ||
				!strings.Contains(err.Error(), "bad.yaml") {
				t.Errorf("a broken file: %v", err)
			}
		})
	}
}

func TestWrongBuckets(t *testing.T) {
	for _, f := range []sourceFlags{
		{ClusterCache: "/tmp/x", LocalCache: "c"}, {ClusterCache: "s3://", LocalCache: "c"},
	} {
		if _, _, err := f.hub(nil, nil); err == nil || !strings.Contains(err.Error(), "--") {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// silent is a bucket that takes requests and never answers.
type silent struct{ bucket.Bucket }

func (silent) String() string { return "s3://silent/" }

func (silent) List(ctx context.Context, _ string, _ int) ([]bucket.Object, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A bucket that never answers ends a start with an error that names it and the time.
func TestModelsDirInASilentBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c, err := loadFrom(silent{})
		if took := time.Since(began); c != nil || err == nil || took != readTime ||
			!strings.Contains(err.Error(), "--models-dir: s3://silent/ did not give the model files within 2m0s") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
