package hub

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// gate stops downloads from the storage in their middle until it is opened.
type gate struct {
	reached chan struct{} // gets a value for each download that is stopped
	open    chan struct{}
	once    sync.Once
}

func (d *smallDisk) gate(models ...string) *gate {
	g := &gate{reached: make(chan struct{}, 16), open: make(chan struct{})}
	d.hub.Fault(func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		for _, m := range models {
			if storage && strings.Contains(r.URL.Path, m) {
				g.reached <- struct{}{}
				<-g.open
			}
		}
		return false
	})
	d.Cleanup(g.pass)
	return g
}

func (g *gate) pass() { g.once.Do(func() { close(g.open) }) }

// later runs f and gives what became of it.
func later(f func() (Resolved, error)) <-chan error {
	done := make(chan error, 1)
	go func() {
		found, err := f()
		if err == nil {
			found.Release()
		}
		done <- err
	}()
	return done
}

// waits returns once the download of id waits for room or a lock.
func waits(t *testing.T) (change func(*Options), waiting <-chan struct{}) {
	ch := make(chan struct{}, 64)
	return func(o *Options) {
		o.Progress = func(p Progress) {
			if p.Stage == StageWaiting {
				ch <- struct{}{}
			}
		}
	}, ch
}

// TestRoomIsReserved: what a download will write counts as used from its beginning, for others too;
// one that finds too little waits for it, and goes on when it ends.
func TestRoomIsReserved(t *testing.T) {
	d := newSmallDisk(t, modelBytes*3/2)
	g := d.gate("t/first")
	first := later(func() (Resolved, error) { return d.get("t/first") })
	<-g.reached
	watch, waiting := waits(t)
	second := later(func() (Resolved, error) { return d.get("t/second", watch) })
	select {
	case <-waiting:
	case err := <-second:
		t.Fatalf("the second download did not wait: %v", err)
	}
	if _, err := os.Stat(filepath.Join(d.cache, "models--t--second", "blobs")); err == nil {
		t.Error("the second download began without room")
	}
	g.pass()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	d.wantModels("second")
	if left, _ := os.ReadDir(filepath.Join(d.cache, roomDir)); len(left) > 0 {
		t.Errorf("reservations are left: %v", left)
	}
}

