// Package gcs implements a bucket of Google Cloud Storage. It uses the application default
// credentials (GOOGLE_APPLICATION_CREDENTIALS, gcloud, the instance's account) and looks for them
// at the first request. STORAGE_EMULATOR_HOST names another server.
package gcs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"

	"github.com/sie-engine/sie/weights/bucket"
)

// Bucket implements bucket.Bucket.
type Bucket struct {
	url  bucket.URL
	dial func() (*storage.BucketHandle, error)
}

// New returns the bucket of a gs:// URL without making a request.
func New(url bucket.URL) *Bucket {
	return &Bucket{url: url, dial: bucket.Once(func() (*storage.BucketHandle, error) {
		c, err := storage.NewClient(context.Background())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", url, err)
		}
		return c.Bucket(url.Name).Retryer(storage.WithPolicy(storage.RetryNever)), nil
	})}
}

func (b *Bucket) String() string { return b.url.String() }

func (b *Bucket) object(key string) (*storage.ObjectHandle, error) {
	c, err := b.dial()
	if err != nil {
		return nil, err
	}
	return c.Object(b.url.Prefix + key), nil
}

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, prefix string, limit int) ([]bucket.Object, error) {
	c, err := b.dial()
	if err != nil {
		return nil, err
	}
	query := &storage.Query{Prefix: b.url.Prefix + prefix}
	if err := query.SetAttrSelection([]string{"Name", "Size", "Generation", "Updated"}); err != nil {
		return nil, err
	}
	var out []bucket.Object
	for objects := c.Objects(ctx, query); ; {
		o, err := objects.Next()
		if errors.Is(err, iterator.Done) {
			return out, nil
		}
		if err != nil {
			return nil, b.explain(ctx, err)
		}
		if len(out) == limit {
			return nil, fmt.Errorf("%s%s: more than %d objects", b, prefix, limit)
		}
		out = append(out, bucket.Object{Key: strings.TrimPrefix(o.Name, b.url.Prefix), Size: o.Size,
			Version: strconv.FormatInt(o.Generation, 10), Modified: o.Updated})
	}
}

// Open implements bucket.Bucket.
func (b *Bucket) Open(
	ctx context.Context, key string, from int64, version string,
) (bucket.Object, io.ReadCloser, error) {
	h, err := b.object(key)
	if err != nil {
		return bucket.Object{}, nil, err
	}
	if version != "" {
		generation, err := strconv.ParseInt(version, 10, 64)
		if err != nil {
			return bucket.Object{}, nil, bucket.ErrChanged
		}
		h = h.If(storage.Conditions{GenerationMatch: generation})
	}
	r, err := h.ReadCompressed(true).NewRangeReader(ctx, from, -1)
	if err != nil {
		return bucket.Object{}, nil, b.explain(ctx, err)
	}
	o := bucket.Object{
		Key:      key,
		Size:     r.Attrs.Size,
		Version:  strconv.FormatInt(r.Attrs.Generation, 10),
		Modified: r.Attrs.LastModified,
	}
	if r.Attrs.StartOffset != from || version != "" && o.Version != version {
		return o, nil, errors.Join(bucket.ErrChanged, r.Close())
	}
	return o, r, nil
}

// Put implements bucket.Bucket. A large object is sent in chunks of the client's own size, and the
// client retries each chunk for a while.
func (b *Bucket) Put(
	ctx context.Context, key string, body io.ReaderAt, size int64, when bucket.Condition,
) (string, error) {
	h, err := b.object(key)
	if err != nil {
		return "", err
	}
	if when.Absent {
		h = h.If(storage.Conditions{DoesNotExist: true})
	}
	if when.Version != "" {
		generation, err := strconv.ParseInt(when.Version, 10, 64)
		if err != nil {
			return "", bucket.ErrChanged
		}
		h = h.If(storage.Conditions{GenerationMatch: generation})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // cancelled before Close, the object does not appear
	w := h.NewWriter(ctx)
	if _, err := io.Copy(w, io.NewSectionReader(body, 0, size)); err != nil {
		cancel()
		return "", errors.Join(b.explain(context.Background(), err), ignore(w.Close()))
	}
	if err := w.Close(); err != nil {
		return "", b.explain(ctx, err)
	}
	return strconv.FormatInt(w.Attrs().Generation, 10), nil
}

// ignore drops the error of closing a cancelled upload, which repeats the cause.
func ignore(error) error { return nil }

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	h, err := b.object(key)
	if err != nil {
		return err
	}
	if err = b.explain(ctx, h.Delete(ctx)); errors.Is(err, bucket.ErrNotFound) {
		return nil
	}
	return err
}

// explain turns an error of the client into one of package bucket.
func (b *Bucket) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	kind := error(nil)
	api, _ := errors.AsType[*googleapi.Error](err)
	switch {
	case errors.Is(err, storage.ErrBucketNotExist):
		return fmt.Errorf("there is no bucket %s: %w", b.url.Name, bucket.ErrDenied)
	case errors.Is(err, storage.ErrObjectNotExist):
		return fmt.Errorf("%s: %w", b, bucket.ErrNotFound)
	case api == nil:
		return fmt.Errorf("%s: %w", b, bucket.Brief(err))
	case api.Code == http.StatusNotFound:
		kind = bucket.ErrNotFound
	case api.Code == http.StatusPreconditionFailed, api.Code == http.StatusRequestedRangeNotSatisfiable:
		kind = bucket.ErrChanged
	case api.Code == http.StatusUnauthorized, api.Code == http.StatusForbidden:
		kind = bucket.ErrDenied
	default:
		return fmt.Errorf("%s: %d %s", b, api.Code, bucket.Told(api.Message))
	}
	return fmt.Errorf("%s: %d %s: %w", b, api.Code, bucket.Told(api.Message), kind)
}
