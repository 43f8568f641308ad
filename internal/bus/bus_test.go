package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/testrig"
)

// A stream and a consumer made twice from the definitions are the same; a flooded model refuses,
// and another does not notice; acknowledged work leaves at once.
func TestDefinitionsOfWork(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	js, err := jetstream.New(bustest.Start(t, nil).Connect(bus.GatewayInboxes))
	if err != nil {
		t.Fatal(err)
	}
	streams := bus.Streams{MaxWaiting: 2}
	lane := bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}
	a, b := lane.WorkSubject("org/a.b"), lane.WorkSubject("org/b")
	for range 2 {
		if _, err := js.CreateOrUpdateStream(ctx, streams.Work(lane.Pool)); err != nil {
			t.Fatal(err)
		}
		for _, subject := range []string{a, b} {
			c := streams.Consumer(subject)
			_, err := js.CreateOrUpdateConsumer(ctx, bus.StreamName(lane.Pool), c)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	publish := func(subject, id string) error {
		m := nats.NewMsg(subject)
		m.Header.Set(bus.HeaderMsgID, id)
		m.Header.Set(bus.HeaderTTL, "30s")
		_, err := js.PublishMsg(ctx, m)
		return err
	}
	for _, id := range []string{"r.0#0", "r.1#0", "r.1#0"} {
		if err := publish(a, id); err != nil {
			t.Fatal(err)
		}
	}
	var refused *jetstream.APIError
	if err := publish(a, "r.2#0"); !errors.As(err, &refused) || refused.ErrorCode != 10077 {
		t.Errorf("a flooded model: %v, want 10077", err)
	}
	if err := publish(b, "s.0#0"); err != nil {
		t.Errorf("another model: %v", err)
	}
	c, err := js.Consumer(ctx, bus.StreamName(lane.Pool), bus.ConsumerName(a))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Fetch(2, jetstream.FetchMaxWait(5*time.Second),
		jetstream.FetchPriorityGroup(bus.PriorityGroup))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for m := range got.Messages() {
		n++
		if err := m.DoubleAck(ctx); err != nil {
			t.Fatal(err)
		}
	}
	s, err := js.Stream(ctx, bus.StreamName(lane.Pool))
	if err != nil {
		t.Fatal(err)
	}
	if left := s.CachedInfo().State.Msgs; n != 2 || left != 1 {
		t.Errorf("%d messages came and %d are left; want 2 and 1", n, left)
	}
}

// Parts of subjects that could reach other subjects are refused, and a subject splits into the
// parts it was made of.
func TestSubjects(t *testing.T) {
	lane := bus.Lane{Pool: "p1", Profile: "l4-spot", Bundle: "default"}
	got, token, err := bus.ParseWork(lane.WorkSubject("BAAI/bge-m3:v1.5 x"))
	if err != nil || got != lane || token != "BAAI__bge-m3:v1_dot_5_x" {
		t.Errorf("%v %q %v", got, token, err)
	}
	if _, _, err := bus.ParseDemand(lane.WorkSubject("m")); err == nil {
		t.Error("work was read as a demand")
	}
	for _, bad := range []string{"", "*", ">", "a.b", "a b", "a/b"} {
		if _, _, err := bus.ParseWork("sie.work.p.l4.default." + bad); err == nil {
			t.Errorf("%q was read as the token of a model", bad)
		}
		if _, _, err := bus.ParseDemand("sie.demand.p.l4.default." + bad); err == nil {
			t.Errorf("%q was read as the token of a model in demand", bad)
		}
	}
	for _, bad := range []string{"", "a.b", "*", ">", "a b", "a\n", strings.Repeat("a", 129), "é"} {
		if (bus.Lane{Pool: bad, Profile: "x", Bundle: "x"}).Validate() == nil {
			t.Errorf("pool %q was accepted", bad)
		}
		if _, _, err := bus.ParseInbox("_INBOX." + bad + ".r"); err == nil {
			t.Errorf("router %q was accepted", bad)
		}
	}
	for _, bad := range []string{
		"_INBOX.r", "_INBOX.r.s.t", "sie.work.a.b", "$JS.API.x", "_INBOX_WORKER.r.s", "",
	} {
		if _, _, err := bus.ParseInbox(bad); err == nil {
			t.Errorf("inbox %q was accepted", bad)
		}
	}
	if r, q, err := bus.ParseInbox(bus.Inbox("gw", "0190")); err != nil || r != "gw" || q != "0190" {
		t.Errorf("%q %q %v", r, q, err)
	}
	if got := bus.ConsumerName("sie.work.a.b.c.d"); got != "m_2d8beda3269c717405d40b2492bfbb20" {
		t.Errorf("the name of a consumer is %s, not m_ and 32 digits of the subject's SHA-256", got)
	}
}

// A publish without a connection fails, and is not sent when the broker is back.
func TestNothingIsSentLater(t *testing.T) {
	s := bustest.Start(t, nil)
	c := s.Connect(bus.GatewayInboxes)
	s.Stop()
	for c.IsConnected() {
		time.Sleep(time.Millisecond)
	}
	if err := c.Publish("x", []byte("late")); err == nil {
		t.Error("a publish without a connection was accepted")
	}
	s.Restart()
	other := s.Connect(bus.GatewayInboxes)
	sub, err := other.SubscribeSync("x")
	if err != nil {
		t.Fatal(err)
	}
	for !c.IsConnected() {
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(other.Flush(), c.Publish("x", []byte("now")), c.Flush()); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(2 * time.Minute)
	if err != nil || string(m.Data) != "now" {
		t.Errorf("%v %v", m, err)
	}
}

// A connection that the broker refuses is tried again for as long as it is open, says so in the
// log, and not at every try; once the broker takes its password it is made.
func TestARefusedUserConnectsLater(t *testing.T) {
	broker := bustest.Start(t, func(o *server.Options) { o.Username, o.Password = "u", "old" })
	log := &testrig.Log{}
	connected := make(chan struct{}, 1)
	c, err := bus.Connect(bus.Options{
		URL: broker.URL, Name: "t", Access: bus.Access{User: "u", Password: "new"},
		Inboxes: bus.GatewayInboxes,
		Log:     slog.New(slog.NewTextHandler(log, nil)), Connected: func() { connected <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	testrig.Until(t, "the refusal is logged", func() bool {
		return strings.Contains(log.String(), "NATS refuses the user or the password")
	})
	testrig.Until(t, "it was tried again", func() bool { return broker.Connections() > 5 })
	if c.IsClosed() {
		t.Fatal("the connection was given up")
	}
	broker.Stop()
	broker.Change(func(o *server.Options) { o.Password = "new" })
	broker.Restart()
	<-connected
	if n := strings.Count(log.String(), "level="); n > 2 {
		t.Errorf("%d lines in the log: %s", n, log)
	}
}

// A consumer that nobody pulls from stays for an hour, and for a minute where each is a Raft group.
func TestConsumersGoSoonerWithReplicas(t *testing.T) {
	for replicas, want := range map[int]time.Duration{1: time.Hour, 3: time.Minute, 5: time.Minute} {
		c := bus.Streams{Replicas: replicas}.Consumer("sie.work.p.m.b.x")
		if c.InactiveThreshold != want {
			t.Errorf("%d replicas: %v, want %v", replicas, c.InactiveThreshold, want)
		}
	}
	s := bus.Streams{Replicas: 3, Inactive: 5 * time.Second}
	if got := s.Consumer("sie.work.p.m.b.x").InactiveThreshold; got != s.Inactive {
		t.Errorf("%v, want %v", got, s.Inactive)
	}
}
