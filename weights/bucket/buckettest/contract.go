package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/sie-engine/sie/weights/bucket"
)

// Contract checks that an empty bucket behaves as bucket.Bucket requires. large is the size of an
// object that the implementation uploads in parts.
func Contract(t *testing.T, b bucket.Bucket, large int) {
	ctx := t.Context()
	put := func(key string, data []byte, when bucket.Condition) (string, error) {
		return b.Put(ctx, key, bytes.NewReader(data), int64(len(data)), when)
	}
	must := func(v string, err error) string {
		t.Helper()
		if err != nil || v == "" {
			t.Fatalf("version %q, %v", v, err)
		}
		return v
	}
	read := func(key string, from int64, version string) ([]byte, bucket.Object, error) {
		o, body, err := b.Open(ctx, key, from, version)
		if err != nil {
			return nil, o, err
		}
		defer body.Close()
		data, err := io.ReadAll(body)
		return data, o, err
	}
	content := make([]byte, large)
	rand.NewChaCha8([32]byte{7}).Read(content)

	t.Run("missing", func(t *testing.T) {
		if _, _, err := read("a/none", 0, ""); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("open: %v", err)
		}
		if err := b.Delete(ctx, "a/none"); err != nil {
			t.Errorf("delete: %v", err)
		}
		if list, err := b.List(ctx, "a/", 10); err != nil || len(list) != 0 {
			t.Errorf("list: %v, %v", list, err)
		}
	})
	t.Run("whole and from an offset", func(t *testing.T) {
		for _, data := range [][]byte{content, content[:10_000], {}} {
			key := fmt.Sprintf("a/%d.bin", len(data))
			version := must(put(key, data, bucket.Condition{}))
			got, o, err := read(key, 0, "")
			if err != nil || !bytes.Equal(got, data) || o.Size != int64(len(data)) || o.Version != version ||
				o.Modified.IsZero() {
				t.Fatalf("%s: %d bytes, %+v, want version %s, %v", key, len(got), o, version, err)
			}
			if len(data) == 0 {
				continue
			}
			at := int64(len(data) / 3)
			got, o, err = read(key, at, version)
			if err != nil || !bytes.Equal(got, data[at:]) || o.Size != int64(len(data)) {
				t.Errorf("%s from %d: %d bytes, %+v, %v", key, at, len(got), o, err)
			}
		}
	})
	t.Run("another version", func(t *testing.T) {
		old := must(put("b/x", []byte("one"), bucket.Condition{}))
		must(put("b/x", []byte("two"), bucket.Condition{}))
		if _, _, err := read("b/x", 1, old); !errors.Is(err, bucket.ErrChanged) {
			t.Errorf("open an old version: %v", err)
		}
	})
	t.Run("conditions", func(t *testing.T) {
		first := must(put("b/lock", []byte("me"), bucket.Condition{Absent: true}))
		if _, err := put("b/lock", []byte("you"), bucket.Condition{Absent: true}); !errors.Is(err,
			bucket.ErrChanged) {
			t.Errorf("absent: %v", err)
		}
		second := must(put("b/lock", []byte("me again"), bucket.Condition{Version: first}))
		if _, err := put("b/lock", []byte("you"), bucket.Condition{Version: first}); !errors.Is(err,
			bucket.ErrChanged) {
			t.Errorf("old version: %v", err)
		}
		if data, o, err := read("b/lock", 0, ""); string(data) != "me again" || o.Version != second {
			t.Errorf("%q %+v %v", data, o, err)
		}
		if err := b.Delete(ctx, "b/lock"); err != nil {
			t.Error(err)
		}
		must(put("b/lock", []byte("you"), bucket.Condition{Absent: true}))
	})
	t.Run("list", func(t *testing.T) {
		list, err := b.List(ctx, "b/", 10)
		if err != nil || len(list) != 2 || list[0].Key != "b/lock" || list[1].Key != "b/x" ||
			list[1].Size != 3 || list[1].Version == "" || list[1].Modified.IsZero() {
			t.Fatalf("%+v, %v", list, err)
		}
		if _, o, err := read("b/x", 0, list[1].Version); err != nil || o.Version != list[1].Version {
			t.Errorf("a listed version cannot be opened: %+v, %v", o, err)
		}
		if _, err := b.List(ctx, "", 3); err == nil {
			t.Error("a list longer than its limit")
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(ctx)
		cause := errors.New("enough")
		cancel(cause)
		if _, _, err := b.Open(ctx, "b/x", 0, ""); !errors.Is(err, cause) {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("an upload that fails leaves nothing", func(t *testing.T) {
		broken := io.NewSectionReader(failing{bytes.NewReader(content), int64(large) / 2}, 0, int64(large))
		if _, err := b.Put(ctx, "c/broken", broken, int64(large), bucket.Condition{}); err == nil {
			t.Error("no error")
		}
		if list, err := b.List(ctx, "c/", 10); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// failing is a disk that fails from an offset onwards.
type failing struct {
	io.ReaderAt
	from int64
}

func (f failing) ReadAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > f.from {
		return 0, errors.New("the disk fails")
	}
	return f.ReaderAt.ReadAt(p, at)
}
