package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sie-engine/sie/weights/hub/hubtest"
)

// onStorage returns a fault for the n-th request to the storage, counted from 0.
func onStorage(
	fault func(n int, w http.ResponseWriter, r *http.Request) bool,
) func(http.ResponseWriter, *http.Request, bool) bool {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		return storage && fault(int(n.Add(1))-1, w, r)
	}
}

// TestBrokenAtEveryBlock cuts the connection after 0, 1, 2, … blocks, until a download finishes
// before the cut. Each time the next try must ask only for the rest.
func TestBrokenAtEveryBlock(t *testing.T) {
	const block = 7_001
	h := newHarness(t)
	size := len(h.model.Files["model.safetensors"])
	for cut := 0; ; cut += block {
		h.cache = filepath.Join(t.TempDir(), "cache")
		h.hub.Fault(onStorage(func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 0 {
				h.hub.Serve(hubtest.Break(w, cut), r, true)
			}
			return n == 0
		}))
		h.hub.Requests()
		found, err := h.resolve()
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		h.wantWhole(found.Dir)
		var ranges []string
		for _, r := range h.hub.Requests() {
			if r.Storage {
				ranges = append(ranges, r.Range)
				if r.Range != "" && r.IfRange == "" {
					t.Errorf("cut at %d: resumed without If-Range", cut)
				}
			}
		}
		if cut >= size {
			if len(ranges) != 1 {
				t.Errorf("no cut, but %d requests", len(ranges))
			}
			break
		}
		want := fmt.Sprintf("bytes=%d-", cut)
		if cut == 0 {
			want = ""
		}
		if len(ranges) != 2 || ranges[1] != want {
			t.Errorf("cut at %d: ranges %q, want the second %q", cut, ranges, want)
		}
	}
}

// TestBrokenAllTheTime downloads from a server that gives a few kilobytes a connection. The
// connections fail far more often than the number of tries in a row that may fail.
func TestBrokenAllTheTime(t *testing.T) {
	h := newHarness(t)
	h.hub.Fault(onStorage(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		h.hub.Serve(hubtest.Break(w, 4096), r, true)
		return true
	}))
	var last Progress
	found, err := h.resolve(func(o *Options) { o.Progress = func(p Progress) { last = p } })
	if err != nil {
		t.Fatal(err)
	}
	h.wantWhole(found.Dir)
	if last.Bytes != last.Total {
		t.Errorf("progress ended at %d of %d bytes", last.Bytes, last.Total)
	}
}

// TestServerThatNeverGives: a download from a server that gives nothing ends after the number of
// tries. One that gives a byte at a time also ends.
func TestServerThatNeverGives(t *testing.T) {
	for _, bytes := range []int{0, 1} {
		h := newHarness(t)
		var asked atomic.Int64
		h.hub.Fault(onStorage(func(_ int, w http.ResponseWriter, r *http.Request) bool {
			asked.Add(1)
			h.hub.Serve(hubtest.Break(w, bytes), r, true)
			return true
		}))
		_, err := h.resolve()
		wantClass(t, err, ClassNetwork, "gave up after")
		if n := asked.Load(); bytes == 0 && n != 6 || n > 100 {
			t.Errorf("%d bytes a connection: %d requests", bytes, n)
		}
		h.wantInvisible()
	}
}

