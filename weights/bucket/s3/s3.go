// Package s3 implements a bucket of Amazon S3, or of any storage with its protocol, through the AWS
// SDK. It takes credentials, region and endpoint from the same places as AWS tools: AWS_* variables
// (AWS_ENDPOINT_URL for another storage), the shared configuration, the instance's role. It reads
// them at the first request, so that a start does not wait for them.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/sie-engine/sie/weights/bucket"
)

// partBytes is the minimum size of an upload's parts. Larger objects are uploaded in parts. S3
// takes at most 5 GiB in one request and 10,000 parts.
const (
	partBytes = 64 << 20
	maxParts  = 10_000
	// abortTimeout bounds the removal of a failed upload.
	abortTimeout = 10 * time.Second
)

// Bucket implements bucket.Bucket.
type Bucket struct {
	url  bucket.URL
	dial func() (*s3.Client, error)
	part int64 // partBytes; less in tests
}

// New returns the bucket of an s3:// URL without making a request.
func New(url bucket.URL) *Bucket {
	return &Bucket{url: url, part: partBytes, dial: bucket.Once(func() (*s3.Client, error) {
		cfg, err := config.LoadDefaultConfig(context.Background())
		if err != nil {
			return nil, fmt.Errorf("AWS configuration: %w", err)
		}
		return s3.NewFromConfig(cfg, func(o *s3.Options) {
			if o.Region == "" {
				o.Region = "us-east-1" // the region that other storages expect by default
			}
			// A storage with its own endpoint rarely has a host name for every bucket.
			o.UsePathStyle = o.BaseEndpoint != nil
			o.RetryMaxAttempts = 1
			// Another storage may not know the newer checksums, so they are used only where an
			// operation requires them. The cache verifies contents with its own checksums.
			o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
			o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		}), nil
	})}
}

func (b *Bucket) String() string { return b.url.String() }

func (b *Bucket) key(key string) *string { return aws.String(b.url.Prefix + key) }

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, prefix string, limit int) ([]bucket.Object, error) {
	c, err := b.dial()
	if err != nil {
		return nil, err
	}
	var out []bucket.Object
	pages := s3.NewListObjectsV2Paginator(c,
		&s3.ListObjectsV2Input{Bucket: &b.url.Name, Prefix: b.key(prefix)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, b.explain(ctx, err)
		}
		for _, o := range page.Contents {
			if len(out) == limit {
				return nil, fmt.Errorf("%s%s: more than %d objects", b, prefix, limit)
			}
			out = append(out, bucket.Object{
				Key:      strings.TrimPrefix(aws.ToString(o.Key), b.url.Prefix),
				Size:     aws.ToInt64(o.Size),
				Version:  aws.ToString(o.ETag),
				Modified: aws.ToTime(o.LastModified),
			})
		}
	}
	return out, nil
}

// Open implements bucket.Bucket.
func (b *Bucket) Open(
	ctx context.Context, key string, from int64, version string,
) (bucket.Object, io.ReadCloser, error) {
	c, err := b.dial()
	if err != nil {
		return bucket.Object{}, nil, err
	}
	in := &s3.GetObjectInput{Bucket: &b.url.Name, Key: b.key(key)}
	if from > 0 {
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", from))
	}
	if version != "" {
		in.IfMatch = &version
	}
	out, err := c.GetObject(ctx, in)
	if err != nil {
		return bucket.Object{}, nil, b.explain(ctx, err)
	}
	o := bucket.Object{
		Key:      key,
		Size:     aws.ToInt64(out.ContentLength) + from,
		Version:  aws.ToString(out.ETag),
		Modified: aws.ToTime(out.LastModified),
	}
	// A storage may answer with the whole object or with another content. Such a body must not be
	// appended to the partial file.
	begins := from == 0 || strings.HasPrefix(aws.ToString(out.ContentRange), fmt.Sprintf("bytes %d-", from))
	if !begins || version != "" && o.Version != version {
		return o, nil, errors.Join(bucket.ErrChanged, out.Body.Close())
	}
	return o, out.Body, nil
}

