package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/bucket/buckettest"
)

var quiet = slog.New(slog.DiscardHandler)

// faulty is a place whose calls fail as fail says: it gets the number of the call, from 1, and what
// is called. done says whether a Put that fails has happened nevertheless.
type faulty struct {
	Place
	calls int
	fail  func(n int, call string) (err error, done bool)
}

func (f *faulty) Get(ctx context.Context, key string, limit int64) ([]byte, string, error) {
	f.calls++
	if err, _ := f.fail(f.calls, "get"); err != nil {
		return nil, "", err
	}
	return f.Place.Get(ctx, key, limit)
}

func (f *faulty) Put(ctx context.Context, key string, data []byte, when bucket.Condition) (string, error) {
	f.calls++
	err, done := f.fail(f.calls, "put")
	if err == nil || done {
		version, putErr := f.Place.Put(ctx, key, data, when)
		if err == nil {
			return version, putErr
		}
	}
	return "", err
}

func (f *faulty) Delete(ctx context.Context, key string) error {
	f.calls++
	if err, done := f.fail(f.calls, "delete"); err != nil && !done {
		return err
	}
	return f.Place.Delete(ctx, key)
}

func (f *faulty) List(ctx context.Context, prefix string, limit int) ([]string, error) {
	f.calls++
	if err, _ := f.fail(f.calls, "list"); err != nil {
		return nil, err
	}
	return f.Place.List(ctx, prefix, limit)
}

