package queue

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// markOf returns a worker's mark of a slice.
func markOf(t *testing.T, item *work.Item, worker, epoch, state string) []byte {
	t.Helper()
	b, err := (&work.Mark{Kind: work.KindMark, WorkItemID: item.WorkItemID, RequestID: item.RequestID,
		WorkerID: worker, WorkerEpoch: epoch, State: state, Attempt: item.Attempt,
		Alone: state == work.ServerDied && item.Alone}).MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A slice that was marked by a process of a worker which is another one by now is published again
// at once. Nothing is concluded without both epochs, nor from a heartbeat that is older than the
// mark.
func TestAWorkerWasStartedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		mark, beat string
		early      bool // the last heartbeat came before the mark
		gone       bool
		min, max   time.Duration
	}{
		"another process":                 {mark: "a", beat: "b", max: 2 * time.Second},
		"the same process":                {mark: "a", beat: "a", min: 15 * time.Second},
		"the mark tells no epoch":         {beat: "b", min: 15 * time.Second},
		"the heartbeat tells no epoch":    {mark: "a", min: 15 * time.Second},
		"a mark of a newer process":       {mark: "b", beat: "a", early: true, min: 15 * time.Second},
		"a process that is silent by now": {mark: "a", beat: "b", gone: true, min: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
				var at atomic.Int64
				at.Store(time.Now().UnixNano())
				known := func(worker string) presence {
					if worker == "w9" {
						return presence{live: true}
					}
					return presence{live: !c.gone, epoch: c.beat, at: time.Unix(0, at.Load())}
				}
				q.workers.Store(&known)
				took := answerTime(t, q, w, func(m *stored1) {
					w.send(m.item.ReplySubject, "", markOf(t, m.item, "again", c.mark, work.Taken))
					synctest.Wait()
					if !c.early {
						at.Store(time.Now().Add(time.Millisecond).UnixNano())
					}
				})
				if most := max(c.max, c.min+3*time.Second); took < c.min || took > most {
					t.Errorf("answered after %v, want %v to %v", took, c.min, most)
				}
				if n := w.left(); n != 0 {
					t.Errorf("%d messages are left in the stream", n)
				}
			})
		})
	}
}

// A death is counted once, whatever its attempt was: three servers are the end of a text, also
// when the death of an older attempt is told late, by another process of the same worker, or
// again. It is a dead letter when it was alone in two of them; else its caller is told to try
// again.
func TestDeathsOfOlderAttemptsCount(t *testing.T) {
	type told struct {
		worker, epoch string
		attempt       int
	}
	for name, c := range map[string]struct {
		lost  int // attempts whose work a broker lost while a worker had it
		marks []told
		left  int // deaths that are missing until the end, after all marks
		want  string
	}{
		"one after another":   {0, []told{{"a", "", 0}, {"b", "", 1}, {"c", "", 2}}, 0, "dead letter"},
		"the older one late":  {1, []told{{"b", "", 1}, {"a", "", 0}, {"c", "", 2}}, 0, "servers ended"},
		"the older one first": {1, []told{{"a", "", 0}, {"b", "", 1}, {"c", "", 2}}, 0, "servers ended"},
		"two older ones last": {2, []told{{"c", "", 2}, {"b", "", 1}, {"a", "", 0}}, 0, "servers ended"},
		"a mark again": {1, []told{{"a", "", 0}, {"b", "", 1}, {"a", "", 0},
			{"b", "", 1}, {"b", "", 1}}, 1, ""},
		"another process of the worker": {1, []told{{"a", "1", 0}, {"a", "2", 0},
			{"a", "2", 0}, {"b", "", 1}}, 0, "servers ended"},
		"an attempt that never was": {0, []told{{"a", "", 7}, {"a", "", 8}, {"a", "", 9}}, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
				failed := make(chan error, 1)
				go func() {
					_, err := ask(t.Context(), q, "r", []string{"!poison"}, 1)
					failed <- err
				}()
				time.Sleep(time.Second)
				for range c.lost { // each is taken, and the stream is another one then
					synctest.Wait()
					w.lose()
					time.Sleep(5 * time.Second)
				}
				item := work.Item{WorkItemID: "r.0", RequestID: "r", ReplySubject: "_INBOX.gw.r"}
				for _, m := range c.marks {
					item.Attempt, item.Alone = uint32(m.attempt), m.attempt > c.lost
					w.request(t.Context(), item.ReplySubject,
						markOf(t, &item, m.worker, m.epoch, work.ServerDied), time.Second)
					time.Sleep(time.Second) // a next attempt is in the stream then
				}
				synctest.Wait()
				if c.left == 0 {
					var e *errs.Error
					if err := <-failed; !errors.As(err, &e) || !strings.Contains(e.Message, c.want) {
						t.Errorf("%v", err)
					}
					return
				}
				for range c.left {
					select {
					case err := <-failed:
						t.Fatalf("ended early: %v", err)
					default:
					}
					m := w.pull()
					if m == nil {
						t.Fatal("nothing is in the stream")
					}
					w.run(t.Context(), "last", m)
					time.Sleep(time.Second)
				}
				<-failed
				if n := w.deaths("r.0"); n != c.left {
					t.Errorf("%d servers more, want %d", n, c.left)
				}
			})
		})
	}
}

// What is published after a death that is told late runs alone, on another worker.
func TestALateDeathMakesTheNextAttemptRunAlone(t *testing.T) {
	bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
		answered := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), q, "r", []string{"text"}, 1)
			answered <- err
		}()
		time.Sleep(time.Second)
		first := w.pull()
		w.lose()
		time.Sleep(5 * time.Second) // attempt 1 is in the stream
		published := w.publishes()
		w.request(t.Context(), "_INBOX.gw.r", markOf(t, first.item, "a", "", work.ServerDied), time.Second)
		time.Sleep(time.Second)
		if w.publishes() != published {
			t.Error("the death of an older attempt has the current one published again")
		}
		w.lose()
		time.Sleep(5 * time.Second)
		m := w.pull()
		if m == nil || m.item.Attempt != 2 || !m.item.Alone || !slices.Equal(m.item.DiedOn, []string{"a"}) {
			t.Fatalf("published: %+v", m)
		}
		w.run(t.Context(), "b", m)
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

// A mark whose epoch is no token is refused.
func TestStrangeEpochsAreRefused(t *testing.T) {
	q, err := New(Options{Router: "gw"})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for _, bad := range []string{"a.b", strings.Repeat("x", 1000)} {
		m := &work.Mark{Kind: work.KindMark, WorkItemID: "r.0", WorkerID: "w", WorkerEpoch: bad,
			State: work.Taken}
		if _, err := q.marked(&request{}, m, time.Now()); err == nil ||
			!strings.Contains(err.Error(), "worker_epoch") {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

// When a slice gets no more servers its copies are cancelled, also that of a request of one slice.
func TestTheLastDeathCancelsCopies(t *testing.T) {
	bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
		failed := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), q, "r", []string{"text"}, 1)
			failed <- err
		}()
		time.Sleep(time.Second)
		item := work.Item{WorkItemID: "r.0", RequestID: "r", ReplySubject: "_INBOX.gw.r"}
		for _, worker := range []string{"a", "b", "c"} {
			w.request(t.Context(), item.ReplySubject,
				markOf(t, &item, worker, "", work.ServerDied), time.Second)
		}
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "3 servers ended") {
			t.Errorf("%v", err)
		}
		w.set(func() {
			if from, ok := w.cancelled["r"]; !ok || from != 0 {
				t.Errorf("cancelled: %v", w.cancelled)
			}
		})
	})
}
