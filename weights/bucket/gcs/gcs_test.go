package gcs

import (
	"errors"
	"testing"

	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/bucket/buckettest"
)

func open(t *testing.T, raw string) *Bucket {
	url, err := bucket.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return New(url)
}

// The client sends chunks of 16 MiB.
const large = 17 << 20

func TestContract(t *testing.T) {
	url, _, _ := buckettest.GCS(t)
	buckettest.Contract(t, open(t, url), large)
}

func TestContractBelowAPrefix(t *testing.T) {
	url, _, _ := buckettest.GCS(t)
	buckettest.Contract(t, open(t, url+"/some/prefix"), large)
}

func TestMissingBucketIsDenied(t *testing.T) {
	buckettest.GCS(t)
	if _, err := open(t, "gs://not-there").List(t.Context(), "", 1); !errors.Is(err, bucket.ErrDenied) {
		t.Error(err)
	}
}