func open(t *testing.T, p Place, me Writer) *Ledger {
	t.Helper()
	l, err := Open(t.Context(), p, me, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// For each call n and each way to fail: a Commit that succeeds is there after a restart, one that
// does not has changed nothing that is served, and the next Commit is right.
func TestEveryCallMayFail(t *testing.T) {
	away, full := errors.New("500"), errors.New("no space left on device")
	for _, c := range []struct {
		name string
		err  error
		done bool // the Put took effect
	}{
		{"500", away, false}, {"full", full, false}, {"412", bucket.ErrChanged, false},
		{"timeout that arrived", context.DeadlineExceeded, true},
		{"timeout", context.DeadlineExceeded, false},
	} {
		for n := 1; n <= 32; n++ { // 5 commits and two checkpoints make so many calls
			for failures := 1; failures <= 2; failures++ {
				name := fmt.Sprintf("%s at %d, %d times", c.name, n, failures)
				f := &faulty{Place: Memory()}
				f.fail = func(int, string) (error, bool) { return nil, false }
				me := NewWriter("a")
				l := open(t, f, me)
				l.every, f.calls = 2, 0
				f.fail = func(at int, _ string) (error, bool) {
					if at >= n && at < n+failures {
						return c.err, c.done
					}
					return nil, false
				}
				for i := range 5 {
					id := fmt.Sprint("m", i)
					for try := 0; ; try++ {
						if _, there := l.State().Models[id]; there {
							break // it arrived although its Commit failed
						}
						before := l.State()
						err := l.Commit(t.Context(), before.Set(id, Entry{Document: id}))
						var off *UnavailableError
						if err == nil {
							break
						}
						if !errors.As(err, &off) && !errors.Is(err, ErrAgain) || try > 5 {
							t.Fatalf("%s: %v", name, err)
						}
						if !errors.Is(err, ErrAgain) && l.State() != before {
							t.Fatalf("%s: a failed commit changed the state", name)
						}
					}
					l.Tidy(t.Context())
				}
				f.fail = func(int, string) (error, bool) { return nil, false }
				again := open(t, f, me).State()
				if len(again.Models) != 5 || again.Epoch != 5 || l.State().Epoch != 5 {
					t.Fatalf("%s: %d models, epochs %d and %d", name, len(again.Models), again.Epoch,
						l.State().Epoch)
				}
			}
		}
	}
}

// A write whose answer was lost is a success once the store is read again.
func TestAWriteThatArrivedIsASuccess(t *testing.T) {
	f := &faulty{Place: Memory(), fail: func(_ int, call string) (error, bool) {
		if call == "put" {
			return context.DeadlineExceeded, true
		}
		return nil, false
	}}
	l := open(t, f, NewWriter("a"))
	for i := range uint64(3) {
		err := l.Commit(t.Context(), l.State().Set("m", Entry{Document: fmt.Sprint(i)}))
		if err != nil || l.State().Epoch != i+1 {
			t.Errorf("%v, epoch %d", err, l.State().Epoch)
		}
	}
}

// A write of which the store said nothing, and which it did, is found without another write.
func TestRefreshFindsALateWrite(t *testing.T) {
	f := &faulty{Place: Memory(), fail: func(int, string) (error, bool) { return nil, false }}
	l := open(t, f, NewWriter("a"))
	if err := l.Commit(t.Context(), l.State().Set("m", Entry{Document: "w"})); err != nil {
		t.Fatal(err)
	}
	f.fail = func(int, string) (error, bool) { return errors.New("gone"), true }
	err := l.Commit(t.Context(), l.State().Set("m", Entry{Document: "x"}))
	var off *UnavailableError
	if !errors.As(err, &off) || !off.Unknown {
		t.Fatalf("%v", err)
	}
	if changed, err := l.Refresh(t.Context()); changed || err != nil {
		t.Errorf("while the store is away: %v %v", changed, err)
	}
	f.fail = func(int, string) (error, bool) { return nil, false }
	if changed, err := l.Refresh(t.Context()); !changed || err != nil || l.State().Epoch != 2 {
		t.Errorf("%v %v, epoch %d", changed, err, l.State().Epoch)
	}
	if changed, err := l.Refresh(t.Context()); changed || err != nil {
		t.Errorf("again: %v %v", changed, err)
	}
}

// A write without an answer that is not there may arrive yet: it is not said to have failed. One
// that the store refused is.
func TestAWriteThatIsNotThereYet(t *testing.T) {
	for _, c := range []struct {
		cause   error
		unknown bool
	}{{context.DeadlineExceeded, true}, {bucket.ErrChanged, false}} {
		f := &faulty{Place: Memory(), fail: func(int, string) (error, bool) { return nil, false }}
		l := open(t, f, NewWriter("a"))
		if err := l.Commit(t.Context(), l.State().Set("m", Entry{Document: "w"})); err != nil {
			t.Fatal(err)
		}
		f.fail = func(_ int, call string) (error, bool) {
			if call == "put" {
				return c.cause, false
			}
			return nil, false
		}
		err := l.Commit(t.Context(), l.State().Set("m", Entry{Document: "x"}))
		var off *UnavailableError
		if !errors.As(err, &off) || off.Unknown != c.unknown {
			t.Errorf("%v: %v", c.cause, err)
		}
	}
}

// Of two writers on one place the one that comes second stops, names the first, and changes
// nothing.
func TestTheSecondWriterStops(t *testing.T) {
	place := Memory()
	first, second := NewWriter("first"), NewWriter("second")
	a, b := open(t, place, first), open(t, place, second)
	if err := a.Commit(t.Context(), a.State().Set("m", Entry{Document: "a"})); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := b.Commit(t.Context(), b.State().Set("m", Entry{Document: "b"}))
		var taken *TakenError
		if !errors.As(err, &taken) || taken.By != first || !strings.Contains(err.Error(), "first") {
			t.Fatalf("%v", err)
		}
	}
	if err := a.Commit(t.Context(), a.State().Remove("m")); err != nil || a.State().Epoch != 2 {
		t.Errorf("%v", err)
	}
}

// A directory belongs to one process; the next finds what it left, and what a killed one left of a
// write is removed.
func TestDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "store")
	first := NewWriter("first")
	p, err := OpenPlace(path, first)
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenPlace(path, NewWriter("second"))
	var taken *TakenError
	if !errors.As(err, &taken) || taken.By != first {
		t.Fatalf("%v", err)
	}
	l := open(t, p, first)
	state := l.State().Set("m", Entry{Document: "é: 1.0\n", Whole: true}).
		Answered(Answer{Key: "k", Request: "r", Status: 201, Body: []byte(`{"a":1}`)})
	if err := l.Commit(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Close(), os.WriteFile(filepath.Join(path, ".new-1"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if p, err = OpenPlace(path, NewWriter("next")); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := os.Stat(filepath.Join(path, ".new-1")); err == nil {
		t.Error("half a write is still there")
	}
	got := open(t, p, NewWriter("next")).State()
	if got.Epoch != 1 || got.Models["m"] != state.Models["m"] || got.Find("k").Status != 201 ||
		got.Find("x") != nil {
		t.Errorf("%+v", got)
	}
	for _, broken := range []string{"", "{", `{"format":3,"commit":"x"}`, `{"format":1}`, `{"x":1}`,
		`{"format":2,"seq":1,"state":"state-0000000000000001.json","writer":{},"commit":"x"}`} {
		if err := os.WriteFile(filepath.Join(path, headKey), []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), p, first, quiet); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

// A file that is replaced from outside is not overwritten.
func TestDirectoryCompares(t *testing.T) {
	p, err := OpenPlace(t.TempDir(), NewWriter("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	v, err := p.Put(t.Context(), "x", []byte("1"), bucket.Condition{Absent: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []bucket.Condition{{Absent: true}, {Version: "other"}} {
		if _, err := p.Put(t.Context(), "x", []byte("2"), when); !errors.Is(err, bucket.ErrChanged) {
			t.Errorf("%+v: %v", when, err)
		}
	}
	if _, err := p.Put(t.Context(), "x", []byte("2"), bucket.Condition{Version: v}); err != nil {
		t.Error(err)
	}
	_, err = p.Put(t.Context(), "y", nil, bucket.Condition{Version: v})
	if !errors.Is(err, bucket.ErrChanged) {
		t.Errorf("a missing file: %v", err)
	}
	if err := errors.Join(p.Delete(t.Context(), "x"), p.Delete(t.Context(), "x")); err != nil {
		t.Error(err)
	}
}

// The answers that are kept are bounded; the oldest go.
func TestAnswersAreBounded(t *testing.T) {
	s := &State{}
	for i := range MaxAnswers + 5 {
		s = s.Answered(Answer{Key: fmt.Sprint(i), Body: []byte("{}")})
	}
	if len(s.Answers) != MaxAnswers || s.Find("4") != nil || s.Find("5") == nil {
		t.Errorf("%d answers, the oldest is %s", len(s.Answers), s.Answers[0].Key)
	}
	if Digest("ab", "c") == Digest("a", "bc") {
		t.Error("two requests have one digest")
	}
}

// In each bucket: a ledger outlives its process, and the lease keeps a second writer out while the
// first renews it, and not longer.
func TestBuckets(t *testing.T) {
	for name, start := range map[string]func(testing.TB) (string, []string, string){
		"s3": buckettest.S3, "gcs": buckettest.GCS,
	} {
		t.Run(name, func(t *testing.T) {
			url, _, _ := start(t)
			me, other := NewWriter("first"), NewWriter("second")
			p, err := OpenPlace(url+"/config", me)
			if err != nil {
				t.Fatal(err)
			}
			claim := func(w Writer) *Claimer {
				c := NewClaimer(p, w)
				c.every, c.pause = 1, func(context.Context) error { return nil }
				return c
			}
			first := claim(me)
			if err := first.Claim(t.Context()); err != nil {
				t.Fatal(err)
			}
			l := open(t, p, me)
			for range 2 {
				if err := l.Commit(t.Context(), l.State().Set("m", Entry{Document: name})); err != nil {
					t.Fatal(err)
				}
			}
			if got := open(t, p, other).State(); got.Epoch != 2 || got.Models["m"].Document != name {
				t.Errorf("%+v", got)
			}
			second := claim(other)
			second.pause = func(ctx context.Context) error { return first.renew(ctx) }
			var taken *TakenError
			if err := second.Claim(t.Context()); !errors.As(err, &taken) || taken.By != me {
				t.Errorf("%v", err)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if err := first.Hold(ended); err != nil {
				t.Error(err)
			}
			second.pause = func(context.Context) error { return errors.New("the lease was not given back") }
			if err := second.Claim(t.Context()); err != nil {
				t.Error(err)
			}
			third := claim(NewWriter("third"))
			if err := third.Claim(t.Context()); err != nil { // the second renews nothing
				t.Errorf("%v", err)
			}
			if err := second.Hold(t.Context()); !errors.As(err, &taken) || taken.By.Name != "third" {
				t.Errorf("%v", err)
			}
		})
	}
}
