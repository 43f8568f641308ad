package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sie-engine/sie/weights/bucket"
)

// slowAnswers is how many stall timeouts a bucket has for a listing, which comes in many pages, and
// for its answer to a whole object, which it may put together first.
const slowAnswers = 10

// watchedBucket bounds how long a bucket may be silent. One that takes requests and never answers
// would otherwise hold a load, or all uploads, forever.
type watchedBucket struct {
	bucket.Bucket
	stall time.Duration
}

// Open implements bucket.Bucket. It fails when nothing arrives for the stall timeout, and so does
// the body.
func (b watchedBucket) Open(
	ctx context.Context, key string, from int64, version string,
) (bucket.Object, io.ReadCloser, error) {
	ctx, touch, end := watch(ctx, b.stall)
	object, body, err := b.Bucket.Open(ctx, key, from, version)
	if err != nil {
		end()
		return object, nil, b.explain(ctx, err, b.stall)
	}
	return object, &watchedBody{body: body, ctx: ctx, touch: touch, end: end}, nil
}

// List implements bucket.Bucket.
func (b watchedBucket) List(ctx context.Context, prefix string, limit int) ([]bucket.Object, error) {
	ctx, _, end := watch(ctx, slowAnswers*b.stall)
	defer end()
	list, err := b.Bucket.List(ctx, prefix, limit)
	return list, b.explain(ctx, err, slowAnswers*b.stall)
}

// Put implements bucket.Bucket. It fails when nothing of the body is taken, and no answer comes,
// for ten stall timeouts.
func (b watchedBucket) Put(
	ctx context.Context, key string, body io.ReaderAt, size int64, when bucket.Condition,
) (string, error) {
	ctx, touch, end := watch(ctx, slowAnswers*b.stall)
	defer end()
	version, err := b.Bucket.Put(ctx, key, touchingReader{body, touch}, size, when)
	return version, b.explain(ctx, err, slowAnswers*b.stall)
}

// Delete implements bucket.Bucket.
func (b watchedBucket) Delete(ctx context.Context, key string) error {
	ctx, _, end := watch(ctx, b.stall)
	defer end()
	return b.explain(ctx, b.Bucket.Delete(ctx, key), b.stall)
}

// explain says of an error of a call that it was the silence that ended it.
func (b watchedBucket) explain(ctx context.Context, err error, after time.Duration) error {
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return fmt.Errorf("%s: %w (%s)", b, errStalled, after)
	}
	return err
}

// watch returns a context that ends when touch was not called for a time. end gives it up.
func watch(ctx context.Context, silence time.Duration) (_ context.Context, touch, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	watchdog := time.AfterFunc(silence, func() { cancel(errStalled) })
	return ctx, func() { watchdog.Reset(silence) }, func() { watchdog.Stop(); cancel(nil) }
}

// touchingReader calls touch when something of it was read.
type touchingReader struct {
	io.ReaderAt
	touch func()
}

func (r touchingReader) ReadAt(p []byte, at int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, at)
	r.touch()
	return n, err
}
