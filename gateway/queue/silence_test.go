package queue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// answerTime sends one text and returns how long its answer took. before is called when the text is
// in the stream, and a worker that answers at once begins after it.
func answerTime(t *testing.T, q *Queue, w *world, before func(m *stored1)) time.Duration {
	t.Helper()
	w.pace = time.Millisecond
	answered := make(chan error, 1)
	begun := time.Now()
	go func() {
		_, err := ask(t.Context(), q, fmt.Sprint("r", begun.UnixNano()), []string{"text"}, 1)
		answered <- err
	}()
	time.Sleep(time.Second)
	synctest.Wait()
	m := w.pull()
	if m == nil {
		t.Fatal("the text is not in the stream")
	}
	m.free = begun.Add(time.Hour) // the broker delivers it to nobody else
	before(m)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.work(ctx, "w9")
	}()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	took := time.Since(begun)
	time.Sleep(time.Second) // of the bubble: the worker has its receipt, and acknowledges its message
	synctest.Wait()
	cancel()
	<-ended
	return took
}

// Work that lies with a worker that was stopped is published again: unmarked 2 s after the broker
// said that it was delivered, and after 1 s in a lane that lost a worker a moment ago; marked by a
// worker without heartbeats after 6 s, marked by a live one after 15 s, at once when its server is
// silent, and not at all while marks come. The message that was replaced is removed.
func TestSilence(t *testing.T) {
	for name, c := range map[string]struct {
		marks    time.Duration // for how long the worker marks the slice
		live     bool
		lost     bool // the lane lost a worker
		silent   bool // the server, as the last mark says
		min, max time.Duration
	}{
		"no mark":                {-1, true, false, false, 4 * time.Second, 7 * time.Second},
		"no mark, a worker lost": {-1, true, true, false, 2 * time.Second, 3500 * time.Millisecond},
		"a mark, a worker lost":  {0, true, true, false, 15 * time.Second, 17 * time.Second},
		"a mark, no heartbeat":   {0, false, false, false, 6 * time.Second, 9 * time.Second},
		"a mark, a heartbeat":    {0, true, false, false, 15 * time.Second, 17 * time.Second},
		"many marks":             {40 * time.Second, true, false, false, 55 * time.Second, 58 * time.Second},
		"a silent server":        {0, true, false, true, 6 * time.Second, 6500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
				known := func(worker string) presence { return presence{live: worker == "w9" || c.live} }
				q.workers.Store(&known)
				lost := func(bus.Lane) bool { return c.lost }
				q.losses.Store(&lost)
				took := answerTime(t, q, w, func(m *stored1) {
					item := m.item
					b, err := (&work.Mark{Kind: work.KindMark, WorkItemID: item.WorkItemID,
						RequestID: item.RequestID, WorkerID: "stopped", State: work.Taken}).MarshalMsg(nil)
					if err != nil {
						t.Error(err)
					}
					for since := time.Duration(0); since <= c.marks; since += work.MarkInterval {
						w.send(item.ReplySubject, "", b)
						time.Sleep(min(work.MarkInterval, c.marks))
					}
					if c.silent {
						time.Sleep(5 * time.Second)
						for range 2 { // it is said again; the second is of an attempt of before
							w.send(item.ReplySubject, "", markOf(t, item, "stopped", "", work.ServerSilent))
						}
					}
				})
				if took < c.min || took > c.max {
					t.Errorf("answered after %v, want %v to %v", took, c.min, c.max)
				}
				if n := w.left(); n != 0 {
					t.Errorf("%d messages are left in the stream", n)
				}
			})
		})
	}
}

// While oneself has no connection no age grows, and a gap of the own heartbeat has everything
// published again.
func TestAgesStopWithoutAConnection(t *testing.T) {
	bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
		took := answerTime(t, q, w, func(m *stored1) {
			b, err := (&work.Mark{Kind: work.KindMark, WorkItemID: m.item.WorkItemID, WorkerID: "stopped",
				RequestID: m.item.RequestID, State: work.Taken}).MarshalMsg(nil)
			if err != nil {
				t.Error(err)
			}
			w.send(m.item.ReplySubject, "", b)
			time.Sleep(time.Second)
			w.connect(false)
			time.Sleep(2500 * time.Millisecond) // less than a gap of the heartbeat
			w.connect(true)
		})
		if took < 19*time.Second || took > 21*time.Second { // 15 s after the reconnect
			t.Errorf("answered after %v", took)
		}
		took = answerTime(t, q, w, func(m *stored1) {
			w.connect(false)
			time.Sleep(30 * time.Second)
			w.connect(true)
		})
		if took < 31*time.Second || took > 33*time.Second { // everything again, after a moment
			t.Errorf("answered after %v", took)
		}
	})
}

