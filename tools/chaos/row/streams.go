package row

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// jetStream calls f with a connection to the broker, past any proxy.
func (e *Env) jetStream(ctx context.Context, f func(context.Context, jetstream.JetStream) error) error {
	c, err := nats.Connect(e.Broker(), nats.Timeout(2*time.Second), nats.Name("chaos"))
	if err != nil {
		return err
	}
	defer c.Close()
	js, err := jetstream.New(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return f(ctx, js)
}

// workStreams returns the names of the work streams.
func workStreams(ctx context.Context, js jetstream.JetStream) (names []string, err error) {
	list := js.StreamNames(ctx)
	for name := range list.Name() {
		if strings.HasPrefix(name, "WORK_POOL_") {
			names = append(names, name)
		}
	}
	if list.Err() == nil && len(names) == 0 {
		return nil, errors.New("there is no work stream")
	}
	return names, list.Err()
}

// loseStream deletes the work streams, as an operator's mistake or a lost broker would.
func loseStream(ctx context.Context, e *Env) error {
	return e.jetStream(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		names, err := workStreams(ctx, js)
		if err != nil {
			return err
		}
		for _, name := range names {
			e.hit("stream %s is deleted", name)
			if err := js.DeleteStream(ctx, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// fullTime is how long a stream stays full.
const fullTime = 8 * time.Second

// fillStream fills the work streams with work of a model that nobody serves, until they take no
// more, and empties them of it after a while.
func fillStream(ctx context.Context, e *Env) error {
	return e.jetStream(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		names, err := workStreams(ctx, js)
		if err != nil {
			return err
		}
		block := make([]byte, 512<<10)
		for _, name := range names {
			pool := strings.TrimPrefix(name, "WORK_POOL_")
			subject := "sie.work." + pool + ".chaos.chaos.filler"
			e.hit("stream %s is filled", name)
			for size := len(block); size > 1<<10; {
				if _, err := js.Publish(ctx, subject, block[:size]); err == nil {
					continue
				} else if api := new(jetstream.APIError); !errors.As(err, &api) {
					return err
				}
				size /= 4
			}
			e.note("stream %s is full", name)
		}
		if err := wait(ctx, fullTime); err != nil {
			return err
		}
		for _, name := range names {
			s, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			pool := strings.TrimPrefix(name, "WORK_POOL_")
			if err := s.Purge(ctx,
				jetstream.WithPurgeSubject("sie.work."+pool+".chaos.chaos.filler")); err != nil {
				return fmt.Errorf("empty stream %s: %w", name, err)
			}
			e.note("stream %s has room again", name)
		}
		return nil
	})
}
