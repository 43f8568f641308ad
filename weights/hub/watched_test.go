package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/weights/bucket"
)

// memory is a bucket in memory whose versions change with each write, as those of Google do, or
// with the content, as those of S3 do.
type memory struct {
	mu      sync.Mutex
	n       int
	etags   bool
	objects map[string]memoryObject
	// before and after, if set, are called around a call that changes or reads a key, without mu.
	before, after func(ctx context.Context, call, key string) error
}

// setBefore sets before while other goroutines use the bucket.
func (m *memory) setBefore(f func(ctx context.Context, call, key string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = f
}

type memoryObject struct {
	bucket.Object
	data []byte
}

func (m *memory) String() string { return "memory://" }

func (m *memory) call(ctx context.Context, name, key string, do func() error) error {
	m.mu.Lock()
	before := m.before
	m.mu.Unlock()
	if before != nil {
		if err := before(ctx, name, key); err != nil {
			return err
		}
	}
	m.mu.Lock()
	err, after := do(), m.after
	m.mu.Unlock()
	if err == nil && after != nil {
		err = after(ctx, name, key)
	}
	return err
}

func (m *memory) List(ctx context.Context, prefix string, limit int) (list []bucket.Object, err error) {
	return list, m.call(ctx, "list", prefix, func() error {
		for key, o := range m.objects {
			if strings.HasPrefix(key, prefix) {
				list = append(list, o.Object)
			}
		}
		sort.Slice(list, func(i, j int) bool { return list[i].Key < list[j].Key })
		return nil
	})
}

func (m *memory) Open(
	ctx context.Context, key string, from int64, version string,
) (o bucket.Object, body io.ReadCloser, err error) {
	return o, body, m.call(ctx, "open", key, func() error {
		has, ok := m.objects[key]
		if !ok {
			return bucket.ErrNotFound
		}
		o, body = has.Object, io.NopCloser(bytes.NewReader(has.data[from:]))
		return nil
	})
}

func (m *memory) Put(
	ctx context.Context, key string, body io.ReaderAt, size int64, when bucket.Condition,
) (version string, err error) {
	err = m.call(ctx, "put", key, func() error {
		has, ok := m.objects[key]
		if when.Absent && ok || when.Version != "" && has.Version != when.Version {
			return bucket.ErrChanged
		}
		data, err := io.ReadAll(io.NewSectionReader(body, 0, size))
		if err != nil {
			return err
		}
		m.n++
		if version = fmt.Sprint(m.n); m.etags {
			version = fmt.Sprintf("%x", sha256.Sum256(data))
		}
		if m.objects == nil {
			m.objects = make(map[string]memoryObject)
		}
		m.objects[key] = memoryObject{bucket.Object{Key: key, Size: size, Version: version,
			Modified: time.Now()}, data}
		return nil
	})
	return version, err
}

func (m *memory) Delete(ctx context.Context, key string) error {
	return m.call(ctx, "delete", key, func() error { delete(m.objects, key); return nil })
}

func (m *memory) object(key string) memoryObject {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[key]
}

// silence waits until ctx ends, as a request does that is not answered.
func silence(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// lockedMemory returns a bucket and an uploader that has the lock of a model in it.
func lockedMemory(t *testing.T) (m *memory, release func()) {
	m = new(memory)
	s := newUploader(watchedBucket{m, time.Hour}, Options{Log: slog.New(slog.DiscardHandler)}, nil, retrier{})
	release, mine, err := s.lockBucket(t.Context(), "x.lock")
	if err != nil || !mine {
		t.Fatal(mine, err)
	}
	return m, release
}

// wantRenewed fails if the lock was ever older than its lease while some leases pass.
func wantRenewed(t *testing.T, m *memory) {
	t.Helper()
	for range 30 {
		time.Sleep(leaseTime / 10)
		if age := time.Since(m.object("x.lock").Modified); age >= leaseTime {
			t.Fatalf("the lock is %v old", age)
		}
	}
}

// A renewal that the bucket made and whose answer was lost does not make all later ones fail.
func TestLostAnswerToARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, release := lockedMemory(t)
		lose := true
		m.mu.Lock()
		m.after = func(_ context.Context, call, key string) error {
			if call == "put" && lose {
				lose = false
				return errors.New("the connection was reset")
			}
			return nil
		}
		m.mu.Unlock()
		wantRenewed(t, m)
		release()
		if lose || m.object("x.lock").data != nil {
			t.Errorf("lost %v, the lock is left: %q", lose, m.object("x.lock").data)
		}
	})
}

// A renewal that is never answered holds neither the later ones nor the release.
func TestRenewalWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, release := lockedMemory(t)
		calls := 0
		m.setBefore(func(ctx context.Context, call, key string) error {
			if call != "put" {
				return nil
			}
			if calls++; calls%2 == 1 {
				return silence(ctx)
			}
			return nil
		})
		wantRenewed(t, m)
		m.setBefore(func(ctx context.Context, call, key string) error {
			if call == "put" {
				return silence(ctx)
			}
			return nil
		})
		time.Sleep(leaseTime/4 + time.Second) // a renewal is on its way
		began := time.Now()
		release()
		if took := time.Since(began); took > connectTimeout || m.object("x.lock").data != nil {
			t.Errorf("the release took %v, left %q", took, m.object("x.lock").data)
		}
	})
}