// A new stream and a lower last sequence are noticed within seconds, whatever the clocks say.
func TestLostStreams(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"a new stream": func(w *world) { w.lose() },
		// whose first message some worker has: nothing but its age tells that it is another one
		"a new stream with others' work": func(w *world) {
			w.lose()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.created, w.last, w.consumer = time.Now(), 1000, true
			w.stream = []*stored1{{seq: 1, id: "others", item: &work.Item{WorkItemID: "others.0",
				RequestID: "others", ReplySubject: "_INBOX.gw.others"}, free: time.Now().Add(time.Hour)}}
		},
		"an older copy of the stream": func(w *world) { // of a replica that was behind
			w.mu.Lock()
			defer w.mu.Unlock()
			w.stream, w.last = nil, 0
			clear(w.dedup)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
				other := make(chan error, 1)
				go func() { // so that the consumer is never empty
					_, err := ask(t.Context(), q, "other", []string{"text"}, 1)
					other <- err
				}()
				time.Sleep(time.Second)
				if took := answerTime(t, q, w, func(*stored1) { lose(w) }); took > 6*time.Second {
					t.Errorf("answered after %v", took)
				}
				go w.work(t.Context(), "w8")
				if err := <-other; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A message that was removed from the stream, delivered to nobody, is noticed within seconds.
func TestARemovedMessageIsPublishedAgain(t *testing.T) {
	bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
		took := answerTime(t, q, w, func(m *stored1) {
			if err := w.Remove(t.Context(), "", m.seq); err != nil {
				t.Error(err)
			}
		})
		if took > 6*time.Second {
			t.Errorf("answered after %v", took)
		}
	})
}

// Heartbeats come every 2 s, name what is untaken, and say when the gateway stops.
func TestHeartbeats(t *testing.T) {
	brief := func(o *Options) { o.Timeout = 20 * time.Second }
	bubble(t, 1, 0, brief, func(t *testing.T, q *Queue, w *world) {
		if _, err := ask(t.Context(), q, "r", []string{"text"}, 1); err == nil {
			t.Error("answered without a worker")
		}
		q.Drain()
		time.Sleep(3 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		named := 0
		for i, b := range w.beats {
			if b.Sequence != uint64(i+1) || b.RouterID != "gw" {
				t.Errorf("heartbeat %d: %+v", i, b)
			}
			if len(b.Untaken) == 1 && b.Untaken[0] == lane.WorkSubject(modelID) {
				named++
			}
		}
		if n := len(w.beats); n < 11 || n > 13 || named < 7 || !w.beats[n-1].Draining || w.beats[0].Draining {
			t.Errorf("%d heartbeats, %d name the model", n, named)
		}
	})
}

// A server's silence is told of one attempt; told again later, or of an older one, it changes
// nothing.
func TestSilenceOfAnOlderAttempt(t *testing.T) {
	bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
		answered := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), q, "r", []string{"text"}, 1)
			answered <- err
		}()
		time.Sleep(time.Second)
		first := w.pull()
		silent := func() {
			w.send(first.item.ReplySubject, "", markOf(t, first.item, "stopped", "", work.ServerSilent))
			time.Sleep(time.Second)
		}
		silent()
		published := w.publishes()
		silent()
		silent()
		if published != 2 || w.publishes() != published {
			t.Errorf("%d publishes after one report, %d after three", published, w.publishes())
		}
		m := w.pull()
		if m == nil || m.item.Attempt != 1 || m.item.Alone || len(m.item.DiedOn) != 0 {
			t.Fatalf("published: %+v", m)
		}
		w.run(t.Context(), "b", m)
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

