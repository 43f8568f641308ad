package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/bucket/gcs"
	"github.com/sie-engine/sie/weights/bucket/s3"
)

// Place is where a ledger keeps its objects. Its methods are safe for concurrent use; ctx bounds
// each call. Errors are those of package bucket.
type Place interface {
	// String returns the place, for messages, with a slash at its end.
	String() string
	// Durable reports whether what is put outlives the process.
	Durable() bool
	// Get returns an object of at most limit bytes and its version.
	Get(ctx context.Context, key string, limit int64) (data []byte, version string, err error)
	// Put stores an object, whole or not at all, if the condition holds.
	Put(ctx context.Context, key string, data []byte, when bucket.Condition) (version string, err error)
	// List returns the names of the objects that begin with prefix, in order. More than limit are
	// an error.
	List(ctx context.Context, prefix string, limit int) ([]string, error)
	// Delete removes an object. A missing one is no error.
	Delete(ctx context.Context, key string) error
	// Close gives the place to others.
	Close() error
}

// OpenPlace returns the place that a setting names for a writer: a directory, which is made if it
// is missing, or an s3:// or gs:// URL. The error is a *TakenError while another process writes to
// the directory; a bucket is claimed by Claim.
func OpenPlace(setting string, me Writer) (Place, error) {
	if !bucket.IsURL(setting) {
		return openDirectory(setting, me)
	}
	u, err := bucket.Parse(setting)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "gs" {
		return objects{gcs.New(u)}, nil
	}
	return objects{s3.New(u)}, nil
}

// objects is a bucket.
type objects struct{ bucket.Bucket }

func (objects) Durable() bool { return true }
func (objects) Close() error  { return nil }

// The time that a bucket has for a call: one that takes a request and never answers must hold
// neither the start nor the removal of what is needed no more. A listing comes in many pages.
const (
	objectTime = time.Minute
	listTime   = 5 * time.Minute
)

// within calls do, which has that much time.
func (o objects) within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	timed, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	err := do(timed)
	if err != nil && timed.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", o.Bucket, context.Cause(timed))
	}
	return err
}

func (o objects) Get(ctx context.Context, key string, limit int64) (data []byte, version string, err error) {
	err = o.within(ctx, objectTime, func(ctx context.Context) error {
		var object bucket.Object
		data, object, err = bucket.Read(ctx, o.Bucket, key, limit)
		version = object.Version
		return err
	})
	return data, version, err
}

func (o objects) Put(
	ctx context.Context, key string, data []byte, when bucket.Condition,
) (version string, err error) {
	err = o.within(ctx, objectTime, func(ctx context.Context) error {
		version, err = o.Bucket.Put(ctx, key, bytes.NewReader(data), int64(len(data)), when)
		return err
	})
	return version, err
}

func (o objects) List(ctx context.Context, prefix string, limit int) (names []string, err error) {
	err = o.within(ctx, listTime, func(ctx context.Context) error {
		found, err := o.Bucket.List(ctx, prefix, limit)
		for i := range found {
			names = append(names, found[i].Key)
		}
		return err
	})
	return names, err
}

func (o objects) Delete(ctx context.Context, key string) error {
	return o.within(ctx, objectTime, func(ctx context.Context) error { return o.Bucket.Delete(ctx, key) })
}

// Observed returns a place whose calls are told to call: which it was (get, put, list or delete),
// how it ended (ok, missing, changed or error) and how long it took.
func Observed(p Place, call func(op, result string, took time.Duration)) Place {
	return observed{p, call}
}

type observed struct {
	Place
	call func(op, result string, took time.Duration)
}

// end is called at the end of a call.
func (o observed) end(op string, begun time.Time, err error) {
	result := "ok"
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		result = "missing"
	case errors.Is(err, bucket.ErrChanged):
		result = "changed"
	case err != nil:
		result = "error"
	}
	o.call(op, result, time.Since(begun))
}

func (o observed) Get(ctx context.Context, key string, limit int64) ([]byte, string, error) {
	begun := time.Now()
	data, version, err := o.Place.Get(ctx, key, limit)
	o.end("get", begun, err)
	return data, version, err
}

func (o observed) Put(ctx context.Context, key string, data []byte, when bucket.Condition) (string, error) {
	begun := time.Now()
	version, err := o.Place.Put(ctx, key, data, when)
	o.end("put", begun, err)
	return version, err
}

func (o observed) List(ctx context.Context, prefix string, limit int) ([]string, error) {
	begun := time.Now()
	names, err := o.Place.List(ctx, prefix, limit)
	o.end("list", begun, err)
	return names, err
}

func (o observed) Delete(ctx context.Context, key string) error {
	begun := time.Now()
	err := o.Place.Delete(ctx, key)
	o.end("delete", begun, err)
	return err
}

// Memory returns a place that ends with the process.
func Memory() Place { return &memory{objects: map[string]held{}} }

type memory struct {
	mu      sync.Mutex
	objects map[string]held
	puts    int
}

type held struct {
	data    []byte
	version string
}

func (*memory) String() string { return "memory/" }
func (*memory) Durable() bool  { return false }
func (*memory) Close() error   { return nil }

func (m *memory) Get(_ context.Context, key string, _ int64) ([]byte, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return nil, "", bucket.ErrNotFound
	}
	return o.data, o.version, nil
}

func (m *memory) Put(_ context.Context, key string, data []byte, when bucket.Condition) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if when.Absent && ok || when.Version != "" && o.version != when.Version {
		return "", bucket.ErrChanged
	}
	m.puts++
	o = held{data, strconv.Itoa(m.puts)}
	m.objects[key] = o
	return o.version, nil
}

func (m *memory) List(_ context.Context, prefix string, limit int) (names []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, bounded(names, limit)
}

// bounded returns an error for more names than limit.
func bounded(names []string, limit int) error {
	if len(names) > limit {
		return fmt.Errorf("more than %d objects", limit)
	}
	return nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}
