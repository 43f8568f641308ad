package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/sie-engine/sie/weights/bucket"
)

// count is a place that counts what is put.
type count struct {
	Place
	puts, bytes int
}

func (c *count) Put(ctx context.Context, key string, data []byte, when bucket.Condition) (string, error) {
	c.puts++
	c.bytes += len(data)
	return c.Place.Put(ctx, key, data, when)
}

// fill commits n models and gives each the answer of a key.
func fill(t *testing.T, l *Ledger, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint("org/model-", i)
		next := l.State().Set(id, Entry{Document: strings.Repeat("x", 1000)}).
			Answered(Answer{Key: Digest(id), Body: []byte(`{"model_id":"` + id + `"}`)})
		if err := l.Commit(t.Context(), next); err != nil {
			t.Fatal(err)
		}
	}
}

// A commit puts its own model, whatever is there already; all of it is read again, with few
// objects.
func TestACommitCostsItsModel(t *testing.T) {
	place := &count{Place: Memory()}
	l := open(t, place, NewWriter("a"))
	fill(t, l, 1000)
	l.Tidy(t.Context())
	place.puts, place.bytes = 0, 0
	for i := range checkpointEvery {
		next := l.State().Set("org/model-0", Entry{Document: fmt.Sprint(strings.Repeat("y", 1000), i)})
		if err := l.Commit(t.Context(), next); err != nil {
			t.Fatal(err)
		}
	}
	// 1,200 bytes of record, and a part of a checkpoint of 1.3 MB
	if place.puts != checkpointEvery+2 || place.bytes > checkpointEvery*14_000 {
		t.Errorf("%d commits are %d puts of %d bytes", checkpointEvery, place.puts, place.bytes)
	}
	l.Tidy(t.Context())
	names, err := place.List(t.Context(), "", maxListed)
	if err != nil || len(names) > checkpointEvery+2 {
		t.Errorf("%d objects stay, %v", len(names), err)
	}
	equal(t, open(t, place, NewWriter("b")).State(), l.State())
}

// equal compares what two states hold.
func equal(t *testing.T, got, want *State) {
	t.Helper()
	g, err := json.Marshal(got)
	w, err2 := json.Marshal(want)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if string(g) != string(w) || got.seq != want.seq {
		t.Errorf("record %d, epoch %d with %d models and %d answers; want %d, %d, %d, %d", got.seq, got.Epoch,
			len(got.Models), len(got.Answers), want.seq, want.Epoch, len(want.Models), len(want.Answers))
	}
}

// copied returns a place with the same objects.
func copied(m *memory) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{objects: maps.Clone(m.objects), puts: m.puts}
}

// For each call n: a process that is killed there, with the call done or not, leaves all that was
// acknowledged and at most the change that was not, once; the next process goes on from it.
func TestAKilledProcessLosesNothing(t *testing.T) {
	for _, done := range []bool{false, true} {
		for n := 1; ; n++ {
			store := Memory().(*memory)
			f := &faulty{Place: store}
			killed := false
			f.fail = func(at int, _ string) (error, bool) {
				if at < n {
					return nil, false
				}
				killed = true
				return errors.New("killed"), done && at == n
			}
			acked := uint64(0)
			l, err := Open(t.Context(), f, NewWriter("a"), quiet)
			for i := 0; err == nil && i < 7; i++ {
				l.every = 3
				err = l.Commit(t.Context(), l.State().Set(fmt.Sprint("m", i), Entry{Document: "x"}).
					Answered(Answer{Key: fmt.Sprint(i), Body: []byte("{}")}))
				if err == nil {
					acked++
					l.Tidy(t.Context())
				}
			}
			again := open(t, store, NewWriter("b"))
			s := again.State()
			if s.Epoch < acked || s.Epoch > acked+1 || len(s.Models) != int(s.Epoch) ||
				len(s.Answers) != int(s.Epoch) {
				t.Fatalf("killed at %d (done: %v): %d acknowledged, found epoch %d, %d models, %d answers", n,
					done, acked, s.Epoch, len(s.Models), len(s.Answers))
			}
			again.every = 3
			fill(t, again, 7)
			again.Tidy(t.Context())
			equal(t, open(t, store, NewWriter("c")).State(), again.State())
			if names, _ := store.List(t.Context(), "", maxListed); len(names) > 5 {
				t.Fatalf("killed at %d (done: %v): %q stay", n, done, names)
			}
			if !killed {
				break
			}
		}
	}
}

// formOne is a store as sie-config wrote it before there was a log.
const formOne = `{"format":1,"epoch":7,"writer":{"id":"W","name":"old"},"commit":"C",` +
	`"models":{"org/a":{"document":"a: 1\n"},"org/b":{"document":"b: 1\n","whole":true}},` +
	`"answers":[{"key":"k","request":"r","status":201,"body":{"a":1}}]}`

// oldStore returns a place of form 1.
func oldStore(t *testing.T) *memory {
	t.Helper()
	m := Memory().(*memory)
	if _, err := m.Put(t.Context(), headKey, []byte(formOne), bucket.Condition{}); err != nil {
		t.Fatal(err)
	}
	return m
}

