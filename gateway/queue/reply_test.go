package queue

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
)

// A worker cannot use a receipt to have a gateway publish elsewhere: only inboxes of sidecars are
// answered.
func TestReceiptsGoToSidecarsAlone(t *testing.T) {
	g := newRig(t, nil)
	worker := g.server.Connect(bus.SidecarInboxes)
	defer worker.Close()
	all, err := worker.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.conn.Flush(); err != nil { // the broker knows the gateway's inbox
		t.Fatal(err)
	}
	mark := work.Mark{Kind: work.KindMark, WorkItemID: "0190.0", RequestID: "0190", WorkerID: "w",
		State: work.ServerDied}
	data, err := mark.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	const own = bus.SidecarInboxes + ".w.r.1"
	for _, reply := range []string{
		bus.CancelSubject("gw-1", "another"), lane.WorkSubject(modelID), "$JS.API.STREAM.INFO.X",
		bus.Inbox("gw-1", "another"), bus.SidecarInboxes, bus.GatewayPrefix + "gw-2", own,
	} {
		if err := worker.PublishRequest(bus.Inbox("gw-1", "0190"), reply, data); err != nil {
			t.Fatal(err)
		}
	}
	receipt := string(receipts[work.Unknown])
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // heartbeats never end
	defer cancel()
	for {
		var m *nats.Msg
		if m, err = all.NextMsgWithContext(ctx); err != nil {
			t.Fatal(err)
		}
		if string(m.Data) != receipt {
			continue // what the test sends, and heartbeats
		}
		if m.Subject == own {
			return // the receipts come in the order of the requests
		}
		t.Errorf("the gateway published a receipt to %s", m.Subject)
	}
}

// A receipt that asks for chunks is on the way of an answer, and others are not.
func TestFinalReceipts(t *testing.T) {
	for state, data := range receipts {
		if !final(data) {
			t.Errorf("%s waits for something", state)
		}
	}
	if final(receipt(work.Again, []uint32{1})) || final(nil) {
		t.Error("a receipt that asks for chunks is final")
	}
}
