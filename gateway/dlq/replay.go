package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// Outcome is what became of a letter's work when it was run again.
type Outcome struct {
	Worker  string
	Results int         // that came; of a result in chunks 0
	Err     *errs.Error // the worker's
	Died    bool        // it ended its server again
}

// Replay runs a letter's work once more, with nothing else in the server, and waits for the outcome
// until ctx ends. The letter stays where it is. The result itself is thrown away: nobody waits for
// it. conn is a connection with the prefix bus.GatewayInboxes.
func Replay(ctx context.Context, conn *nats.Conn, streams bus.Streams, l Letter) (Outcome, error) {
	item := work.Item{}
	if len(l.Work) == 0 {
		return Outcome{}, fmt.Errorf("dlq: letter %s was kept without its work", l.ID)
	}
	if _, err := item.UnmarshalMsg(l.Work); err != nil {
		return Outcome{}, fmt.Errorf("dlq: the work of %s: %w", l.ID, err)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return Outcome{}, errors.New("dlq: a replay needs a deadline")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id, err := uuid.NewV7()
	if err != nil {
		return Outcome{}, fmt.Errorf("dlq: %w", err)
	}
	router, request := "replay-"+uuid.NewString(), id.String()
	item.RouterID, item.RequestID, item.Index = router, request, 0
	item.WorkItemID, item.ReplySubject = request+".0", bus.Inbox(router, request)
	item.Attempt, item.Alone, item.DiedOn, item.AcceptsChunks = 0, true, nil, true
	item.Timestamp, item.Deadline = epoch(time.Now()), epoch(deadline)

	outcomes := make(chan Outcome, 1)
	sub, err := conn.Subscribe(item.ReplySubject, func(m *nats.Msg) { receive(m, outcomes) })
	if err != nil {
		return Outcome{}, fmt.Errorf("dlq: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	ended := make(chan struct{})
	defer func() { cancel(); <-ended }()
	go func() {
		defer close(ended)
		beat(ctx, conn, router)
	}()
	if err := publish(ctx, conn, streams, l.Subject, &item, deadline); err != nil {
		return Outcome{}, err
	}
	select {
	case o := <-outcomes:
		return o, nil
	case <-ctx.Done():
		_ = conn.Publish(bus.CancelSubject(router, request), nil) // what was not run is dropped anyway
		return Outcome{}, fmt.Errorf("dlq: no worker answered: %w", ctx.Err())
	}
}

func epoch(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// publish puts work into the stream, after making sure of the stream and the consumer.
func publish(
	ctx context.Context, conn *nats.Conn, streams bus.Streams, subject string, item *work.Item,
	deadline time.Time,
) error {
	lane, token, err := bus.ParseWork(subject)
	if err != nil {
		return fmt.Errorf("dlq: %w", err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("dlq: %w", err)
	}
	s, err := js.CreateOrUpdateStream(ctx, streams.Work(lane.Pool))
	if err == nil {
		_, err = s.CreateOrUpdateConsumer(ctx, streams.Consumer(subject))
	}
	if err == nil {
		err = conn.Publish(lane.DemandSubject(item.ModelID), nil)
	}
	if err != nil {
		return fmt.Errorf("dlq: the queue of %s: %w", token, err)
	}
	data, err := item.MarshalMsg(nil)
	if err != nil {
		return fmt.Errorf("dlq: %w", err)
	}
	left := max(int64(time.Until(deadline)/time.Second), 1)
	m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		bus.HeaderMsgID: {item.WorkItemID + "#0"}, bus.HeaderTTL: {fmt.Sprint(left, "s")},
	}}
	if _, err := js.PublishMsg(ctx, m); err != nil {
		return fmt.Errorf("dlq: publish: %w", err)
	}
	return nil
}

// beat publishes the heartbeats without which workers would drop the work.
func beat(ctx context.Context, conn *nats.Conn, router string) {
	tick := time.NewTicker(work.GatewayHeartbeat)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		data, err := json.Marshal(bus.GatewayHeartbeat{RouterID: router, Sequence: n})
		if err == nil {
			_ = conn.Publish(bus.GatewayPrefix+router, data) // the next one follows
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// receive receipts whatever a worker sends, and passes the outcome on.
func receive(m *nats.Msg, outcomes chan<- Outcome) {
	var o Outcome
	kind := ""
	if raw := msgp.Locate("kind", m.Data); raw != nil {
		kind, _, _ = msgp.ReadStringBytes(raw) // no string: no kind
	}
	switch kind {
	case work.KindMark:
		var mark work.Mark
		if _, err := mark.UnmarshalMsg(m.Data); err != nil || mark.State != work.ServerDied {
			return
		}
		o.Worker, o.Died = mark.WorkerID, true
	case work.KindChunk:
		if m.Reply == "" {
			return
		}
	default:
		var res work.Result
		if _, err := res.UnmarshalMsg(m.Data); err != nil {
			return
		}
		o.Worker, o.Results = res.WorkerID, len(res.Results)
		if !res.Success {
			var err error
			if o.Err, err = errs.FromMsgpack(res.Err); err != nil {
				o.Err = errs.Internal(err)
			}
		}
	}
	if data, err := (&work.Receipt{State: work.Stored}).MarshalMsg(nil); err == nil && m.Reply != "" {
		_ = m.Respond(data) // the worker asks again
	}
	select {
	case outcomes <- o:
	default:
	}
}
