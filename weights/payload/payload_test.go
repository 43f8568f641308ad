package payload

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/weights/bucket/buckettest"
)

// contract checks what every Store does.
func contract(t *testing.T, s Store) {
	t.Helper()
	ctx := t.Context()
	if _, err := s.Get(ctx, "missing", 10); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing payload: %v", err)
	}
	if err := s.Delete(ctx, "missing"); err != nil {
		t.Errorf("a missing payload is not deleted: %v", err)
	}
	data := bytes.Repeat([]byte("payload\x00"), 1000)
	var all sync.WaitGroup
	for range 4 { // the same payload at once
		all.Go(func() {
			if err := s.Put(ctx, "0190-a.3.bin", data); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, err := s.Get(ctx, "0190-a.3.bin", int64(len(data)))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := s.Get(ctx, "0190-a.3.bin", int64(len(data))-1); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("above the limit: %v", err)
	}
	if err := s.Put(ctx, "0190-a.3.bin", []byte("other")); err != nil {
		t.Error(err)
	}
	if got, err := s.Get(ctx, "0190-a.3.bin", 100); err != nil || string(got) != "other" {
		t.Errorf("replaced: %q, %v", got, err)
	}
	if err := s.Delete(ctx, "0190-a.3.bin"); err != nil {
		t.Error(err)
	}
	if _, err := s.Get(ctx, "0190-a.3.bin", 100); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	for _, bad := range []string{
		"", "..", ".", "../x", "a/b", `a\b`, ".put-1", "a b", "é", strings.Repeat("x", 201),
	} {
		_, get := s.Get(ctx, bad, 10)
		if get == nil || s.Put(ctx, bad, nil) == nil || s.Delete(ctx, bad) == nil {
			t.Errorf("key %q was accepted", bad)
		}
	}
	key := ResultKey("0190-a.3", 1, "epoch")
	item := "01234567-89ab-7def-8123-456789abcdef.12"
	if key == ResultKey("0190-a.3", 1, "other") || key == ResultKey("0190-a.3", 2, "epoch") ||
		key == ResultKey("0190-a.31", 1, "epoch") || !isKey(key) || !isKey(item) {
		t.Errorf("keys %s and %s", key, item)
	}
	others := []string{
		"notes.txt", "result-", "result-xyz", "01234567-89ab-7def-8123-456789abcdef", "a.1", key + "0",
	}
	for _, k := range append(others, key, item) {
		if err := s.Put(ctx, k, data); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Expire(ctx, time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("%d young payloads were removed, %v", n, err)
	}
	if n, err := s.Expire(ctx, time.Now().Add(time.Hour)); n != 2 || err != nil {
		t.Errorf("%d payloads of two were removed, %v", n, err)
	}
	for _, k := range others { // which are not ours to remove
		if _, err := s.Get(ctx, k, 10_000); err != nil {
			t.Errorf("%s: %v", k, err)
		}
		if err := s.Delete(ctx, k); err != nil {
			t.Error(err)
		}
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, get := s.Get(over, "k", 10)
	if get == nil || s.Put(over, "k", nil) == nil || s.Delete(over, "k") == nil {
		t.Error("a call goes on when its context has ended")
	}
}

// A directory keeps payloads, makes itself, and is left empty.
func TestDirectory(t *testing.T) {
	path := t.TempDir() + "/made/here"
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	contract(t, s)
	for name, age := range map[string]time.Duration{".put-old": 2 * abandoned, ".put-new": 0} {
		if err := os.WriteFile(path+"/"+name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path+"/"+name, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Expire(t.Context(), time.Now().Add(-Lifetime)); n != 1 || err != nil {
		t.Errorf("%d files that a killed process left were removed, %v", n, err)
	}
	if err := os.Remove(path + "/.put-new"); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(path)
	if err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

func TestS3(t *testing.T) {
	url, _, _ := buckettest.S3(t)
	s, err := Open(url + "/payloads")
	if err != nil {
		t.Fatal(err)
	}
	contract(t, s)
}

func TestGCS(t *testing.T) {
	url, _, _ := buckettest.GCS(t)
	s, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	contract(t, s)
}

// What is no place is refused; a changed payload is noticed.
func TestChecks(t *testing.T) {
	for _, bad := range []string{"", "s3://", "gs://b?x=1", "s3://user@b"} {
		if _, err := Open(bad); err == nil {
			t.Errorf("%q was opened", bad)
		}
	}
	data := []byte("abc")
	sum := Sum(data)
	if err := Verify(data, sum); err != nil {
		t.Error(err)
	}
	if Verify([]byte("abd"), sum) == nil || Verify(data, nil) == nil || Verify(data, sum[:31]) == nil {
		t.Error("another payload passes for it")
	}
}

// The keys of results are told from all others.
func TestKeysOfResults(t *testing.T) {
	own := ResultKey("0190.0", 1, "epoch")
	if err := CheckResultKey(own); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		"", "0190a6b4-7e2c-7000-8000-000000000000.0", own[1:], own + "00", own[:len(own)-2], "result-",
		"result-../../../../../../../../../../", "result-" + own,
	} {
		if CheckResultKey(bad) == nil {
			t.Errorf("%q passes for the key of a result", bad)
		}
	}
}