func TestResumeAfterKill(t *testing.T) {
	h := newHarness(t)
	content := h.model.Files["model.safetensors"]
	blob := h.blobOf("model.safetensors")
	damaged := bytes.Clone(content[:60_000])
	damaged[30_000] ^= 1
	for name, c := range map[string]struct {
		left   []byte
		ranges []string
	}{
		"half of it":      {content[:50_000], []string{"bytes=50000-"}},
		"all of it":       {content, nil},
		"nothing":         {nil, []string{""}},
		"all but a byte":  {content[:len(content)-1], []string{fmt.Sprintf("bytes=%d-", len(content)-1)}},
		"a damaged half":  {damaged, []string{"bytes=60000-", ""}},
		"more than it is": {append(bytes.Clone(content), 0), []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &harness{T: t, hub: h.hub, model: h.model, cache: filepath.Join(t.TempDir(), "cache")}
			part := filepath.Join(h.repo().dir, "blobs", filepath.Base(blob)+".incomplete")
			// A killed process also leaves its lock file and its staging directory.
			for _, err := range []error{
				os.MkdirAll(filepath.Dir(part), 0o755), os.WriteFile(part, c.left, 0o644),
				os.MkdirAll(filepath.Join(h.repo().staging(h.model.Commit), "1_Pooling"), 0o755),
				os.MkdirAll(h.repo().staging(strings.Repeat("0", 40)), 0o755),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			h.hub.Requests()
			var last Progress
			found, err := h.resolve(func(o *Options) { o.Progress = func(p Progress) { last = p } })
			if err != nil {
				t.Fatal(err)
			}
			h.wantWhole(found.Dir)
			var ranges []string
			for _, r := range h.hub.Requests() {
				if r.Storage {
					ranges = append(ranges, r.Range)
				}
			}
			if fmt.Sprint(ranges) != fmt.Sprint(c.ranges) {
				t.Errorf("ranges %q, want %q", ranges, c.ranges)
			}
			if last.Bytes != last.Total {
				t.Errorf("progress ended at %d of %d bytes", last.Bytes, last.Total)
			}
			if left, _ := filepath.Glob(filepath.Join(h.repo().dir, ".sie", "*.tmp")); len(left) > 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}

// TestDishonestStorage: whatever the storage sends, the blob has the listed content or does not
// exist.
func TestDishonestStorage(t *testing.T) {
	h := newHarness(t)
	content := h.model.Files["model.safetensors"]
	other := bytes.Clone(content)
	other[len(other)/2] ^= 1
	send := func(w http.ResponseWriter, status int, body []byte, header ...string) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		if status != http.StatusNoContent {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		}
		w.WriteHeader(status)
		w.Write(body)
	}
	full := fmt.Sprint(len(content))
	for name, c := range map[string]struct {
		fault func(w http.ResponseWriter, r *http.Request)
		heals bool // serves correctly afterwards
		want  string
	}{
		"one wrong bit, once": {func(w http.ResponseWriter, _ *http.Request) { send(w, 200, other) }, true,
			""},
		"one wrong bit, always": {func(w http.ResponseWriter, _ *http.Request) { send(w, 200, other) }, false,
			"arrived damaged 3 times"},
		"an error page, once": {
			func(w http.ResponseWriter, _ *http.Request) { send(w, 200, []byte("<html>")) }, true, "",
		},
		"an error page, always": {func(w http.ResponseWriter, _ *http.Request) {
			send(w, 200, []byte("<html>"))
		}, false, "6 bytes of model.safetensors where 100000"},
		"a byte too many": {func(w http.ResponseWriter, _ *http.Request) {
			send(w, 200, append(bytes.Clone(content), 0))
		}, false, "100001 bytes"},
		"empty": {func(w http.ResponseWriter, _ *http.Request) { send(w, 200, nil) }, false, "0 bytes"},
		"204":   {func(w http.ResponseWriter, _ *http.Request) { send(w, 204, nil) }, false, "204"},
		"206 that was not asked": {func(w http.ResponseWriter, _ *http.Request) {
			send(w, 206, content[9:], "Content-Range", "bytes 9-99999/"+full)
		}, false, "another part"},
		"206 without a range": {func(w http.ResponseWriter, _ *http.Request) { send(w, 206, content) }, false,
			"another part"},
		"206 of another file": {func(w http.ResponseWriter, _ *http.Request) {
			send(w, 206, content, "Content-Range", "bytes 0-99999/200000")
		}, false, "another part"},
		"416":                {func(w http.ResponseWriter, _ *http.Request) { send(w, 416, nil) }, true, ""},
		"expired link, once": {func(w http.ResponseWriter, _ *http.Request) { send(w, 403, nil) }, true, ""},
		"expired link, always": {func(w http.ResponseWriter, _ *http.Request) { send(w, 403, nil) }, false,
			"403 Forbidden to a link of the hub"},
		"storage says not found": {func(w http.ResponseWriter, _ *http.Request) {
			send(w, 404, nil, "X-Error-Code", "GatedRepo")
		}, false, "404"},
		"cut before the answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			false, "EOF"},
		"endless chunked body": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(other[:1000]); err != nil {
					return
				}
			}
		}, false, "arrived damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &harness{T: t, hub: h.hub, model: h.model, cache: filepath.Join(t.TempDir(), "cache")}
			h.hub.Fault(onStorage(func(n int, w http.ResponseWriter, r *http.Request) bool {
				if c.heals && n > 0 {
					return false
				}
				c.fault(w, r)
				return true
			}))
			found, err := h.resolve()
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				h.wantWhole(found.Dir)
				return
			}
			wantClass(t, err, ClassNetwork, c.want)
			if ClassOf(err).Permanent() {
				t.Error("the failure counts as permanent")
			}
			h.wantInvisible()
		})
	}
}