// A worker that marked a slice while the gateway had no connection has until its second mark: the
// slice is published again only 6 s after the reconnect, and not at all when a mark comes before.
func TestAMarkThatNobodyHeard(t *testing.T) {
	for name, marked := range map[string]bool{"a second mark": true, "no second mark": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
				lost := func(bus.Lane) bool { return true } // which makes everything else sooner
				q.losses.Store(&lost)
				took := answerTime(t, q, w, func(m *stored1) {
					w.connect(false)
					time.Sleep(time.Second) // the first mark; less than a gap of the heartbeat
					w.connect(true)
					time.Sleep(work.MarkInterval)
					if n := w.publishes(); n != 1 {
						t.Errorf("%d publishes before the second mark", n)
					}
					if !marked {
						return
					}
					w.send(m.item.ReplySubject, "", markOf(t, m.item, "w8", "", work.Running))
					time.Sleep(work.MarkInterval)
					if n := w.publishes(); n != 1 {
						t.Errorf("%d publishes after the second mark", n)
					}
					m.free = time.Time{} // it gives it back
				})
				if most := 11 * time.Second; !marked && (took < 8*time.Second || took > most) {
					t.Errorf("answered after %v, want 8 s to %v", took, most)
				}
			})
		})
	}
}

// Heartbeats that went to a connection which was dead already told nobody anything: when it is made
// again after more than heartbeatGap without a message, everything is published again.
func TestADeadConnectionIsAGapOfTheHeartbeat(t *testing.T) {
	bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
		took := answerTime(t, q, w, func(m *stored1) {
			w.send(m.item.ReplySubject, "", markOf(t, m.item, "stopped", "", work.Taken))
			time.Sleep(time.Second)
			w.set(func() { w.loss = 1 })
			time.Sleep(8*time.Second + tickEvery/2) // between two heartbeats
			w.connect(false)
			w.set(func() { w.loss = 0 })
			w.connect(true)
		})
		if took < 10*time.Second || took > 13*time.Second {
			t.Errorf("answered after %v", took)
		}
	})
}

// After a reconnect the streams with pending work are asked for at once, whenever that was last.
func TestAReconnectAsksForTheStream(t *testing.T) {
	bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
		answered := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), q, "r", []string{"text"}, 1)
			answered <- err
		}()
		for range 3 {
			before := w.asked()
			for range 60 { // until it was asked for just now
				time.Sleep(50 * time.Millisecond)
				if w.asked() > before {
					break
				}
			}
			w.connect(false)
			before = w.asked()
			time.Sleep(50 * time.Millisecond)
			w.connect(true)
			time.Sleep(50 * time.Millisecond)
			if w.asked() == before {
				t.Errorf("not asked for within 50 ms, after %d times", before)
			}
		}
		go w.work(t.Context(), "w9")
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

// A message of a stream that is gone is not removed: a younger stream has another's under its
// sequence.
func TestNothingOfAYoungerStreamIsRemoved(t *testing.T) {
	bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
		answered := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), q, "r", []string{"text"}, 1)
			answered <- err
		}()
		time.Sleep(time.Second)
		m := w.pull()
		others := &stored1{seq: m.seq, id: "others", item: &work.Item{WorkItemID: "others.0",
			RequestID: "others", ReplySubject: "_INBOX.gw.others"}, free: time.Now().Add(time.Hour)}
		w.lose()
		w.set(func() { w.created, w.last, w.stream = time.Now(), m.seq, []*stored1{others} })
		r := q.find("r")
		for saw := false; !saw; time.Sleep(10 * time.Millisecond) {
			saw = r.line.pool.state().epoch == 2
		}
		r.mu.Lock()
		r.slices[0].seq, r.slices[0].epoch = m.seq, 1 // what a mark that comes now finds
		q.supersede(r.line, &r.slices[0])
		r.mu.Unlock()
		go w.work(t.Context(), "w9")
		if err := <-answered; err != nil {
			t.Error(err)
		}
		synctest.Wait() // for the worker's acknowledgement
		if n := w.left(); n != 1 {
			t.Errorf("%d messages are left in the stream, want another's", n)
		}
	})
}

// When the result of an older attempt comes, the attempt that took its place leaves the stream.
func TestALateResultTakesTheNextAttemptBack(t *testing.T) {
	bubble(t, 1, 0, nil, func(t *testing.T, q *Queue, w *world) {
		answered := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), q, "r", []string{"text"}, 1)
			answered <- err
		}()
		time.Sleep(time.Second)
		m := w.pull()
		w.send(m.item.ReplySubject, "", markOf(t, m.item, "a", "", work.ServerSilent))
		time.Sleep(time.Second)
		if n := w.publishes(); n != 2 {
			t.Fatalf("%d publishes", n)
		}
		w.run(t.Context(), "a", m)
		if err := <-answered; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		synctest.Wait() // for what removes messages in the background
		if n := w.left(); n != 0 {
			t.Errorf("%d messages are left in the stream", n)
		}
	})
}
