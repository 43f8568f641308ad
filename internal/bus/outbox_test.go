package bus

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// sent records what an Outbox publishes, and when.
type sent struct {
	mu  sync.Mutex
	all []string
	at  map[string]time.Time
	err error
}

func (s *sent) publish(m *nats.Msg) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, m.Subject)
	s.at[m.Subject] = time.Now()
	return s.err
}

func (s *sent) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// Every message is published once: those of Publish at once, the others with the next of Publish
// and within Soon, in their order; at most maxSoon wait.
func TestOutbox(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			s := &sent{at: map[string]time.Time{}}
			o := NewOutbox(s.publish, func(err error) { t.Error(err) })
			made := map[string]time.Time{}
			waiting := 0
			for i := range 2000 {
				subject := strconv.Itoa(i)
				made[subject] = time.Now()
				before := s.len()
				if rng.IntN(100) < 3 {
					if err := o.Publish(&nats.Msg{Subject: subject}); err != nil {
						t.Fatal(err)
					}
					if s.len() != before+1+waiting || s.all[before] != subject {
						t.Fatalf("seed %d: %v were published after %s", seed, s.all[before:], subject)
					}
					if waited := s.all[before+1:]; !slices.IsSortedFunc(waited, byNumber) {
						t.Fatalf("seed %d: what waited was published in the order %v", seed, waited)
					}
				} else {
					o.PublishSoon(&nats.Msg{Subject: subject})
					if n := s.len() - before; n != 0 && (n != waiting+1 || n != maxSoon) {
						t.Fatalf("seed %d: %d published with %d waiting", seed, n, waiting)
					}
				}
				if rng.IntN(3) == 0 {
					time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
					synctest.Wait()
				}
				if waiting = i + 1 - s.len(); waiting >= maxSoon {
					t.Fatalf("seed %d: %d wait", seed, waiting)
				}
			}
			time.Sleep(Soon)
			synctest.Wait()
			if len(s.all) != len(made) || len(s.at) != len(made) {
				t.Fatalf("seed %d: %d published, %d of them different, of %d",
					seed, len(s.all), len(s.at), len(made))
			}
			for subject, at := range s.at {
				if late := at.Sub(made[subject]); late > Soon {
					t.Errorf("seed %d: a message waited for %v", seed, late)
				}
			}
		})
	}
}

// Whoever publishes hears of its own failure, and failed of the others.
func TestOutboxTellsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		s := &sent{at: map[string]time.Time{}, err: away}
		heard := 0
		o := NewOutbox(s.publish, func(err error) {
			if errors.Is(err, away) {
				heard++
			}
		})
		o.PublishSoon(&nats.Msg{Subject: "a"})
		o.PublishSoon(&nats.Msg{Subject: "b"})
		if err := o.Publish(&nats.Msg{Subject: "c"}); !errors.Is(err, away) || heard != 2 || len(s.all) != 3 {
			t.Errorf("%v; %d heard; %v", err, heard, s.all)
		}
		time.Sleep(Soon)
		synctest.Wait()
		if len(s.all) != 3 {
			t.Errorf("what failed was published again: %v", s.all)
		}
	})
}

// The message that fills an Outbox sends all.
func TestOutboxIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sent{at: map[string]time.Time{}}
		o := NewOutbox(s.publish, func(err error) { t.Error(err) })
		for i := range 3 * maxSoon {
			o.PublishSoon(&nats.Msg{Subject: strconv.Itoa(i)})
			if want := (i + 1) / maxSoon * maxSoon; s.len() != want {
				t.Fatalf("%d of %d were published, not %d", s.len(), i+1, want)
			}
		}
	})
}
