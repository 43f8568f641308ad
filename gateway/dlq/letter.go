package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
)

// Letter is a dead letter.
type Letter struct {
	ID       string    `json:"id"` // that the caller was told
	Time     time.Time `json:"time"`
	Subject  string    `json:"subject"` // of the work
	Model    string    `json:"model"`
	Reason   string    `json:"reason"`
	Attempts int       `json:"attempts"`          // that ended a server
	Workers  []string  `json:"workers,omitempty"` // whose servers ended
	Caller   string    `json:"caller_request_id,omitempty"`

	Work []byte `json:"work,omitempty"` // the work.Item in msgpack; List leaves it out

	Sequence uint64 `json:"-"` // in the stream
}

// MaxBytes bounds the work of a letter that is stored. A letter of more work is stored without it.
const MaxBytes = 700 << 10

// ErrNotFound is the error for an id without a letter, for errors.Is.
var ErrNotFound = errors.New("no such dead letter")

// headerID is the header that names a letter, so that finding it needs no decoding.
const headerID = "Sie-Dead-Letter"

// Store keeps a letter. A letter with the same id that was stored a moment ago is kept once.
func Store(ctx context.Context, js jetstream.JetStream, streams bus.Streams, l Letter) error {
	_, token, err := bus.ParseWork(l.Subject)
	if err != nil {
		return fmt.Errorf("dlq: %w", err)
	}
	if len(l.Work) > MaxBytes {
		l.Reason += fmt.Sprintf(" (its work of %d bytes is not kept: the limit is %d)", len(l.Work), MaxBytes)
		l.Work = nil
	}
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("dlq: %w", err)
	}
	m := &nats.Msg{Subject: bus.DLQPrefix + token, Data: data, Header: nats.Header{
		bus.HeaderMsgID: {l.ID}, headerID: {l.ID},
	}}
	_, err = js.PublishMsg(ctx, m)
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		if _, err = js.CreateOrUpdateStream(ctx, streams.DeadLetters()); err == nil {
			_, err = js.PublishMsg(ctx, m)
		}
	}
	if err != nil {
		return fmt.Errorf("dlq: store %s: %w", l.ID, err)
	}
	return nil
}
