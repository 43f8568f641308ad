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

// gate stops downloads from the storage halfway until it is opened.
type gate struct {
	reached chan struct{} // receives a value for each stopped download
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

// later runs f and returns a channel that gives its error.
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

// waits returns an option and a channel that receives a value each time a download waits for room
// or a lock.
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

// TestRoomIsReserved: the bytes of a download count as used from its beginning, also for other
// downloads. A download that finds too little room waits for another to end and then continues.
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
	if left, _ := os.ReadDir(filepath.Join(d.cache, reservationDir)); len(left) > 0 {
		t.Errorf("reservations are left: %v", left)
	}
}

// TestTooLargeDownloadFailsAtOnce: it fails at once also during other downloads, because their end
// would not help.
func TestTooLargeDownloadFailsAtOnce(t *testing.T) {
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

// TestADownloadWaitsForModelsInUse: models are removed when they are released. If they are not, the
// error says that they are in the way.
func TestADownloadWaitsForModelsInUse(t *testing.T) {
	d := newSmallDisk(t, modelBytes*3/2)
	held, err := d.get("t/held")
	if err != nil {
		t.Fatal(err)
	}
	d.patience = time.Nanosecond
	_, err = d.get("t/next")
	wantClass(t, err, ClassStorage, "beside the 1 models that are in use")
	d.wantModels("held", "next") // next holds only its record
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

// TestDeadProcessesReserveNothing: a killed process leaves its reservation file, whose lock
// nobody holds.
func TestDeadProcessesReserveNothing(t *testing.T) {
	d := newSmallDisk(t, modelBytes*3/2)
	left := filepath.Join(d.cache, reservationDir, "LEFT")
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

// TestReservationsShrink: bytes that have arrived are on the disk and not counted twice. Discarded
// bytes count again.
func TestReservationsShrink(t *testing.T) {
	d := disk{
		dir:   t.TempDir(),
		locks: newLocks(nil),
		space: func(string) (int64, int64, bool) { return 1000, 1000, true },
	}
	var none *reservation
	none.wrote(5)
	none.release()
	if r, err := d.reserve(t.Context(), spaceNeed{}, nil); r != nil || err != nil {
		t.Errorf("for nothing: %v, %v", r, err)
	}
	r, err := d.reserve(t.Context(), spaceNeed{bytes: 600}, nil)
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
	other, err := d.reserve(t.Context(), spaceNeed{bytes: 500}, nil)
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

// TestRemovalStopsWhenTheDownloadFits: on a disk above its threshold, only as much is removed as
// the new files take.
func TestRemovalStopsWhenTheDownloadFits(t *testing.T) {
	d := newSmallDisk(t, 10*modelBytes)
	for _, id := range []string{"t/a", "t/b", "t/c"} {
		d.use(id)
	}
	d.total = 3*modelBytes + modelBytes/2 // another program has filled the disk
	small := d.small().sources[1].(*hubSource).disk
	r, err := small.reserve(t.Context(), spaceNeed{bytes: modelBytes / 4, untilFits: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.wantModels("b", "c")
	r.release()
	r, err = small.reserve(t.Context(), spaceNeed{bytes: modelBytes / 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.wantModels("b", "c")
	r.release()
	d.total = 2*modelBytes + modelBytes/2
	// it still gets the room it needs
	r, err = small.reserve(t.Context(), spaceNeed{bytes: 2 * modelBytes, untilFits: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.wantModels()
	r.release()
}

// TestReservationsOfOtherProcesses: they count while the processes download, and not once these are
// killed.
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

// TestDownloadPublishesItsReservation: a download reports to its reservation the bytes that arrived
// and those it discarded.
func TestDownloadPublishesItsReservation(t *testing.T) {
	room, err := disk{dir: t.TempDir(), locks: newLocks(nil), space: func(string) (int64, int64, bool) {
		return 1000, 1000, true
	}}.
		reserve(t.Context(), spaceNeed{bytes: 100}, nil)
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

// TestReservationsCountForTheThreshold: the bytes still to come of other downloads also count
// towards the threshold above which models are removed.
func TestReservationsCountForTheThreshold(t *testing.T) {
	d := newSmallDisk(t, 5*modelBytes) // 85 % of it holds four
	for _, id := range []string{"t/a", "t/b"} {
		d.use(id)
	}
	small := d.small().sources[1].(*hubSource).disk
	first, err := small.reserve(t.Context(), spaceNeed{bytes: modelBytes}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	d.wantModels("a", "b")
	second, err := small.reserve(t.Context(), spaceNeed{bytes: modelBytes * 3 / 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	d.wantModels("b")
}

// TestNoWaitForModelsThatCannotBeRemoved: a model whose removal fails would never leave the disk.
func TestNoWaitForModelsThatCannotBeRemoved(t *testing.T) {
	d := newSmallDisk(t, modelBytes*3/2)
	d.use("t/a")
	if err := os.MkdirAll(filepath.Join(d.cache, ".locks"), 0o755); err != nil {
		t.Fatal(err)
	}
	// remove cannot list the locks and fails
	if err := os.RemoveAll(filepath.Join(d.cache, ".locks", "models--t--a")); err != nil {
		t.Fatal(err)
	}
	d.patience = 1 << 60
	_, err := d.get("t/b")
	wantClass(t, err, ClassStorage, "MiB more")
}