// TestFileChangesBetweenTries: the storage's file is replaced after the first half was received.
// If-Range makes the server send all of it, so the halves of two files are never joined.
func TestFileChangesBetweenTries(t *testing.T) {
	h := newHarness(t)
	content := h.model.Files["model.safetensors"]
	h.hub.Fault(onStorage(func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 0 { // an older upload under the same link, cut in the middle
			w.Header().Set("Etag", `"older"`)
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			hubtest.Break(w, 40_000).Write(make([]byte, len(content)))
		}
		if n == 1 && (r.Header.Get("If-Range") != `"older"` || r.Header.Get("Range") != "bytes=40000-") {
			t.Errorf("resumed with %q, %q", r.Header.Get("Range"), r.Header.Get("If-Range"))
		}
		return false
	}))
	found, err := h.resolve()
	if err != nil {
		t.Fatal(err)
	}
	h.wantWhole(found.Dir)
	storage := 0
	for _, r := range h.hub.Requests() {
		if r.Storage {
			storage++
		}
	}
	if storage != 2 {
		t.Errorf("%d requests to the storage, want 2: the second gets the whole file", storage)
	}
}

// TestHubOffersAnotherContent: resolve names another checksum than the listing, once or always.
func TestHubOffersAnotherContent(t *testing.T) {
	for _, always := range []bool{false, true} {
		h := newHarness(t)
		var n atomic.Int64
		h.hub.Fault(func(w http.ResponseWriter, r *http.Request, storage bool) bool {
			if strings.HasSuffix(r.URL.Path, "/resolve/"+h.model.Commit+"/model.safetensors") &&
				(n.Add(1) == 1 || always) {
				w.Header().Set("X-Linked-Etag", `"`+strings.Repeat("ab", 32)+`"`)
				w.Header().Set("Location", h.hub.Storage+"/"+modelID+"/model.safetensors?signature=secret")
				w.WriteHeader(http.StatusFound)
				return true
			}
			return false
		})
		found, err := h.resolve()
		if always {
			wantClass(t, err, ClassNetwork, "another content of model.safetensors than it listed")
			h.wantInvisible()
		} else if err != nil {
			t.Error(err)
		} else {
			h.wantWhole(found.Dir)
		}
	}
}

// TestStall: a server that stops in the middle, or never answers, is abandoned after the stall
// timeout and asked again.
func TestStall(t *testing.T) {
	for name, given := range map[string]int{"in the body": 30_000, "before the answer": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for the whole timeout
			h := newHarness(t)
			h.hub.Fault(onStorage(func(n int, w http.ResponseWriter, r *http.Request) bool {
				if n > 0 {
					return false
				}
				if given >= 0 {
					w.Header().Set("Content-Length", fmt.Sprint(len(h.model.Files["model.safetensors"])))
					w.Write(h.model.Files["model.safetensors"][:given])
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
				return true
			}))
			found, err := h.resolve(func(o *Options) { o.StallTimeout = 2 * time.Second })
			if err != nil {
				t.Fatal(err)
			}
			h.wantWhole(found.Dir)
		})
	}
	h := newHarness(t)
	h.hub.Fault(func(_ http.ResponseWriter, r *http.Request, _ bool) bool {
		<-r.Context().Done()
		return true
	})
	_, err := h.resolve(func(o *Options) { o.StallTimeout = 20 * time.Millisecond })
	wantClass(t, err, ClassNetwork, "nothing arrived for too long")
}

// TestSlowServerIsNotAStall: a download waits for bytes that keep arriving slowly.
func TestSlowServerIsNotAStall(t *testing.T) {
	h := newHarness(t)
	h.hub.Fault(onStorage(func(n int, w http.ResponseWriter, r *http.Request) bool {
		content := h.model.Files["model.safetensors"]
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		for ; len(content) > 0; content = content[10_000:] {
			w.Write(content[:10_000])
			w.(http.Flusher).Flush()
			time.Sleep(250 * time.Millisecond)
		}
		return true
	}))
	h.hub.Requests()
	if _, err := h.resolve(func(o *Options) { o.StallTimeout = 2 * time.Second }); err != nil {
		t.Fatal(err)
	}
	storage := 0
	for _, r := range h.hub.Requests() {
		if r.Storage {
			storage++
		}
	}
	if storage != 1 {
		t.Errorf("%d requests to the storage, want 1", storage)
	}
}

// received reports whether the partial file of a blob has this many bytes.
func received(blob string, bytes int64) bool {
	info, err := os.Stat(blob + ".incomplete")
	return err == nil && info.Size() == bytes
}

