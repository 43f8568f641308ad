package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/gateway/dlq"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

// output runs a command line and returns what it prints.
func output(t *testing.T, args ...string) (string, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = old }()
	k, err := newParser(&cli{}).Parse(args)
	if err == nil {
		err = sie.Run(k)
	}
	if e := w.Close(); e != nil {
		t.Fatal(e)
	}
	text, e := io.ReadAll(r)
	if e != nil {
		t.Fatal(e)
	}
	return string(text), err
}

// Letters are listed and shown, their texts only when they are asked for, and dropped.
func TestDeadLettersOnTheCommandLine(t *testing.T) {
	s := bustest.Start(t, nil)
	js, err := jetstream.New(s.Connect(bus.GatewayInboxes))
	if err != nil {
		t.Fatal(err)
	}
	lane := bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}
	item := work.Item{
		WorkItemID: "r.0", Operation: "encode", ModelID: "org/m", Instruction: new("secret words"),
	}
	packed, err := item.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"dl-1", "dl-2"} {
		if err := dlq.Store(t.Context(), js, bus.Streams{}, dlq.Letter{
			ID: id, Time: time.Unix(1e9, 0), Subject: lane.WorkSubject("org/m"), Model: "org/m",
			Reason: "it ended its server twice", Attempts: 2, Work: packed,
		}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := output(t, "dlq", "list", "--nats-url", s.URL)
	want := "ID    TIME                  MODEL  DEATHS  REASON\n" +
		"dl-2  2001-09-09T01:46:40Z  org/m  2       it ended its server twice\n" +
		"dl-1  2001-09-09T01:46:40Z  org/m  2       it ended its server twice\n"
	if got != want || err != nil {
		t.Errorf("%s%v", got, err)
	}
	got, err = output(t, "dlq", "list", "--json", "--limit", "1", "--nats-url", s.URL)
	if err != nil || strings.Count(got, "\n") != 1 || !strings.Contains(got, `"id":"dl-2"`) ||
		strings.Contains(got, `"work"`) {
		t.Errorf("%s%v", got, err)
	}
	if got, err = output(t, "dlq", "show", "dl-1", "--nats-url", s.URL); err != nil ||
		!strings.Contains(got, `"work_bytes": `) || strings.Contains(got, "secret") {
		t.Errorf("%s%v", got, err)
	}
	if got, err = output(t, "dlq", "show", "dl-1", "--work", "--nats-url", s.URL); err != nil ||
		!strings.Contains(got, "secret words") {
		t.Errorf("%s%v", got, err)
	}
	for _, command := range []string{"show", "replay"} {
		for _, id := range []string{"dl-9", "", "dl *", "sie.dlq.>", strings.Repeat("x", 5000)} {
			_, err = output(t, "dlq", command, "--nats-url", s.URL, "--", id)
			if !errors.Is(err, dlq.ErrNotFound) || !strings.Contains(err.Error(), "`sie-gateway dlq list`") {
				t.Errorf("%s of %.20q: %v", command, id, err)
			}
		}
	}
	got, err = output(t, "dlq", "drop", "dl-9", "dl-1", "--nats-url", s.URL)
	if !errors.Is(err, dlq.ErrNotFound) || !strings.Contains(err.Error(), `"dl-9"`) ||
		got != "dl-1 is dropped\n" {
		t.Errorf("dropping one that is not there and one that is: %q %v", got, err)
	}
	got, err = output(t, "dlq", "list", "--nats-url", s.URL)
	if err != nil || strings.Contains(got, "dl-1") {
		t.Errorf("after drop: %s%v", got, err)
	}
	// Nobody serves: a replay says so when its time is up.
	if _, err = output(t, "dlq", "replay", "dl-2", "--timeout", "1s", "--nats-url", s.URL); err == nil ||
		!strings.Contains(err.Error(), "no worker answered") {
		t.Errorf("a replay without workers: %v", err)
	}
	for want, reply := range map[string]func(*work.Item) msgp.Marshaler{
		"dl-2 ran on w3: 1 results": func(i *work.Item) msgp.Marshaler {
			return &work.Result{WorkItemID: i.WorkItemID, Success: true, WorkerID: "w3",
				Results: []msgp.Raw{msgp.AppendNil(nil)}}
		},
		"dl-2 failed on w3: too long (INPUT_TOO_LONG)": func(i *work.Item) msgp.Marshaler {
			return &work.Result{WorkItemID: i.WorkItemID, WorkerID: "w3",
				Err: errs.TooLong("items", "too long").AppendMsgpack(nil)}
		},
		"dl-2 ended the server of w3 again": func(i *work.Item) msgp.Marshaler {
			return &work.Mark{Kind: work.KindMark, WorkItemID: i.WorkItemID, WorkerID: "w3",
				State: work.ServerDied, Alone: true}
		},
	} {
		done := answerOne(t, s, lane, reply)
		got, err := output(t, "dlq", "replay", "dl-2", "--timeout", "20s", "--nats-url", s.URL)
		if said := strings.TrimSpace(got + fmt.Sprint(err)); !strings.HasPrefix(said, want) {
			t.Errorf("a replay: %q, want %q", said, want)
		}
		<-done
	}
	if _, err := output(t, "dlq", "drop", "dl-2", "--nats-url", s.URL); err != nil {
		t.Error(err)
	}
	if got, err = output(t, "dlq", "list", "--nats-url", s.URL); err != nil || strings.Count(got, "\n") != 1 {
		t.Errorf("a list of none: %q %v", got, err)
	}
	s.Stop()
	if _, err = output(t, "dlq", "list", "--nats-url", s.URL); err == nil ||
		!strings.Contains(err.Error(), "no connection: is it running") {
		t.Errorf("without a broker: %v", err)
	}
}

// answerOne answers the next slice of a lane's model org/m in the place of a worker.
func answerOne(
	t *testing.T, s *bustest.Server, lane bus.Lane, reply func(*work.Item) msgp.Marshaler,
) <-chan struct{} {
	t.Helper()
	conn := s.Connect(bus.SidecarInboxes)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for t.Context().Err() == nil {
			c, err := js.Consumer(t.Context(), bus.StreamName(lane.Pool),
				bus.ConsumerName(lane.WorkSubject("org/m")))
			if err != nil {
				continue
			}
			m, err := c.Next(jetstream.FetchMaxWait(time.Second),
				jetstream.FetchPriorityGroup(bus.PriorityGroup))
			if err != nil {
				continue
			}
			var item work.Item
			if _, err := item.UnmarshalMsg(m.Data()); err != nil {
				t.Error(err)
			}
			if time.Until(time.UnixMicro(int64(item.Deadline*1e6))) < 2*time.Second {
				continue // of the replay whose time was up
			}
			data, err := reply(&item).MarshalMsg(nil)
			if err != nil {
				t.Error(err)
			}
			if _, err := conn.Request(item.ReplySubject, data, 5*time.Second); err != nil {
				t.Errorf("no receipt: %v", err)
			}
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Error(err)
			}
			return
		}
	}()
	return done
}
