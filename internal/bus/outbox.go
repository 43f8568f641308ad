package bus

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// The bounds of what waits in an Outbox.
const (
	// Soon is how long a message of PublishSoon waits at most.
	Soon    = 2 * time.Millisecond
	maxSoon = 128 // messages
)

// Outbox publishes messages. Those that no answer waits for, as receipts and acknowledgements, go
// with the next one that an answer waits for: one write, and one wake of the broker, for all of
// them. Its methods are safe for concurrent use.
type Outbox struct {
	publish func(*nats.Msg) error
	failed  func(error) // of messages of PublishSoon

	mu    sync.Mutex
	soon  []*nats.Msg // at most maxSoon
	timer *time.Timer // calls Flush; runs while soon has messages
}

// NewOutbox returns an Outbox over a connection's PublishMsg. failed hears why messages of
// PublishSoon were not sent.
func NewOutbox(publish func(*nats.Msg) error, failed func(error)) *Outbox {
	o := &Outbox{publish: publish, failed: failed}
	o.timer = time.AfterFunc(Soon, o.Flush)
	o.timer.Stop()
	return o
}

// Publish publishes m at once, and then what waits.
func (o *Outbox) Publish(m *nats.Msg) error {
	err := o.publish(m)
	o.Flush()
	return err
}

// PublishSoon publishes m with the next message of Publish, and within Soon. The caller does not
// change m afterwards.
func (o *Outbox) PublishSoon(m *nats.Msg) {
	o.mu.Lock()
	o.soon = append(o.soon, m)
	n := len(o.soon)
	if n == 1 {
		o.timer.Reset(Soon)
	}
	o.mu.Unlock()
	if n >= maxSoon {
		o.Flush()
	}
}

// Flush publishes what waits.
func (o *Outbox) Flush() {
	o.mu.Lock()
	all := o.soon
	o.soon = nil
	if len(all) > 0 {
		o.timer.Stop()
	}
	o.mu.Unlock()
	for _, m := range all {
		if err := o.publish(m); err != nil {
			o.failed(err)
		}
	}
}
