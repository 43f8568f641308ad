// Package bucket defines the shared object storage that the model cache needs. A [Bucket] lists
// objects, reads from an offset, and writes whole objects, optionally on a condition. The packages
// s3 and gcs implement it; [Parse] reads the URL that a user gives. A Bucket makes single requests
// and does not retry, so that its caller alone decides about retries.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sie-engine/sie/internal/files"
)

// The errors of a Bucket, for errors.Is. Any other error may pass.
var (
	ErrNotFound    = errors.New("no such object")
	ErrChanged     = errors.New("the object is not in the expected state")
	ErrDenied      = errors.New("access denied")
	ErrUnsupported = errors.New("the storage does not support this")
)

// Object describes an object, as a listing or an answer gives it.
type Object struct {
	Key      string // below the Bucket's prefix
	Size     int64
	Version  string // changes with the content: an ETag or a generation
	Modified time.Time
}

// Condition must hold for a Put to succeed. The zero value always holds.
type Condition struct {
	Absent  bool   // the key has no object
	Version string // the key's object has this version
}

// Bucket is a bucket, or the part of one below a prefix. Its methods are safe for concurrent use,
// and ctx bounds each call.
type Bucket interface {
	// String returns the URL of the bucket, for messages.
	String() string
	// List returns the objects whose keys begin with prefix, ordered by key. More than limit
	// objects are an error.
	List(ctx context.Context, prefix string, limit int) ([]Object, error)
	// Open reads an object from byte from to its end. from must be below the object's size unless
	// both are 0. With a version, an object of another version gives ErrChanged. The caller closes
	// the body. Object.Size is the size of the whole object.
	Open(ctx context.Context, key string, from int64, version string) (Object, io.ReadCloser, error)
	// Put writes size bytes of body as an object that appears whole or not at all. Errors:
	// ErrChanged when the condition does not hold, ErrUnsupported when the storage has no
	// conditions. Use conditions for small objects only.
	Put(
		ctx context.Context, key string, body io.ReaderAt, size int64, when Condition,
	) (version string, err error)
	// Delete removes an object. A missing object is no error.
	Delete(ctx context.Context, key string) error
}

// URL is a parsed bucket URL.
type URL struct {
	Scheme string // "s3" or "gs"
	Name   string
	Prefix string // "" or ends with "/"
}

func (u URL) String() string { return u.Scheme + "://" + u.Name + "/" + u.Prefix }

// IsURL reports whether a setting names a bucket and not a path.
func IsURL(s string) bool { return strings.HasPrefix(s, "s3://") || strings.HasPrefix(s, "gs://") }

// Parse reads "s3://bucket/prefix" or "gs://bucket/prefix"; the prefix is optional.
func Parse(s string) (URL, error) {
	u, err := url.Parse(s)
	if err != nil || !IsURL(s) {
		return URL{}, fmt.Errorf("%q is not a bucket; want s3://bucket/prefix or gs://bucket/prefix", s)
	}
	if u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Port() != "" {
		return URL{}, fmt.Errorf(
			"%q: want a bucket's name and an optional prefix, without credentials, port or query",
			u.Redacted())
	}
	out := URL{Scheme: u.Scheme, Name: u.Host, Prefix: strings.Trim(u.Path, "/")}
	for part := range strings.SplitSeq(out.Prefix, "/") {
		if out.Prefix != "" && (part == "" || part == "." || part == "..") {
			return URL{}, fmt.Errorf("%q: its prefix has an empty or relative part", s)
		}
	}
	if out.Prefix != "" {
		out.Prefix += "/"
	}
	return out, nil
}

// Read returns the content of an object of at most limit bytes.
func Read(ctx context.Context, b Bucket, key string, limit int64) ([]byte, Object, error) {
	object, body, err := b.Open(ctx, key, 0, "")
	if err != nil {
		return nil, object, err
	}
	raw, err := files.ReadAll(body, limit)
	if errors.Is(err, files.ErrTooLarge) {
		err = fmt.Errorf("%s%s %w", b, key, err)
	}
	err = errors.Join(err, body.Close())
	return raw, object, err
}

// maxTold bounds what an error repeats of the words of a storage or an SDK, in bytes: they reach
// logs and answers.
const maxTold = 1000

// Told returns the words of a storage as an error repeats them: the first of many.
func Told(text string) string {
	if len(text) <= maxTold {
		return text
	}
	return strings.ToValidUTF8(text[:maxTold], "") + " …"
}

// Brief returns err, with fewer words where it has many.
func Brief(err error) error {
	if text := err.Error(); len(text) > maxTold {
		return brief{Told(text), err}
	}
	return err
}

type brief struct {
	text string
	err  error
}

func (b brief) Error() string { return b.text }
func (b brief) Unwrap() error { return b.err }

// Once returns a function that returns the first result of dial without an error, and until there
// is one calls dial again: credentials may come later. Safe for concurrent use.
func Once[T any](dial func() (T, error)) func() (T, error) {
	var (
		mu    sync.Mutex
		first T
		done  bool
	)
	return func() (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return first, nil
		}
		x, err := dial()
		if err == nil {
			first, done = x, true
		}
		return x, err
	}
}
