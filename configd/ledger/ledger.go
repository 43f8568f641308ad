package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/weights/bucket"
)

// stateKey is the object that holds the state.
const stateKey = "config.json"

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
	// Unknown says that the store may hold the change nevertheless, because it could not be asked.
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

// ErrAgain is the error of a Commit that found a change of this process of which the store had not
// said that it took it. State has it now; the caller makes its own change on top of that.
var ErrAgain = errors.New("an earlier change has arrived meanwhile")

// Ledger keeps a State in a Place.
type Ledger struct {
	place   Place
	me      Writer
	log     *slog.Logger
	state   atomic.Pointer[State]
	version string // of the stored state, "" while there is none
	unsure  bool   // a write of ours may arrive yet
	taken   error
}

// Open reads the state of a place; without one it is empty. A state that cannot be read is an
// error.
func Open(ctx context.Context, place Place, me Writer, log *slog.Logger) (*Ledger, error) {
	l := &Ledger{place: place, me: me, log: log}
	state, version, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	l.adopt(state, version)
	return l, nil
}

// State returns what the ledger holds. Any goroutine may call it.
func (l *Ledger) State() *State { return l.state.Load() }

// Durable reports whether the state outlives the process.
func (l *Ledger) Durable() bool { return l.place.Durable() }

// Place returns where the state is, for messages.
func (l *Ledger) Place() string { return l.place.String() }

func (l *Ledger) adopt(s *State, version string) {
	l.state.Store(s)
	l.version, l.unsure = version, false
}

// read returns the stored state and its version; the empty state, and no version, if there is none.
func (l *Ledger) read(ctx context.Context) (*State, string, error) {
	data, version, err := l.place.Get(ctx, stateKey, maxState)
	if errors.Is(err, bucket.ErrNotFound) {
		return &State{}, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s%s: %w", l.place, stateKey, err)
	}
	state, err := decode(data)
	if err != nil {
		return nil, "", fmt.Errorf("%s%s: %w", l.place, stateKey, err)
	}
	return state, version, nil
}

// Commit stores a state that was made of State, and makes it the State. Its errors are ErrFull,
// ErrAgain, *UnavailableError and *TakenError; State is then as before, apart from ErrAgain. One
// goroutine at a time calls it.
func (l *Ledger) Commit(ctx context.Context, next *State) error {
	if l.taken != nil {
		return l.taken
	}
	s := *next
	s.writer, s.commit = l.me, rand.Text()
	data, err := s.encode()
	if err != nil {
		return err
	}
	when := bucket.Condition{Version: l.version, Absent: l.version == ""}
	version, err := l.place.Put(ctx, stateKey, data, when)
	if err == nil {
		l.adopt(&s, version)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	return l.look(ctx, s.commit, err)
}

// look finds out what a write that failed with cause has left behind. commit names the write; "" is
// for one of earlier.
func (l *Ledger) look(ctx context.Context, commit string, cause error) error {
	found, version, err := l.read(ctx)
	switch {
	case err != nil:
		l.unsure = true
		unknown := !errors.Is(cause, bucket.ErrChanged)
		return &UnavailableError{Unknown: unknown, Cause: errors.Join(cause, err)}
	case commit != "" && found.commit == commit:
		l.adopt(found, version)
		return nil
	case found.commit == l.State().commit:
		// not there, or not there yet: the next Commit replaces this same version, or finds it
		l.unsure = !errors.Is(cause, bucket.ErrChanged)
		return &UnavailableError{Cause: cause}
	case found.writer.ID == l.me.ID:
		l.adopt(found, version)
		return ErrAgain
	}
	l.taken = &TakenError{l.place.String(), found.writer}
	return l.taken
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
