package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/bucket/gcs"
	"github.com/sie-engine/sie/weights/bucket/s3"
)

// openBucket returns the bucket of a setting, or nil for "". It does not contact the storage yet.
func openBucket(setting, raw string) (bucket.Bucket, error) {
	if raw == "" {
		return nil, nil
	}
	url, err := bucket.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	if url.Scheme == "gs" {
		return gcs.New(url), nil
	}
	return s3.New(url), nil
}

// Bounds of a models directory in a bucket. Package catalog has a stricter bound per file.
const (
	maxModelFiles     = 10_000
	maxModelFileBytes = 4 << 20
)

// loadFromBucket reads the YAML files at the top of a bucket, as catalog.LoadDir reads a directory.
func loadFromBucket(raw string) (*catalog.Catalog, error) {
	b, err := openBucket("--models-dir", raw)
	if err != nil {
		return nil, err
	}
	return loadFrom(b)
}

// loadFrom is loadFromBucket of an open bucket. It takes readTime at most: a bucket may take
// requests and never answer.
func loadFrom(b bucket.Bucket) (c *catalog.Catalog, err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), readTime,
		fmt.Errorf("%s did not give the model files within %v", b, readTime))
	defer cancel()
	err = withFilesOf(ctx, b, func(dir string) error {
		c, err = catalog.LoadDir(dir)
		return err
	})
	return c, err
}

// withBucketFiles calls use with a directory that holds the bucket's YAML files. It removes the
// directory afterwards.
func withBucketFiles(ctx context.Context, raw string, use func(dir string) error) error {
	b, err := openBucket("--models-dir", raw)
	if err != nil {
		return err
	}
	return withFilesOf(ctx, b, use)
}

// withFilesOf is withBucketFiles of an open bucket.
func withFilesOf(ctx context.Context, b bucket.Bucket, use func(dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "sie-models-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	objects, err := b.List(ctx, "", maxModelFiles)
	if err != nil {
		return fmt.Errorf("--models-dir: %w", err)
	}
	for _, o := range objects {
		if strings.Contains(o.Key, "/") || path.Ext(o.Key) != ".yaml" || !filepath.IsLocal(o.Key) {
			continue
		}
		text, _, err := bucket.Read(ctx, b, o.Key, maxModelFileBytes)
		if err != nil {
			return fmt.Errorf("--models-dir: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, o.Key), text, 0o600); err != nil {
			return err
		}
	}
	return use(dir)
}
