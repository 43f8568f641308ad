package configd

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
)

// flushTime bounds the wait until deltas have left.
const flushTime = 2 * time.Second

// maxDelta bounds a delta: sidecars take no more. A larger one leaves out the document, which
// gateways then read from the export.
const maxDelta = 1 << 20

// publishFailed begins the warning that deltas may have reached nobody.
const publishFailed = "nats_publish_failed: "

// NATS returns the Notifier of a connection. producer is its name, which gateways must trust.
func NATS(conn *nats.Conn, producer string) Notifier { return &natsNotifier{conn, producer} }

type natsNotifier struct {
	conn     *nats.Conn
	producer string
}

func (n *natsNotifier) Producer() string { return n.producer }
func (n *natsNotifier) Connected() bool  { return n.conn.IsConnected() }

// Notify publishes each delta to its bundle and to all, and flushes: what the broker has not taken
// is no success.
func (n *natsNotifier) Notify(deltas []Delta) (warnings []string) {
	for _, d := range deltas {
		d.Router = n.producer
		data, err := json.Marshal(d)
		if err == nil && len(data) > maxDelta {
			d.Config = ""
			data, err = json.Marshal(d)
		}
		for _, subject := range []string{bus.ConfigPrefix + d.Bundle, bus.ConfigAll} {
			if err == nil {
				err = n.conn.Publish(subject, data)
			}
		}
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("nats_publish_partial: bundle '%s': %v", d.Bundle, err))
		}
	}
	if err := n.conn.FlushTimeout(flushTime); err != nil {
		warnings = append(warnings, publishFailed+err.Error())
	}
	return warnings
}
