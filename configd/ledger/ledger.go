package ledger

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/weights/bucket"
)

// lookTime bounds reading back what a failed write has left.
const lookTime = 5 * time.Second

// Writer names a process that writes to a ledger.
type Writer struct {
	ID   string `json:"id"`   // random
	Name string `json:"name"` // for people: host and process
}

// NewWriter returns the Writer of a process of this name.
func NewWriter(name string) Writer { return Writer{ID: rand.Text(), Name: name} }

// TakenError says that another process writes to the ledger. It is final.
type TakenError struct {
	Place string
	By    Writer
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("%s: another sie-config writes here: %s (%s); one store has one writer",
		e.Place, e.By.Name, e.By.ID)
}

// UnavailableError says that the store did not take a change.
type UnavailableError struct {
	// Unknown says that the store may hold the change nevertheless: it could not be asked, or the
	// change may arrive there yet.
	Unknown bool
	Cause   error
}

func (e *UnavailableError) Error() string {
	if e.Unknown {
		return "the store did not say whether it took the change: " + e.Cause.Error()
	}
	return "the store did not take the change: " + e.Cause.Error()
}

// Unwrap returns why.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// ErrAgain is the error of a Commit of a state that was not made of State: a change of this process
// was found of which the store had not said that it took it. State has it now; the caller makes its
// own change on top of that.
var ErrAgain = errors.New("an earlier change has arrived meanwhile")

// Ledger keeps a State in a Place.
type Ledger struct {
	place   Place
	me      Writer
	log     *slog.Logger
	every   uint64 // checkpointEvery
	state   atomic.Pointer[State]
	head    head   // as it was read or written last
	version string // of the stored head, "" while there is none
	unsure  bool   // a write of ours may arrive yet
	taken   error

	mu   sync.Mutex
	left []string // what Tidy removes
	kept bool     // the store refused to remove something, and that is logged
}

// Open reads the state of a place; without one it is empty. A state that cannot be read is an
// error.
func Open(ctx context.Context, place Place, me Writer, log *slog.Logger) (*Ledger, error) {
	l := &Ledger{place: place, me: me, log: log, every: checkpointEvery}
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	if err := l.leftovers(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// State returns what the ledger holds. Any goroutine may call it.
func (l *Ledger) State() *State { return l.state.Load() }

// Durable reports whether the state outlives the process.
func (l *Ledger) Durable() bool { return l.place.Durable() }

// Place returns where the state is, for messages.
func (l *Ledger) Place() string { return l.place.String() }

func (l *Ledger) adopt(s *State) {
	l.state.Store(s)
	l.unsure = false
}

// maxLoads bounds how often the head is read because its checkpoint has been replaced meanwhile.
const maxLoads = 4

// load reads the checkpoint that the head names, and the records after it.
func (l *Ledger) load(ctx context.Context) error {
	var s *State
	for try := 1; s == nil; try++ {
		h, old, version, err := l.readHead(ctx)
		if err != nil {
			return err
		}
		l.head, l.version = h, version
		switch {
		case old != nil:
			s = old
		case h.State == "":
			s = &State{}
		default:
			s, err = l.readState(ctx)
			if err != nil && (try == maxLoads || !errors.Is(err, bucket.ErrNotFound)) {
				return err
			}
		}
	}
	for {
		r, err := l.readRecord(ctx, s.seq+1)
		if errors.Is(err, bucket.ErrNotFound) {
			l.adopt(s)
			return nil
		}
		if err != nil {
			return err
		}
		s = s.after(r)
	}
}

func (l *Ledger) readState(ctx context.Context) (*State, error) {
	data, _, err := l.place.Get(ctx, l.head.State, maxState)
	if err == nil {
		var s *State
		if s, err = decodeState(data, l.head.Seq); err == nil {
			return s, nil
		}
	}
	return nil, l.failed(l.head.State, err)
}

func (l *Ledger) readRecord(ctx context.Context, seq uint64) (*record, error) {
	key := recordKey(seq)
	data, _, err := l.place.Get(ctx, key, maxRecord)
	if err == nil {
		var r *record
		if r, err = decodeRecord(data, seq); err == nil {
			return r, nil
		}
	}
	return nil, l.failed(key, err)
}

// Commit stores a state that was made of State, and makes it the State. Its errors are ErrFull,
// ErrAgain, *UnavailableError and *TakenError; State is then as before, apart from ErrAgain. One
// goroutine at a time calls it.
func (l *Ledger) Commit(ctx context.Context, next *State) error {
	if l.taken != nil {
		return l.taken
	}
	now := l.State()
	if next.from != now {
		return ErrAgain
	}
	r := record{Format: format, Seq: now.seq + 1, Epoch: next.Epoch, Writer: l.me, Commit: rand.Text(),
		changes: next.made}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if next.size > maxState-headroom || len(data) > maxRecord {
		return ErrFull
	}
	if err := l.prepare(ctx); err != nil {
		return err
	}
	_, err = l.place.Put(ctx, recordKey(r.Seq), data, bucket.Condition{Absent: true})
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
		defer cancel()
		return l.look(ctx, r.Commit, err)
	}
	if err := l.counts(ctx); err != nil {
		return err
	}
	stored := *next
	stored.seq, stored.from, stored.made = r.Seq, nil, changes{}
	l.adopt(&stored)
	if r.Seq-l.head.Seq >= l.every {
		if err := l.checkpoint(ctx); err != nil { // the next commit tries again
			l.log.Warn("the store has no new checkpoint", "error", err)
		}
	}
	return nil
}

// headroom is what a checkpoint holds beside models and answers, in bytes, and more.
const headroom = 4 << 10

// counts returns nil once it is sure that the record after State, which is there, is part of the
// ledger.
func (l *Ledger) counts(ctx context.Context) error {
	err := l.current(ctx)
	var taken *TakenError
	if err == nil || errors.As(err, &taken) {
		return err
	}
	l.unsure = true
	return &UnavailableError{Unknown: true, Cause: err}
}

// look finds out what a write that failed with cause has left behind. commit names the write; "" is
// for one of earlier.
func (l *Ledger) look(ctx context.Context, commit string, cause error) error {
	now := l.State()
	r, err := l.readRecord(ctx, now.seq+1)
	refused := errors.Is(cause, bucket.ErrChanged)
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		// not there, or not there yet: the next Commit puts this same record, or finds it
		l.unsure = !refused
		var taken *TakenError
		if err := l.current(ctx); errors.As(err, &taken) {
			return err
		}
		return &UnavailableError{Unknown: !refused, Cause: cause}
	case err != nil:
		l.unsure = true
		return &UnavailableError{Unknown: !refused, Cause: errors.Join(cause, err)}
	case r.Writer.ID != l.me.ID:
		return l.lose(r.Writer)
	}
	if err := l.counts(ctx); err != nil {
		return err
	}
	l.adopt(now.after(r))
	if r.Commit == commit {
		return nil
	}
	return ErrAgain
}

// Refresh reads the store if a write of this process may have arrived there late, and reports
// whether State has changed. It is called like Commit.
func (l *Ledger) Refresh(ctx context.Context) (changed bool, err error) {
	if l.taken != nil || !l.unsure {
		return false, l.taken
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	err = l.look(ctx, "", bucket.ErrChanged)
	var away *UnavailableError
	switch {
	case errors.Is(err, ErrAgain):
		return true, nil
	case errors.As(err, &away):
		l.unsure = true
		return false, nil
	}
	return false, err
}
