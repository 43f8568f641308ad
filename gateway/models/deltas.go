package models

import (
	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/configpoll"
)

// Listen has the Bootstrap ask sie-config soon when a producer that is trusted tells of a change.
// configpoll says who is trusted, and that nothing else is believed.
func (b *Bootstrap) Listen(conn *nats.Conn, trusted []string) (*nats.Subscription, error) {
	return conn.Subscribe(bus.ConfigAll, func(m *nats.Msg) { b.hear(m, trusted) })
}

func (b *Bootstrap) hear(m *nats.Msg, trusted []string) {
	if b.deltas.Hear(m, trusted, b.log) {
		b.Ask()
	}
}

// Ask has the Bootstrap ask sie-config soon. It returns at once, and many calls cause one question.
func (b *Bootstrap) Ask() { b.poller.Ask() }

// Deltas returns what was told of changes.
func (b *Bootstrap) Deltas() *configpoll.Deltas { return &b.deltas }
