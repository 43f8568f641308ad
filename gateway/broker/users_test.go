package broker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
)

// The passwords are made once, are read again, and a file that others may read is refused.
func TestReadUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.json")
	first, err := ReadUsers(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadUsers(path)
	if err != nil || *again != *first {
		t.Errorf("%v: the passwords changed", err)
	}
	if first.Worker == first.Gateway || first.Config == first.Route || len(first.Worker) < 16 {
		t.Error("passwords are short or shared")
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	hidden, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(left)+len(hidden) != 1 {
		t.Errorf("files are left: %v %v", left, hidden)
	}
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"open to others": {`{}`, 0o644, "chmod 600"},
		"no JSON":        {`worker: x`, 0o600, "no JSON object"},
		"short":          {`{"worker":"x"}`, 0o600, `of "worker" has fewer than 16`},
		"large":          {strings.Repeat(" ", maxUsersFile+1), 0o600, "large.json"},
	} {
		path := filepath.Join(t.TempDir(), name+".json")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadUsers(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// run starts a server and returns its address. It is stopped when the test ends, in order.
func run(t *testing.T, change func(*Options)) string {
	t.Helper()
	o := Options{
		Host: "127.0.0.1", StoreDir: t.TempDir(), MaxMemory: 1 << 30, MaxStore: 1 << 30, MaxPayload: 1 << 20,
		Log: slog.New(slog.DiscardHandler),
	}
	change(&o)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func(url string) { ready <- url }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case url := <-ready:
		return url
	case err := <-ended:
		ended <- err
		t.Fatal(err)
		return ""
	}
}

// connect returns a connection of a user, and the errors that the server told it.
func connect(t *testing.T, url, user, password, inboxes string) (*nats.Conn, <-chan error) {
	t.Helper()
	told := make(chan error, 16)
	c, err := nats.Connect(url, nats.UserInfo(user, password), nats.CustomInboxPrefix(inboxes),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, told
}

// What a component does is allowed to its user, and what it has no business with is refused.
func TestUsersMayDoTheirWorkAndNoMore(t *testing.T) {
	users, err := ReadUsers(filepath.Join(t.TempDir(), "users.json"))
	if err != nil {
		t.Fatal(err)
	}
	url := run(t, func(o *Options) { o.Users = users })
	if _, err := nats.Connect(url); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without a user: %v", err)
	}
	if _, err := nats.Connect(url, nats.UserInfo(WorkerUser, users.Gateway)); err == nil {
		t.Error("the gateway's password opens the worker's user")
	}
	conns, told := map[string]*nats.Conn{}, map[string]<-chan error{}
	for _, x := range []struct{ user, password, inboxes string }{
		{WorkerUser, users.Worker, bus.SidecarInboxes}, {GatewayUser, users.Gateway, bus.GatewayInboxes},
		{ConfigUser, users.Config, bus.GatewayInboxes},
	} {
		conns[x.user], told[x.user] = connect(t, url, x.user, x.password, x.inboxes)
	}
	lane := bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}
	work, inbox := lane.WorkSubject("m"), bus.Inbox("r", "q")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// The life of a slice and of a dead letter, each step by the user whose it is.
	gateway, err := jetstream.New(conns[GatewayUser])
	if err != nil {
		t.Fatal(err)
	}
	worker, err := jetstream.New(conns[WorkerUser])
	if err != nil {
		t.Fatal(err)
	}
	streams := bus.Streams{}
	for _, js := range []jetstream.JetStream{gateway, worker} {
		if _, err := js.CreateStream(ctx, streams.Work(lane.Pool)); err != nil {
			t.Fatal(err)
		}
		_, err := js.CreateOrUpdateConsumer(ctx, bus.StreamName(lane.Pool), streams.Consumer(work))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := gateway.Publish(ctx, work, []byte("slice")); err != nil {
		t.Fatal(err)
	}
	consumer, err := worker.Consumer(ctx, bus.StreamName(lane.Pool), bus.ConsumerName(work))
	if err != nil {
		t.Fatal(err)
	}
	got, err := consumer.Fetch(1, jetstream.FetchPriorityGroup(bus.PriorityGroup))
	if err != nil {
		t.Fatal(err)
	}
	m, ok := <-got.Messages()
	if !ok || m.DoubleAck(ctx) != nil {
		t.Fatalf("no message: %v", got.Error())
	}
	results, err := conns[GatewayUser].Subscribe(inbox, func(m *nats.Msg) { _ = m.Respond([]byte("stored")) })
	if err != nil {
		t.Fatal(err)
	}
	if err := conns[GatewayUser].Flush(); err != nil {
		t.Fatal(err)
	}
	if m, err := conns[WorkerUser].Request(inbox, []byte("result"), 5*time.Second); err != nil ||
		string(m.Data) != "stored" {
		t.Errorf("a receipt: %v %v", m, err)
	}
	_ = results.Unsubscribe()
	if _, err := gateway.CreateOrUpdateStream(ctx, streams.DeadLetters()); err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.Publish(ctx, bus.DLQPrefix+"m", []byte("letter")); err != nil {
		t.Fatal(err)
	}
	letters, err := gateway.Stream(ctx, bus.DLQStream)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := letters.GetMsg(ctx, 1); err != nil {
		t.Errorf("reading a dead letter: %v", err)
	}
	if err := letters.DeleteMsg(ctx, 1); err != nil {
		t.Errorf("deleting a dead letter: %v", err)
	}
	publishes := func(user, subject string) error {
		return conns[user].Publish(subject, nil)
	}
	subscribes := func(user, subject string) error {
		_, err := conns[user].SubscribeSync(subject)
		return err
	}
	for _, c := range []struct {
		do            func(user, subject string) error
		user, subject string
		allowed       bool
	}{
		{publishes, WorkerUser, bus.HealthPrefix + "w", true},
		{publishes, WorkerUser, work, false},
		{subscribes, WorkerUser, bus.HealthPrefix + "*", true},
		{subscribes, WorkerUser, bus.WorkSubjects, false},
		{subscribes, WorkerUser, bus.GatewayPrefix + "*", true},
		{subscribes, WorkerUser, inbox, false},
		{subscribes, WorkerUser, bus.CancelPrefix + ">", true},
		{subscribes, WorkerUser, bus.DLQPrefix + ">", false},
		{subscribes, WorkerUser, "sie.demand.>", true},
		{subscribes, WorkerUser, ">", false},
		{subscribes, WorkerUser, bus.ConfigPrefix + "default", true},
		{publishes, WorkerUser, bus.GatewayPrefix + "g", false},
		{publishes, WorkerUser, "sie.config.models.x", false},
		{publishes, WorkerUser, "$JS.API.STREAM.DELETE.WORK_POOL_default", false},
		{publishes, WorkerUser, "$JS.API.STREAM.SNAPSHOT.WORK_POOL_default", false},
		{publishes, GatewayUser, bus.GatewayPrefix + "g", true},
		{publishes, GatewayUser, bus.QuotaPrefix + "g", true},
		{subscribes, GatewayUser, bus.QuotaPrefix + "*", true},
		{publishes, WorkerUser, bus.QuotaPrefix + "g", false},
		{subscribes, WorkerUser, bus.QuotaPrefix + "*", false},
		{publishes, GatewayUser, bus.HealthPrefix + "w", false},
		{publishes, GatewayUser, bus.CancelSubject("r", "q"), true},
		{subscribes, GatewayUser, bus.HealthPrefix + "*", true},
		{subscribes, GatewayUser, bus.ConfigAll, true},
		{subscribes, GatewayUser, bus.WorkSubjects, false},
		{subscribes, GatewayUser, "$JS.EVENT.ADVISORY.>", false},
		{publishes, GatewayUser, "sie.config.models.x", false},
		{publishes, GatewayUser, "$JS.API.STREAM.SNAPSHOT.DEAD_LETTERS", false},
		{publishes, GatewayUser, "$JS.API.STREAM.DELETE.WORK_POOL_mine", true},
		{publishes, GatewayUser, "$JS.API.STREAM.DELETE." + bus.DLQStream, false},
		{publishes, GatewayUser, "$JS.API.STREAM.DELETE." + bus.PoolsStream, false},
		{publishes, GatewayUser, bus.PoolsSubject, true},
		{subscribes, GatewayUser, bus.PoolsChanged, true},
		{publishes, WorkerUser, bus.PoolsSubject, false},
		{publishes, WorkerUser, "$JS.API.STREAM.MSG.GET." + bus.PoolsStream, true},
		{publishes, WorkerUser, "$JS.API.STREAM.MSG.GET.WORK_POOL_default", false},
		{subscribes, WorkerUser, bus.PoolsChanged, true},
		{publishes, GatewayUser, "$JS.ACK.WORK_POOL_default.x", false},
		{publishes, ConfigUser, bus.ConfigAll, true},
		{publishes, ConfigUser, bus.ConfigPrefix + "default", true},
		{publishes, ConfigUser, work, false},
		{subscribes, ConfigUser, bus.HealthPrefix + "*", false},
	} {
		if err := errors.Join(c.do(c.user, c.subject), conns[c.user].Flush()); err != nil {
			t.Fatal(err)
		}
		// The server tells a refusal before it answers the flush; the client hands it on in turn.
		var refusal error
		if !c.allowed {
			select {
			case refusal = <-told[c.user]:
			case <-ctx.Done():
			}
		} else {
			select {
			case refusal = <-told[c.user]:
			default:
			}
		}
		if refused := errors.Is(refusal, nats.ErrPermissionViolation); refused == c.allowed ||
			refused && !strings.Contains(refusal.Error(), c.subject) {
			t.Errorf("%s on %s: %v, allowed %v", c.user, c.subject, refusal, c.allowed)
		}
	}
}