// TestWhatNeverFitsFailsAtOnce: also while others are downloaded, whose end would not help.
func TestWhatNeverFitsFailsAtOnce(t *testing.T) {
	d := newSmallDisk(t, modelBytes*3/2)
	g := d.gate("t/first")
	first := later(func() (Resolved, error) { return d.get("t/first") })
	<-g.reached
	files := modelFiles()
	files["model.safetensors"] = make([]byte, 3*modelBytes)
	d.hub.Add("t/large", files)
	_, err := d.small().Resolve(t.Context(), "t/large", "")
	wantClass(t, err, ClassStorage, "free space")
	g.pass()
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestADownloadWaitsForModelsInUse: they are removed when they are released; without that it says
// what is in its way.
func TestADownloadWaitsForModelsInUse(t *testing.T) {
	d := newSmallDisk(t, modelBytes*3/2)
	held, err := d.get("t/held")
	if err != nil {
		t.Fatal(err)
	}
	d.patience = time.Nanosecond
	_, err = d.get("t/next")
	wantClass(t, err, ClassStorage, "beside the 1 models that are in use")
	d.wantModels("held", "next") // next holds no more than its record
	d.patience = time.Hour
	watch, waiting := waits(t)
	next := later(func() (Resolved, error) { return d.get("t/next", watch) })
	select {
	case <-waiting:
	case err := <-next:
		t.Fatalf("it did not wait: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	watch, waiting = waits(t)
	other := later(func() (Resolved, error) { return d.getIn(ctx, "t/other", watch) })
	<-waiting
	left := errors.New("left")
	cancel(left)
	if err := <-other; !errors.Is(err, left) {
		t.Errorf("one that gave up: %v", err)
	}
	held.Release()
	if err := <-next; err != nil {
		t.Error(err)
	}
}

// TestReservationsOfTheDeadCountNot: a process that was killed leaves its file, and nobody who
// holds it.
func TestReservationsOfTheDeadCountNot(t *testing.T) {
	d := newSmallDisk(t, modelBytes*3/2)
	left := filepath.Join(d.cache, roomDir, "LEFT")
	if err := os.MkdirAll(filepath.Dir(left), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, []byte("00000000000009999999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.use("t/a")
	if _, err := os.Stat(left); err == nil {
		t.Error("the file is still there")
	}
}

// TestReservationsShrink: what has arrived is on the disk and not counted twice; what is thrown
// away counts again.
func TestReservationsShrink(t *testing.T) {
	d := disk{dir: t.TempDir(), locks: newLocks(nil), space: func(string) (int64, int64, bool) { return 1000, 1000, true }}
	var none *reservation
	none.wrote(5)
	none.release()
	if r, err := d.reserve(t.Context(), roomNeed{}, nil); r != nil || err != nil {
		t.Errorf("for nothing: %v, %v", r, err)
	}
	r, err := d.reserve(t.Context(), roomNeed{bytes: 600}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := func(bytes int64, downloads int) {
		t.Helper()
		if b, n, err := d.reserved(); b != bytes || n != downloads || err != nil {
			t.Errorf("%d bytes of %d downloads, %v; want %d of %d", b, n, err, bytes, downloads)
		}
	}
	want(600, 1)
	r.wrote(150)
	want(450, 1)
	r.wrote(-50)
	want(500, 1)
	other, err := d.reserve(t.Context(), roomNeed{bytes: 500}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want(1000, 2)
	r.wrote(600) // more than was asked for
	want(500, 2)
	r.release()
	want(500, 1)
	other.release()
	want(0, 0)
}

// TestModestRoom: on a disk that is fuller than wanted, as much is removed as what comes takes, and
// no more.
func TestModestRoom(t *testing.T) {
	d := newSmallDisk(t, 10*modelBytes)
	for _, id := range []string{"t/a", "t/b", "t/c"} {
		d.use(id)
	}
	d.total = 3*modelBytes + modelBytes/2 // somebody else filled the disk
	small := d.small().sources[1].(*hubSource).disk
	r, err := small.reserve(t.Context(), roomNeed{bytes: modelBytes / 4, modest: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.wantModels("b", "c")
	r.release()
	r, err = small.reserve(t.Context(), roomNeed{bytes: modelBytes / 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.wantModels("b", "c")
	r.release()
	d.total = 2*modelBytes + modelBytes/2
	r, err = small.reserve(t.Context(), roomNeed{bytes: 2 * modelBytes, modest: true}, nil) // what it needs, it gets
	if err != nil {
		t.Fatal(err)
	}
	d.wantModels()
	r.release()
}

// TestReservationsOfOtherProcesses count while they download, and no more once they are killed.
func TestReservationsOfOtherProcesses(t *testing.T) {
	d := newSmallDisk(t, 0)
	g := d.gate(modelID)
	cmd, _ := d.process()
	defer cmd.Wait()
	defer cmd.Process.Kill()
	<-g.reached
	here := disk{dir: d.cache, locks: newLocks(slog.New(slog.DiscardHandler))}
	if bytes, n, err := here.reserved(); bytes < modelBytes || n != 1 || err != nil {
		t.Errorf("%d bytes of %d downloads, %v", bytes, n, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if bytes, n, err := here.reserved(); bytes != 0 || n != 0 || err != nil {
		t.Errorf("of a dead process %d bytes of %d downloads, %v", bytes, n, err)
	}
}

// TestADownloadTellsItsReservation: what has arrived, and what of it was thrown away.
func TestADownloadTellsItsReservation(t *testing.T) {
	room, err := disk{dir: t.TempDir(), locks: newLocks(nil), space: func(string) (int64, int64, bool) { return 1000, 1000, true }}.
		reserve(t.Context(), roomNeed{bytes: 100}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer room.release()
	part, err := os.Create(filepath.Join(t.TempDir(), "part"))
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	file := remoteFile{name: "x", size: 100, hash: strings.Repeat("a", 40)}
	d := &blobDownload{file: file, part: part, sum: newSum(file), report: &reporter{}, room: room}
	if err := d.receive(strings.NewReader(strings.Repeat("x", 60))); err == nil || room.left != 40 {
		t.Errorf("%d bytes are to come after 60 of 100, %v", room.left, err)
	}
	if err := d.restart(); err != nil || room.left != 100 {
		t.Errorf("%d bytes are to come after they were thrown away, %v", room.left, err)
	}
}

// TestReservationsCountForTheThreshold: models are removed for what is still to come of other
// downloads, too.
func TestReservationsCountForTheThreshold(t *testing.T) {
	d := newSmallDisk(t, 5*modelBytes) // 85 % hold four
	for _, id := range []string{"t/a", "t/b"} {
		d.use(id)
	}
	small := d.small().sources[1].(*hubSource).disk
	first, err := small.reserve(t.Context(), roomNeed{bytes: modelBytes}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	d.wantModels("a", "b")
	second, err := small.reserve(t.Context(), roomNeed{bytes: modelBytes * 3 / 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	d.wantModels("b")
}

// TestWhatCannotBeRemovedIsNotWaitedFor: it would never go.
func TestWhatCannotBeRemovedIsNotWaitedFor(t *testing.T) {
	d := newSmallDisk(t, modelBytes*3/2)
	d.use("t/a")
	if err := os.MkdirAll(filepath.Join(d.cache, ".locks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(d.cache, ".locks", "models--t--a")); err != nil { // nothing to list: removing fails
		t.Fatal(err)
	}
	d.patience = 1 << 60
	_, err := d.get("t/b")
	wantClass(t, err, ClassStorage, "MiB more")
}
