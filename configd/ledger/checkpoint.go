package ledger

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sie-engine/sie/weights/bucket"
)

// checkpointEvery is how many records a ledger reads at most after its checkpoint, while writing
// checkpoints succeeds. A commit pays this part of a checkpoint.
const checkpointEvery = 128

// The bounds of what Tidy remembers and of what Open lists.
const (
	maxLeft   = 1 << 16
	maxListed = 1 << 18
)

// prepare makes the store one of this form, before the first record: of an earlier form, or empty.
// A process of an earlier form reads neither then.
func (l *Ledger) prepare(ctx context.Context) error {
	if l.head.Format == format {
		return nil
	}
	return l.checkpoint(ctx)
}

// checkpoint stores State as a whole, and then the head that names it, so that the records up to
// there are needed no more. Its errors are those of Commit, and change nothing.
func (l *Ledger) checkpoint(ctx context.Context) error {
	s := l.State()
	next := head{Format: format, Seq: s.seq, Writer: l.me, Commit: rand.Text()}
	if s.seq > 0 || s.Epoch > 0 || len(s.Models) > 0 || len(s.Answers) > 0 {
		next.State = stateKey(s.seq)
		data, err := s.encode()
		if err != nil {
			return err
		}
		if _, err := l.place.Put(ctx, next.State, data, bucket.Condition{}); err != nil {
			return &UnavailableError{Cause: err}
		}
	}
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	when := bucket.Condition{Version: l.version, Absent: l.version == ""}
	version, err := l.place.Put(ctx, headKey, data, when)
	if err != nil {
		if next, version, err = l.lookHead(ctx, next, err); err != nil {
			return err
		}
	}
	l.replaceHead(next, version)
	return nil
}

// lookHead finds out what the replacement of the head that failed with cause has left behind. It
// returns the head that there is, if that is as good.
func (l *Ledger) lookHead(ctx context.Context, wanted head, cause error) (head, string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	found, _, version, err := l.readHead(ctx)
	switch {
	case err != nil:
		return found, "", &UnavailableError{Cause: errors.Join(cause, err)}
	case found.Commit == wanted.Commit:
		return found, version, nil
	case found.Commit == l.head.Commit || found.Commit == "": // not there, not there yet, or removed
		return found, "", &UnavailableError{Cause: cause}
	case found.Seq > wanted.Seq || found.Format != format:
		return found, "", l.lose(found.Writer)
	case found.Seq == wanted.Seq: // of an earlier attempt, or another process reads the same records
		return found, version, nil
	}
	l.replaceHead(found, version)
	return found, "", &UnavailableError{Cause: cause}
}

// replaceHead remembers a head, and what is needed no more because of it.
func (l *Ledger) replaceHead(now head, version string) {
	before := l.head
	l.head, l.version = now, version
	l.leave(func(yield func(string)) {
		if before.State != "" && before.State != now.State {
			yield(before.State)
		}
		for seq := before.Seq + 1; seq <= now.Seq; seq++ {
			yield(recordKey(seq))
		}
	})
}

// leave remembers names for Tidy.
func (l *Ledger) leave(names func(yield func(string))) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names(func(name string) {
		if len(l.left) < maxLeft { // the next Open finds the others
			l.left = append(l.left, name)
		}
	})
}

// Tidy removes objects that are needed no more, until ctx ends or the store refuses. Nothing
// depends on it; the first refusal after a success is logged. Any goroutine may call it, beside the
// other methods.
func (l *Ledger) Tidy(ctx context.Context) {
	for ctx.Err() == nil {
		l.mu.Lock()
		if len(l.left) == 0 {
			l.mu.Unlock()
			return
		}
		name := l.left[0]
		l.left = l.left[1:]
		l.mu.Unlock()
		err := l.place.Delete(ctx, name)
		l.mu.Lock()
		first := err != nil && ctx.Err() == nil && !l.kept
		l.kept = err != nil && (l.kept || first)
		l.mu.Unlock()
		if first {
			l.log.Warn("the store does not remove what is needed no more", "object", l.place.String()+name,
				"error", err)
		}
		if err != nil {
			l.leave(func(yield func(string)) { yield(name) })
			return
		}
	}
}

// readHead returns the head and its version, and the state of one of form 1. Without one, the head
// is empty, and the version.
func (l *Ledger) readHead(ctx context.Context) (head, *State, string, error) {
	data, version, err := l.place.Get(ctx, headKey, maxState)
	if errors.Is(err, bucket.ErrNotFound) {
		return head{}, nil, "", nil
	}
	if err != nil {
		return head{}, nil, "", l.failed(headKey, err)
	}
	h, old, err := decodeHead(data)
	if err != nil {
		return head{}, nil, "", l.failed(headKey, err)
	}
	return h, old, version, nil
}

func (l *Ledger) failed(key string, err error) error {
	return fmt.Errorf("%s%s: %w", l.place, key, err)
}

// current reports whether the records after State still count: another process has not put a
// checkpoint of later ones in their place. The error is a *TakenError if it has.
func (l *Ledger) current(ctx context.Context) error {
	h, _, _, err := l.readHead(ctx)
	switch {
	case err != nil:
		return err
	case h.Seq > l.State().seq:
		return l.lose(h.Writer)
	case h.Format != format: // an earlier sie-config wrote over it, or somebody removed it
		return l.failed(headKey, errors.New("it is not what this sie-config wrote"))
	}
	return nil
}

// lose ends writing, because another process does.
func (l *Ledger) lose(to Writer) error {
	l.taken = &TakenError{l.place.String(), to}
	return l.taken
}

// leftovers remembers what an earlier process has not removed. With a head of this form nothing
// depends on it, so a store that does not list them, or too many, is logged. Without one there may
// be nothing.
func (l *Ledger) leftovers(ctx context.Context) error {
	for _, start := range []string{recordStart, stateStart} {
		names, err := l.place.List(ctx, start, maxListed)
		if err != nil && l.head.Format != format {
			return err
		}
		if err != nil {
			l.log.Warn("what is needed no more is not listed, and stays",
				"objects", l.place.String()+start+"*", "error", err)
			continue
		}
		for _, name := range names {
			seq, ours := keySeq(name, start)
			switch {
			case !ours:
			case l.head.Format != format && seq > 0:
				return fmt.Errorf("%s%s is there without the %s that names it: put that back, or use an empty store",
					l.place, name, headKey)
			case start == recordStart && seq <= l.head.Seq, start == stateStart && seq < l.head.Seq:
				l.leave(func(yield func(string)) { yield(name) })
			}
		}
	}
	return nil
}
