package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
)

// maxLooks bounds the places of the stream that are looked at for letters.
const maxLooks = 100_000

// List returns the newest letters, at most limit, newest first and without their work.
func List(ctx context.Context, js jetstream.JetStream, limit int) ([]Letter, error) {
	var out []Letter
	err := each(ctx, js, func(l *Letter) bool {
		l.Work = nil
		out = append(out, *l)
		return len(out) < limit
	})
	return out, err
}

// Get returns a letter with its work, or ErrNotFound.
func Get(ctx context.Context, js jetstream.JetStream, id string) (Letter, error) {
	var found *Letter
	err := each(ctx, js, func(l *Letter) bool {
		if l.ID == id {
			found = l
		}
		return found == nil
	})
	switch {
	case err != nil:
		return Letter{}, err
	case found == nil:
		return Letter{}, fmt.Errorf("dlq: %w: %q", ErrNotFound, id)
	}
	return *found, nil
}

// Drop removes a letter. One that is not there is ErrNotFound.
func Drop(ctx context.Context, js jetstream.JetStream, id string) error {
	l, err := Get(ctx, js, id)
	if err != nil {
		return err
	}
	s, err := js.Stream(ctx, bus.DLQStream)
	if err == nil {
		err = s.SecureDeleteMsg(ctx, l.Sequence)
	}
	if err != nil {
		return fmt.Errorf("dlq: drop %s: %w", id, err)
	}
	return nil
}

// each calls f with every letter, newest first, until f returns false. What is no letter is passed
// over.
func each(ctx context.Context, js jetstream.JetStream, f func(l *Letter) bool) error {
	s, err := js.Stream(ctx, bus.DLQStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("dlq: %w", err)
	}
	state := s.CachedInfo().State
	left, looks := state.Msgs, 0
	for seq := state.LastSeq; seq >= state.FirstSeq && seq > 0 && left > 0 && looks < maxLooks; seq-- {
		looks++
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("dlq: read letter %d: %w", seq, err)
		}
		left--
		l := &Letter{}
		if json.Unmarshal(m.Data, l) != nil || l.ID == "" {
			continue
		}
		l.Sequence = seq
		if !f(l) {
			return nil
		}
	}
	return nil
}
