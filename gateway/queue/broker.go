package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/gateway/dlq"
	"github.com/sie-engine/sie/internal/bus"
)

// broker is what the queue needs of NATS. Its methods are safe for concurrent use. Publish,
// PublishSoon and Flush do not wait for an answer; the others are calls of the broker's API.
type broker interface {
	Publish(m *nats.Msg) error
	// PublishSoon publishes what no answer waits for, a moment later. m is not changed any more.
	PublishSoon(m *nats.Msg)
	// Flush publishes what PublishSoon still has.
	Flush()
	// MaxPayload returns the bytes that a message may have, 0 while that is unknown.
	MaxPayload() int64
	// Prepare makes sure of the stream and the consumer of a line, and announces the line.
	Prepare(ctx context.Context, l *line) (streamState, error)
	// Stream returns the state of a pool's stream. errNoStream: there is none.
	Stream(ctx context.Context, pool string) (streamState, error)
	Consumer(ctx context.Context, l *line) (consumerState, error)
	// Remove deletes a message of a pool's stream. A missing one is no error.
	Remove(ctx context.Context, pool string, seq uint64) error
	// Bury stores a dead letter.
	Bury(ctx context.Context, l dlq.Letter) error
}

// streamState is what the broker says of a stream.
type streamState struct {
	Created time.Time
	Last    uint64 // sequence
}

// consumerState is what the broker says of a consumer.
type consumerState struct {
	Pending    uint64 // messages that were not delivered
	AckPending int    // and not acknowledged
	Floor      uint64 // all messages up to it were acknowledged
	Delivered  uint64 // all messages up to it were delivered at least once
}

var errNoStream = errors.New("there is no such stream")

// jetStream is the broker over a connection.
type jetStream struct {
	conn    *nats.Conn
	out     *bus.Outbox
	js      jetstream.JetStream
	streams bus.Streams
}

func newJetStream(conn *nats.Conn, s bus.Streams, lost func(error)) (*jetStream, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	return &jetStream{conn, bus.NewOutbox(conn.PublishMsg, lost), js, s}, nil
}

func (b *jetStream) Publish(m *nats.Msg) error { return b.out.Publish(m) }
func (b *jetStream) PublishSoon(m *nats.Msg)   { b.out.PublishSoon(m) }
func (b *jetStream) Flush()                    { b.out.Flush() }
func (b *jetStream) MaxPayload() int64         { return b.conn.MaxPayload() }

func (b *jetStream) Prepare(ctx context.Context, l *line) (streamState, error) {
	// what is pending is told by Stream, so one call tells whether the stream is as it should be
	s, err := b.js.CreateOrUpdateStream(ctx, b.streams.Work(l.pool.name))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && (refused.ErrorCode == errInUse || refused.ErrorCode == errConfig) {
		s, err = b.js.Stream(ctx, bus.StreamName(l.pool.name)) // its storage cannot be changed
	}
	if err != nil {
		return streamState{}, fmt.Errorf("make stream %s: %w", bus.StreamName(l.pool.name), err)
	}
	_, err = s.CreateOrUpdateConsumer(ctx, b.streams.Consumer(l.subject))
	if errors.As(err, &refused) && refused.ErrorCode == errOverlap {
		if err = b.removeOverlaps(ctx, s, l); err == nil {
			_, err = s.CreateOrUpdateConsumer(ctx, b.streams.Consumer(l.subject))
		}
	}
	if err != nil {
		return streamState{}, fmt.Errorf("make the consumer of %s: %w", l.subject, err)
	}
	info := s.CachedInfo()
	return streamState{info.Created, info.State.LastSeq}, b.conn.Publish(l.demand, nil)
}

// Codes of the broker.
const (
	errConfig  = 10052 // the configuration is not possible, or not from what there is
	errInUse   = 10058 // there is a stream of the name with another configuration
	errOverlap = 10100 // another consumer gets the consumer's messages
)

// maxConsumers bounds the consumers that are looked at for an overlap.
const maxConsumers = 10_000

// removeOverlaps removes the consumers of another layout that get the line's messages, if they are
// idle.
func (b *jetStream) removeOverlaps(ctx context.Context, s jetstream.Stream, l *line) error {
	list, seen := s.ListConsumers(ctx), 0
	for c := range list.Info() {
		if seen++; seen > maxConsumers {
			break
		}
		filter := c.Config.FilterSubject
		if c.Name == bus.ConsumerName(l.subject) || !overlaps(filter, c.Config.FilterSubjects, l.subject) {
			continue
		}
		if c.NumWaiting > 0 || c.NumAckPending > 0 {
			return fmt.Errorf("consumer %q of another layout is in use", clip(c.Name))
		}
		if err := s.DeleteConsumer(ctx, c.Name); err != nil {
			return err
		}
	}
	return list.Err()
}

func (b *jetStream) Stream(ctx context.Context, pool string) (streamState, error) {
	s, err := b.js.Stream(ctx, bus.StreamName(pool))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return streamState{}, errNoStream
	}
	if err != nil {
		return streamState{}, err
	}
	info := s.CachedInfo()
	return streamState{info.Created, info.State.LastSeq}, nil
}

func (b *jetStream) Consumer(ctx context.Context, l *line) (consumerState, error) {
	c, err := b.js.Consumer(ctx, bus.StreamName(l.pool.name), bus.ConsumerName(l.subject))
	if err != nil {
		return consumerState{}, err
	}
	info := c.CachedInfo()
	return consumerState{
		info.NumPending, info.NumAckPending, info.AckFloor.Stream, info.Delivered.Stream,
	}, nil
}

func (b *jetStream) Remove(ctx context.Context, pool string, seq uint64) error {
	s, err := b.js.Stream(ctx, bus.StreamName(pool))
	if err == nil {
		err = s.DeleteMsg(ctx, seq)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

func (b *jetStream) Bury(ctx context.Context, l dlq.Letter) error {
	return dlq.Store(ctx, b.js, b.streams, l)
}