// Put implements bucket.Bucket. It ignores the condition for objects that are uploaded in parts.
func (b *Bucket) Put(
	ctx context.Context, key string, body io.ReaderAt, size int64, when bucket.Condition,
) (string, error) {
	c, err := b.dial()
	if err != nil {
		return "", err
	}
	if size > b.part {
		return b.putParts(ctx, c, key, body, size)
	}
	in := &s3.PutObjectInput{
		Bucket: &b.url.Name, Key: b.key(key), Body: io.NewSectionReader(body, 0, size), ContentLength: &size,
	}
	if when.Absent {
		in.IfNoneMatch = aws.String("*")
	}
	if when.Version != "" {
		in.IfMatch = &when.Version
	}
	out, err := c.PutObject(ctx, in)
	if err != nil {
		return "", b.explain(ctx, err)
	}
	return aws.ToString(out.ETag), nil
}

// putParts uploads a large object in parts, one after the other, because uploads run in the
// background. The parts of a failed upload are removed. Those of a killed process are left to the
// bucket's rule on incomplete uploads.
func (b *Bucket) putParts(
	ctx context.Context, c *s3.Client, key string, body io.ReaderAt, size int64,
) (string, error) {
	made, err := c.CreateMultipartUpload(ctx,
		&s3.CreateMultipartUploadInput{Bucket: &b.url.Name, Key: b.key(key)})
	if err != nil {
		return "", b.explain(ctx, err)
	}
	part := max(b.part, (size+maxParts-1)/maxParts)
	var done []types.CompletedPart
	for at, number := int64(0), int32(1); at < size; at, number = at+part, number+1 {
		n := min(part, size-at)
		out, err := c.UploadPart(ctx, &s3.UploadPartInput{
			Bucket:        &b.url.Name,
			Key:           b.key(key),
			UploadId:      made.UploadId,
			PartNumber:    aws.Int32(number),
			Body:          io.NewSectionReader(body, at, n),
			ContentLength: &n,
		})
		if err != nil {
			return "", b.abort(c, key, made.UploadId, b.explain(ctx, err))
		}
		done = append(done, types.CompletedPart{ETag: out.ETag, PartNumber: aws.Int32(number)})
	}
	out, err := c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket:          &b.url.Name,
		Key:             b.key(key),
		UploadId:        made.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	})
	if err != nil {
		return "", b.abort(c, key, made.UploadId, b.explain(ctx, err))
	}
	return aws.ToString(out.ETag), nil
}

// abort cancels an upload that failed with cause, even when the caller's context has ended.
func (b *Bucket) abort(c *s3.Client, key string, upload *string, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	_, err := c.AbortMultipartUpload(ctx,
		&s3.AbortMultipartUploadInput{Bucket: &b.url.Name, Key: b.key(key), UploadId: upload})
	if err != nil {
		return fmt.Errorf("%w (its parts could not be removed: %w)", cause, b.explain(ctx, err))
	}
	return cause
}

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	c, err := b.dial()
	if err != nil {
		return err
	}
	_, err = c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.url.Name, Key: b.key(key)})
	if err = b.explain(ctx, err); errors.Is(err, bucket.ErrNotFound) {
		return nil
	}
	return err
}

// explain turns an error of the SDK into one of package bucket. It keeps the storage's own code and
// message and drops the request's signature.
func (b *Bucket) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	text := err.Error()
	var code string
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code, text = api.ErrorCode(), strings.TrimSpace(api.ErrorCode()+" "+api.ErrorMessage())
	}
	text = bucket.Told(text)
	status := 0
	if r, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = r.HTTPStatusCode()
	}
	kind := error(nil)
	switch {
	case code == "NoSuchBucket":
		return fmt.Errorf("there is no bucket %s: %w", b.url.Name, bucket.ErrDenied)
	case status == http.StatusNotFound:
		kind = bucket.ErrNotFound
	case status == http.StatusPreconditionFailed, status == http.StatusConflict,
		status == http.StatusRequestedRangeNotSatisfiable:
		kind = bucket.ErrChanged
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		kind = bucket.ErrDenied
	case status == http.StatusNotImplemented:
		kind = bucket.ErrUnsupported
	default:
		return fmt.Errorf("%s: %s", b, text)
	}
	return fmt.Errorf("%s: %s: %w", b, text, kind)
}
