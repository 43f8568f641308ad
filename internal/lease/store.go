package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/sie-engine/sie/internal/bus"
)

// View is what a look at the bucket saw. The zero View has seen nothing.
type View struct {
	Epoch    time.Time // when the bucket was made; zero: there is none
	Revision uint64    // of the document; 0: there is none
	Table    *Table    // nil in the zero View

	now time.Time // of the broker, when it was asked
	at  time.Time // when the answer came, by the clock of this process, which never jumps
}

// Now returns the broker's time, never later than it is there.
func (v View) Now() time.Time { return v.now.Add(time.Since(v.at)) }

// Seen reports whether this is the view of a look: the zero View does not know what there is.
func (v View) Seen() bool { return !v.at.IsZero() }

// Same reports whether two views are of one document.
func (v View) Same(o View) bool { return v.Epoch.Equal(o.Epoch) && v.Revision == o.Revision }

// At returns a view of a table in the bucket of an epoch, whose broker's clock says now: for tests
// and other stores.
func At(epoch time.Time, revision uint64, t *Table, now time.Time) View {
	return View{Epoch: epoch, Revision: revision, Table: t, now: now, at: time.Now()}
}

// The errors of Swap.
var (
	// ErrConflict says that the document was changed since the view: nothing was written.
	ErrConflict = errors.New("the pools have changed")
	// ErrUnknown says that the broker did not answer: the document may have been written.
	ErrUnknown = errors.New("the broker did not say whether the pools were written")
)

// The times of a Store.
const (
	askTime    = 2 * time.Second // for one answer of the broker
	firstAgain = 20 * time.Millisecond
	lastAgain  = 500 * time.Millisecond
)

// Store is the bucket of a broker. Its methods are safe for concurrent use.
type Store struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	streams bus.Streams
}

// NewStore returns the bucket of a connection, which may be made later.
func NewStore(conn *nats.Conn, s bus.Streams) (*Store, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	return &Store{conn, js, s}, nil
}

// Make makes the bucket unless there is one.
func (s *Store) Make(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, err := s.js.CreateStream(ctx, s.streams.Pools())
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // made with other options
		return nil
	}
	return err
}

// Look returns what is in the bucket now. last is an earlier view, or none: an unchanged document
// is not read again. Without a bucket the view has an empty table and no epoch.
func (s *Store) Look(ctx context.Context, last View) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	stream, err := s.js.Stream(ctx, bus.PoolsStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return View{Table: &Table{}, now: last.Now(), at: time.Now()}, nil
	}
	if err != nil {
		return View{}, err
	}
	info := stream.CachedInfo()
	v := View{Epoch: info.Created, now: info.TimeStamp, at: time.Now()}
	if last.Table != nil && v.Epoch.Equal(last.Epoch) && info.State.LastSeq == last.Revision {
		v.Revision, v.Table = last.Revision, last.Table
		return v, nil
	}
	m, err := stream.GetLastMsgForSubject(ctx, bus.PoolsSubject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		v.Table = &Table{}
		return v, nil
	case err != nil:
		return View{}, err
	}
	if v.Table, err = decode(m.Data, m.Time); err != nil {
		return View{}, err
	}
	v.Revision = m.Sequence
	if m.Time.After(v.now) { // it was stored after the broker was asked
		v.now = m.Time
	}
	return v, nil
}

// Swap puts a table in the place of the view's, if that is still in the bucket, and returns the new
// revision. An answer that does not come is asked for again until ctx ends; then the error wraps
// ErrUnknown if the table may have been written, and any other error says that it was not.
func (s *Store) Swap(ctx context.Context, v View, t *Table) (uint64, error) {
	id := nuid.Next()
	data, err := t.encode(id)
	if err != nil {
		return 0, err
	}
	maybe := false
	for wait := firstAgain; ; wait = min(2*wait, lastAgain) {
		revision, sent, err := s.put(ctx, v.Revision, data)
		var refused *jetstream.APIError
		switch {
		case err == nil:
			return revision, nil
		case errors.As(err, &refused):
			conflict := refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
				refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
			switch {
			case !conflict && !maybe:
				return 0, err
			case conflict && !maybe:
				return 0, ErrConflict
			case conflict:
				// From here on an earlier try is in the document, or never will be.
				if revision, known := s.find(ctx, v, id); known {
					if revision == 0 {
						return 0, ErrConflict
					}
					return revision, nil
				}
			}
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
			if !maybe && s.conn.IsConnected() {
				return 0, ErrConflict // the bucket is gone
			}
		default:
			maybe = maybe || sent
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if maybe {
				return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
			}
			return 0, err
		}
	}
}

// put publishes a document over a revision. sent is false if the broker certainly did not get it.
func (s *Store) put(ctx context.Context, over uint64, data []byte) (revision uint64, sent bool, err error) {
	if !s.conn.IsConnected() {
		return 0, false, nats.ErrDisconnected
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m := &nats.Msg{Subject: bus.PoolsSubject, Data: data, Header: nats.Header{}}
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(over, 10))
	ack, err := s.js.PublishMsg(ctx, m, jetstream.WithExpectStream(bus.PoolsStream),
		jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, true, err
	}
	return ack.Sequence, true, nil
}

// find returns the revision of a write after the view, 0 if it was never stored. known is false if
// that cannot be told.
func (s *Store) find(ctx context.Context, before View, write string) (revision uint64, known bool) {
	v, err := s.Look(ctx, View{})
	if err != nil || !v.Epoch.Equal(before.Epoch) {
		return 0, false
	}
	at := slices.Index(v.Table.Writes, write)
	if at >= 0 {
		return v.Revision - uint64(len(v.Table.Writes)-1-at), true
	}
	return 0, v.Revision > before.Revision && v.Revision-before.Revision <= maxWrites
}

// followEvery is the longest time between two looks of Follow: a message that tells of a change may
// be lost.
const followEvery = time.Second

// Follow looks at the bucket until ctx ends: at once, after each change, when wake has an element,
// and once a second. each gets every view, or the error of a look.
func (s *Store) Follow(ctx context.Context, wake <-chan struct{}, each func(View, error)) error {
	told := make(chan struct{}, 1) // one more is of no use
	sub, err := s.conn.Subscribe(bus.PoolsChanged, func(*nats.Msg) {
		select {
		case told <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var last View
	for {
		v, err := s.Look(ctx, last)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			last = v
		}
		each(v, err)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-told:
		case <-wake:
		}
	}
}