// A lock that another process took over is neither renewed nor removed.
func TestLockOfAnotherProcessStays(t *testing.T) {
	for _, after := range []time.Duration{0, leaseTime} {
		synctest.Test(t, func(t *testing.T) {
			m, release := lockedMemory(t)
			_, err := m.Put(t.Context(), "x.lock", strings.NewReader("another"), 7, bucket.Condition{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			release()
			if got := string(m.object("x.lock").data); got != "another" {
				t.Errorf("after %v the lock holds %q", after, got)
			}
		})
	}
}

// An old lock that its process renews just before another would take it over stays with the first,
// also where an object's version is a hash of its content.
func TestARenewedLockIsNotTakenOver(t *testing.T) {
	for _, etags := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{etags: etags}
			version, err := m.Put(t.Context(), "x.lock", strings.NewReader("first"), 5, bucket.Condition{})
			if err != nil {
				t.Fatal(err)
			}
			l := bucketLock{bucket: m, key: "x.lock", owner: []byte("first"), version: version}
			if !l.renew(t.Context(), time.Minute) {
				t.Fatal("it is not renewed")
			}
			time.Sleep(2 * leaseTime)
			puts := 0
			m.setBefore(func(_ context.Context, call, _ string) error {
				if call != "put" {
					return nil
				}
				if puts++; puts == 2 { // the other's first says that there is a lock
					m.setBefore(nil)
					if !l.renew(t.Context(), time.Minute) {
						t.Error("the first does not renew its lock")
					}
				}
				return nil
			})
			s := newUploader(m, Options{Log: slog.New(slog.DiscardHandler)}, nil, retrier{})
			release, mine, err := s.lockBucket(t.Context(), l.key)
			if mine || err != nil || puts != 2 {
				t.Errorf("hashes %v: the lock is taken over: %v, %v after %d calls", etags, mine, err, puts)
			}
			if mine {
				release()
			}
			for range 2 {
				if !l.renew(t.Context(), time.Minute) || m.object(l.key).Version != l.version {
					t.Errorf("hashes %v: the first loses its lock", etags)
				}
			}
			if err := l.remove(t.Context()); err != nil || m.object(l.key).data != nil {
				t.Errorf("hashes %v: the lock is left: %v", etags, err)
			}
		})
	}
}

// Each call of a bucket that never answers ends with an error that says so and after how long.
func TestSilentBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{before: func(ctx context.Context, _, _ string) error { return silence(ctx) }}
		b := watchedBucket{m, 30 * time.Second}
		for name, c := range map[string]struct {
			after time.Duration
			call  func() error
		}{
			"open": {30 * time.Second, func() error {
				_, _, err := b.Open(t.Context(), "x", 0, "")
				return err
			}},
			"list": {5 * time.Minute, func() error { _, err := b.List(t.Context(), "x", 1); return err }},
			"put": {5 * time.Minute, func() error {
				_, err := b.Put(t.Context(), "x", strings.NewReader("abc"), 3, bucket.Condition{})
				return err
			}},
			"delete": {30 * time.Second, func() error { return b.Delete(t.Context(), "x") }},
		} {
			began := time.Now()
			err := c.call()
			if want := "memory://: nothing arrived for too long (" + c.after.String() + ")"; err == nil ||
				err.Error() != want || time.Since(began) != c.after {
				t.Errorf("%s after %v: %v, want %q", name, time.Since(began), err, want)
			}
		}
	})
}

// slowReader gives a byte a minute.
type slowReader struct{ *strings.Reader }

func (r slowReader) ReadAt(p []byte, at int64) (int, error) {
	time.Sleep(time.Minute)
	return r.Reader.ReadAt(p[:1], at)
}

// An upload that makes progress may take as long as it likes.
func TestSlowUploadIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		b := watchedBucket{m, 30 * time.Second}
		body := slowReader{strings.NewReader("twelve bytes")}
		_, err := b.Put(t.Context(), "x", body, 12, bucket.Condition{})
		if err != nil || string(m.object("x").data) != "twelve bytes" {
			t.Errorf("%q, %v", m.object("x").data, err)
		}
	})
}

// A bucket that never answers holds no load: it is an error, and with a hub that is asked next.
func TestResolveWithASilentBucket(t *testing.T) {
	h := newHarness(t)
	m := &memory{before: func(ctx context.Context, _, _ string) error { return silence(ctx) }}
	_, err := h.resolve(noHub, func(o *Options) { o.Bucket, o.StallTimeout = m, time.Millisecond })
	wantClass(t, err, ClassNetwork, "nothing arrived for too long")
}