// A store of form 1 is read, and is of this form from the first commit on: an earlier sie-config
// refuses it then. Wherever that is interrupted, nothing is lost.
func TestAnEarlierStoreIsTakenOver(t *testing.T) {
	for _, done := range []bool{false, true} {
		for n := 1; ; n++ {
			store := oldStore(t)
			f := &faulty{Place: store, fail: func(int, string) (error, bool) { return nil, false }}
			l := open(t, f, NewWriter("a"))
			if s := l.State(); s.Epoch != 7 || len(s.Models) != 2 || !s.Models["org/b"].Whole ||
				s.Find("k") == nil {
				t.Fatalf("%+v", s)
			}
			if now := string(store.objects[headKey].data); now != formOne {
				t.Fatalf("opening it wrote %s", now)
			}
			interrupted := false
			f.calls = 0
			f.fail = func(at int, _ string) (error, bool) {
				if at != n {
					return nil, false
				}
				interrupted = true
				return errors.New("away"), done
			}
			for try := 0; ; try++ {
				err := l.Commit(t.Context(), l.State().Set("org/c", Entry{Document: "c"}))
				if err == nil || errors.Is(err, ErrAgain) {
					break
				}
				before := open(t, store, NewWriter("b")).State()
				if _, arrived := before.Models["org/c"]; before.Epoch != 7 && !arrived || try > 1 {
					t.Fatalf("interrupted at %d: %v, epoch %d", n, err, before.Epoch)
				}
			}
			again := open(t, store, NewWriter("b"))
			equal(t, again.State(), l.State())
			if s := again.State(); s.Epoch != 8 || len(s.Models) != 3 || s.Find("k") == nil {
				t.Fatalf("interrupted at %d: %+v", n, s)
			}
			if text := string(store.objects[headKey].data); !strings.HasPrefix(text, `{"format":2,`) {
				t.Fatal(text)
			}
			if !interrupted {
				break
			}
		}
	}
}

// An earlier sie-config that still writes to the store has it: the later one stops, naming it.
func TestAnEarlierWriterKeepsItsStore(t *testing.T) {
	store := oldStore(t)
	l := open(t, store, NewWriter("new"))
	theirs := strings.NewReplacer(`"epoch":7`, `"epoch":8`, `"commit":"C"`, `"commit":"D"`).Replace(formOne)
	if _, err := store.Put(t.Context(), headKey, []byte(theirs), bucket.Condition{}); err != nil {
		t.Fatal(err)
	}
	err := l.Commit(t.Context(), l.State().Set("m", Entry{}))
	var taken *TakenError
	if !errors.As(err, &taken) || taken.By.Name != "old" {
		t.Fatalf("%v", err)
	}
	if now := string(store.objects[headKey].data); now != theirs {
		t.Errorf("it was overwritten with %s", now)
	}
}

// A writer that slept while another took the store, wrote checkpoints and removed the records
// before them can put a record in the place of a removed one. It does not count, and the writer
// stops.
func TestAWriterThatSleptStops(t *testing.T) {
	for behind := range 4 { // records that the sleeper has
		store := Memory()
		a := open(t, store, NewWriter("sleeper"))
		fill(t, a, behind)
		b := open(t, store, NewWriter("awake"))
		b.every = 4
		fill(t, b, 9)
		b.Tidy(t.Context())
		err := a.Commit(t.Context(), a.State().Set("lost", Entry{Document: "x"}))
		var taken *TakenError
		if !errors.As(err, &taken) || taken.By.Name != "awake" {
			t.Fatalf("%d records: %v", behind, err)
		}
		if _, there := a.State().Models["lost"]; there {
			t.Error("the sleeper believes itself")
		}
		fill(t, b, 9)
		equal(t, open(t, store, NewWriter("next")).State(), b.State())
	}
}

// Without its head a store is not empty: its epoch would go back.
func TestAStoreWithoutItsHeadIsRefused(t *testing.T) {
	store := Memory()
	fill(t, open(t, store, NewWriter("a")), 1)
	if err := store.Delete(t.Context(), headKey); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), store, NewWriter("b"), quiet)
	if err == nil || !strings.Contains(err.Error(), headKey) {
		t.Errorf("%v", err)
	}
}

// A state made of another than the last is refused: it would undo what came between.
func TestACommitIsMadeOfTheLastState(t *testing.T) {
	l := open(t, Memory(), NewWriter("a"))
	first, second := l.State().Set("a", Entry{}), l.State().Set("b", Entry{})
	if err := l.Commit(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := l.Commit(t.Context(), second); !errors.Is(err, ErrAgain) || l.State().Epoch != 1 {
		t.Errorf("%v, epoch %d", err, l.State().Epoch)
	}
}

// A ledger takes what can be read again, and no more.
func TestALedgerIsBounded(t *testing.T) {
	l := open(t, Memory(), NewWriter("a"))
	document := strings.Repeat("x", 15<<20)
	for i := range 4 {
		if err := l.Commit(t.Context(), l.State().Set(fmt.Sprint(i), Entry{Document: document})); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := l.State()
	if err := l.Commit(t.Context(), before.Set("4", Entry{Document: document})); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	if err := l.Commit(t.Context(), before.Set("0", Entry{Document: document})); err != nil {
		t.Errorf("a replacement: %v", err)
	}
}