func TestContext(t *testing.T) {
	h := newHarness(t)
	cancelled := errors.New("the user left")
	blob := h.blobOf("model.safetensors")
	ctx, cancel := context.WithCancelCause(context.Background())
	h.hub.Fault(onStorage(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		w.Write(h.model.Files["model.safetensors"][:50_000])
		w.(http.Flusher).Flush()
		// The download has them on the disk before the user leaves.
		for r.Context().Err() == nil && !received(blob, 50_000) {
			time.Sleep(time.Millisecond)
		}
		cancel(cancelled)
		<-r.Context().Done()
		return true
	}))
	_, err := h.resolver().Resolve(ctx, modelID, "")
	if !errors.Is(err, cancelled) {
		t.Errorf("cancelled: %v", err)
	}
	h.wantInvisible()
	// The received bytes are kept for the next try.
	if info, err := os.Stat(blob + ".incomplete"); err != nil || info.Size() != 50_000 {
		t.Errorf("partial file: %v, %v", info, err)
	}
	deadline, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	_, err = h.resolver().Resolve(deadline, modelID, "")
	wantClass(t, err, ClassTimeout, "did not finish in time")
	if !errors.Is(err, context.DeadlineExceeded) || ClassTimeout.Permanent() {
		t.Errorf("deadline: %v", err)
	}
	// Waiting for another download also ends with the context: a download by this package, or of a
	// blob by a Python tool.
	h.hub.Fault(nil)
	for _, lock := range []string{"sie.lock", filepath.Base(blob) + ".lock"} {
		release, err := newLocks(slog.Default()).take(context.Background(),
			filepath.Join(h.cache, ".locks", "models--sie-test--tiny-bert", lock), nil)
		if err != nil {
			t.Fatal(err)
		}
		deadline, stop := context.WithTimeout(context.Background(), 150*time.Millisecond)
		_, err = h.resolver().Resolve(deadline, modelID, "")
		wantClass(t, err, ClassTimeout)
		h.wantInvisible()
		release()
		stop()
	}
}

func TestStorageErrors(t *testing.T) {
	for name, place := range map[string]func(h *harness) string{
		"cache":     func(h *harness) string { return h.cache },
		"locks":     func(h *harness) string { return filepath.Join(h.cache, ".locks") },
		"blobs":     func(h *harness) string { return filepath.Join(h.repo().dir, "blobs") },
		"snapshots": func(h *harness) string { return filepath.Join(h.repo().dir, "snapshots") },
		"refs":      func(h *harness) string { return filepath.Join(h.repo().dir, "refs") },
		"own":       func(h *harness) string { return filepath.Join(h.repo().dir, ".sie") },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			file := place(h) // a file where a directory must be
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
				os.WriteFile(file, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			_, err := h.resolve()
			wantClass(t, err, ClassStorage, "check the disk")
		})
	}
	for err, fix := range map[error]string{
		syscall.ENOSPC: "the disk is full", syscall.EDQUOT: "the disk is full",
		syscall.EACCES: "not writable", syscall.EROFS: "not writable", syscall.EIO: "check the disk",
	} {
		got := storageError(&os.PathError{Op: "write", Path: "x", Err: err}, "store x")
		if !strings.Contains(got.Error(), fix) || ClassOf(got) != ClassStorage || ClassStorage.Permanent() ||
			!errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestDiskFull writes to a device that is always full: the download fails as STORAGE and is not
// tried again.
func TestDiskFull(t *testing.T) {
	h := newHarness(t)
	part := h.blobOf("tokenizer.json") + ".incomplete"
	if err := errors.Join(os.MkdirAll(filepath.Dir(part), 0o755), os.Symlink("/dev/full", part)); err != nil {
		t.Fatal(err)
	}
	_, err := h.resolve()
	wantClass(t, err, ClassStorage, "tokenizer.json")
	h.wantInvisible()
}

func TestNotEnoughSpace(t *testing.T) {
	h := newHarness(t)
	l := h.listing()
	r := h.resolver()
	s := r.sources[len(r.sources)-1].(*hubSource)
	l.files[0].size = 1 << 60
	if err := os.MkdirAll(h.cache, 0o755); err != nil {
		t.Fatal(err)
	}
	err := s.download(context.Background(), h.repo(), modelRef{id: modelID}, l.commit, l.files, &reporter{})
	wantClass(t, err, ClassStorage, "MiB free", "SIE_LOCAL_CACHE")
}

// A load that ends, or a server that stops, does not wait until what an earlier download left is
// hashed.
func TestHashingOfAPartialFileEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blob.incomplete")
	const size = 64 << 20
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the server stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	d := &blobDownload{file: remoteFile{name: "weights", size: 2 * size}, report: &reporter{}}
	if err := d.open(ctx, path); !errors.Is(err, cause) || d.have >= size {
		t.Errorf("%v after %d bytes", err, d.have)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != size {
		t.Errorf("what is left of it: %v, %v", info, err)
	}
	if err := d.open(t.Context(), path); err != nil || d.have != size {
		t.Errorf("%v after %d bytes", err, d.have)
	}
	d.part.Close()
}
