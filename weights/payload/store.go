package payload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/bucket/gcs"
	"github.com/sie-engine/sie/weights/bucket/s3"
)

// MaxBytes bounds a payload.
const MaxBytes = 512 << 20

// ErrNotFound is the error of a Get without a payload, for errors.Is.
var ErrNotFound = errors.New("no such payload")

// Store keeps payloads by key. Its methods are safe for concurrent use; ctx bounds each call. A
// payload appears whole or not at all.
type Store interface {
	// String returns the place, for messages.
	String() string
	// Put stores data under a key, in place of what was there.
	Put(ctx context.Context, key string, data []byte) error
	// Get returns the payload of a key. More than limit bytes are an error.
	Get(ctx context.Context, key string, limit int64) ([]byte, error)
	// Delete removes a payload. A missing one is no error.
	Delete(ctx context.Context, key string) error
	// Expire removes payloads that were stored before a time, at most MaxExpired of them, and
	// returns how many. It touches nothing whose name is not that of a payload.
	Expire(ctx context.Context, before time.Time) (int, error)
}

// MaxExpired bounds what one Expire removes.
const MaxExpired = 10_000

// Lifetime is how long a payload is certainly kept, longer than a dead letter that may name it.
// What is older is of a process that ended before it could delete it.
const Lifetime = 48 * time.Hour

// ResultKey returns the key for a result that a process of a worker, named by its epoch, made of an
// attempt of a slice. Both sides compute it: a gateway deletes what a worker that ended has left.
func ResultKey(workItemID string, attempt uint32, epoch string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", workItemID, attempt, epoch))
	return resultPrefix + hex.EncodeToString(sum[:16])
}

const resultPrefix = "result-"

// isKey reports whether a name is that of a stored payload: a result's, or a work item's id, which
// begins with a UUID.
func isKey(name string) bool {
	if strings.HasPrefix(name, resultPrefix) {
		return CheckResultKey(name) == nil
	}
	id, index, ok := strings.Cut(name, ".")
	if !ok || uuid.Validate(id) != nil || len(id) != 36 {
		return false
	}
	_, err := strconv.ParseUint(index, 10, 32)
	return err == nil
}

// Open returns the store that place names: an s3:// or gs:// URL, or a directory, which is made if
// it is missing. It makes no request.
func Open(place string) (Store, error) {
	if !bucket.IsURL(place) {
		return openDir(place)
	}
	u, err := bucket.Parse(place)
	if err != nil {
		return nil, fmt.Errorf("payload store: %w", err)
	}
	if u.Scheme == "gs" {
		return objects{gcs.New(u)}, nil
	}
	return objects{s3.New(u)}, nil
}

// maxKey bounds a key in bytes.
const maxKey = 200

// CheckKey returns an error unless a key is 1 to 200 letters, digits, '-', '_' and '.' and does not
// begin with a dot. Keys come from messages; such a key cannot name anything outside the store.
func CheckKey(key string) error {
	if key == "" || len(key) > maxKey || key[0] == '.' {
		return fmt.Errorf("payload key %q: want 1 to %d bytes that do not begin with '.'",
			files.Clip(key, 80), maxKey)
	}
	for _, c := range []byte(key) {
		if c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') &&
			(c < 'A' || c > 'Z') {
			return fmt.Errorf("payload key %q contains %q; only letters, digits, '-', '_' and '.' are allowed",
				files.Clip(key, 80), c)
		}
	}
	return nil
}

// CheckResultKey returns an error unless a key has the form of those of ResultKey: what a message
// names as a result can then be no work item's payload.
func CheckResultKey(key string) error {
	rest, ok := strings.CutPrefix(key, resultPrefix)
	if sum, err := hex.DecodeString(rest); !ok || err != nil || len(sum) != 16 {
		return fmt.Errorf("payload key %q is not that of a result: want %q and 32 hex digits",
			files.Clip(key, 80), resultPrefix)
	}
	return nil
}

// Sum returns the checksum that goes with a payload's key.
func Sum(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}

// Verify returns an error unless sum is the checksum of data.
func Verify(data, sum []byte) error {
	if subtle.ConstantTimeCompare(Sum(data), sum) != 1 {
		return fmt.Errorf("the payload's %d bytes are not those that were stored: its SHA-256 differs", len(data))
	}
	return nil
}

// objects keeps payloads in a bucket.
type objects struct{ bucket bucket.Bucket }

func (o objects) String() string { return o.bucket.String() }

func (o objects) Put(ctx context.Context, key string, data []byte) error {
	if err := check(key, data); err != nil {
		return err
	}
	_, err := o.bucket.Put(ctx, key, bytes.NewReader(data), int64(len(data)), bucket.Condition{})
	if err != nil {
		return fmt.Errorf("store payload %s%s: %w", o, key, err)
	}
	return nil
}

func (o objects) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	data, _, err := bucket.Read(ctx, o.bucket, key, limit)
	if errors.Is(err, bucket.ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch payload %s%s: %w", o, key, err)
	}
	return data, nil
}

func (o objects) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := o.bucket.Delete(ctx, key); err != nil {
		return fmt.Errorf("delete payload %s%s: %w", o, key, err)
	}
	return nil
}

// maxListed bounds the objects that Expire looks at.
const maxListed = 100_000

func (o objects) Expire(ctx context.Context, before time.Time) (int, error) {
	all, err := o.bucket.List(ctx, "", maxListed)
	if err != nil {
		return 0, fmt.Errorf("list the payloads of %s: %w", o, err)
	}
	n := 0
	for _, x := range all {
		if !isKey(x.Key) || !x.Modified.Before(before) {
			continue
		}
		if n == MaxExpired {
			break
		}
		if err := o.Delete(ctx, x.Key); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// check returns what is wrong with a payload that shall be stored.
func check(key string, data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("a payload of %d bytes; at most %d are stored", len(data), int64(MaxBytes))
	}
	return CheckKey(key)
}
