package natscheck

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/gateway/broker"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/tools/kube/stage"
)

const (
	encoder = "sentence-transformers/all-MiniLM-L6-v2"
	second  = "thenlper/gte-small"
	third   = "thenlper/gte-base"
	added   = "org/added"
)

// patience bounds a wait for what is certain to come.
const patience = 3 * time.Minute

// world is a cluster of real programs under the users of the chart.
type world struct {
	*testing.T
	ctx     context.Context
	nats    *Server
	js      jetstream.JetStream // of a hand that may do everything
	hand    *nats.Conn
	cluster *stage.Cluster
	gateway string
	config  string
	worker  *stage.Worker
	lane    bus.Lane
}

// until waits for a condition that is certain to hold.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("waited %v until %s; refused: %v", patience, what, w.nats.Violations())
		}
	}
}

// ask sends a request to a URL and returns its status and the beginning of its answer.
func (w *world) ask(ctx context.Context, method, url, body string) (int, string) {
	w.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
	return resp.StatusCode, string(b)
}

// encode encodes a text until it is answered.
func (w *world) encode(model, pool, text string) {
	w.Helper()
	w.until("an answer of "+model, func() bool {
		body := strings.NewReader(fmt.Sprintf(`{"items":[{"id":"a","text":%q}]}`, text))
		r, err := http.NewRequestWithContext(w.ctx, "POST", w.gateway+"/v1/encode/"+model, body)
		if err != nil {
			w.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if pool != "" {
			r.Header.Set("X-SIE-Pool", pool)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			w.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		unknown := resp.StatusCode == 404 && model == added // the gateway has not heard of it yet
		if resp.StatusCode != 200 && resp.StatusCode != 202 && resp.StatusCode != 503 && !unknown {
			w.Fatalf("encode: %d %s", resp.StatusCode, b)
		}
		return resp.StatusCode == 200
	})
}

// done reports whether a user has done something that begins so.
func (w *world) done(user, do, prefix string) bool {
	for a := range w.nats.Actions() {
		if a.User == user && a.Do == do && strings.HasPrefix(a.Subject, prefix) {
			return true
		}
	}
	return false
}

// open starts the broker and all programs.
func open(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, ctx: t.Context(), nats: Start(t, Conf(t)),
		lane: bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}}
	var err error
	if w.hand, err = nats.Connect(w.nats.Root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.hand.Close)
	if w.js, err = jetstream.New(w.hand); err != nil {
		t.Fatal(err)
	}
	w.cluster, err = stage.New(stage.Options{
		Dir: stage.Dir(t), Bin: map[string]string{"": stage.Programs(t)}, NATSURL: w.nats.URL,
		Users: Users(),
		Lanes: []bus.Lane{w.lane}, Models: []string{encoder, second, third},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cluster.Close)
	return w
}

// leftover makes the stream of the lane anew with a consumer of another layout.
func (w *world) leftover() {
	w.Helper()
	name := bus.StreamName(w.lane.Pool)
	_ = w.js.DeleteStream(w.ctx, name) // it may not be there
	s, err := w.js.CreateStream(w.ctx, bus.Streams{}.Work(w.lane.Pool))
	if err == nil {
		_, err = s.CreateConsumer(w.ctx, jetstream.ConsumerConfig{
			Durable: "leftover", FilterSubject: "sie.work.default.cpu.default.>",
			AckPolicy: jetstream.AckExplicitPolicy,
		})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// The real programs do all that they do under the users of the chart: nothing is refused, and every
// permission is needed: there is something that they did which no other permission allows.
func TestTheClusterNeedsAllThatItMayDo(t *testing.T) {
	stage.Full(t)
	w := open(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// The stream of a pool that is gone: gateways remove it when it is a minute old.
	_, err := w.js.CreateStream(w.ctx, bus.Streams{}.Work("gone"))
	must(err)
	_, w.config, err = w.cluster.StartConfig(w.ctx, 0)
	must(err)

	// A worker alone meets a consumer of another layout, in a lane where work is announced.
	w.leftover()
	w.worker, err = w.cluster.StartWorker(w.ctx, "w1", w.lane)
	must(err)
	w.until("the worker removes what another layout left", func() bool {
		must(w.hand.Publish(w.lane.DemandSubject(encoder), nil))
		return w.done(broker.WorkerUser, publish, "$JS.API.CONSUMER.DELETE.")
	})
	// Without a stream it makes one.
	must(w.js.DeleteStream(w.ctx, bus.StreamName(w.lane.Pool)))
	w.until("the worker makes the stream", func() bool {
		must(w.hand.Publish(w.lane.DemandSubject(second), nil))
		return w.done(broker.WorkerUser, publish, "$JS.API.STREAM.CREATE.WORK_POOL_")
	})

	_, w.gateway, err = w.cluster.StartGateway(w.ctx)
	must(err)
	must(stage.Ready(w.ctx, w.gateway+"/readyz"))
	must(stage.Ready(w.ctx, w.worker.ProbeURL+"/readyz"))
	w.encode(encoder, "", "one text")

	// A gateway meets a consumer of another layout while the worker stands still.
	w.worker.Sidecar.Signal(syscall.SIGSTOP)
	w.leftover()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	hung := make(chan struct{})
	go func() {
		defer close(hung)
		w.ask(ctx, "POST", w.gateway+"/v1/encode/"+third, `{"items":[{"id":"a","text":"late"}]}`)
	}()
	w.until("the gateway removes what another layout left", func() bool {
		return w.done(broker.GatewayUser, publish, "$JS.API.CONSUMER.DELETE.")
	})
	w.until("the gateway asks what became of its work", func() bool {
		return w.done(broker.GatewayUser, publish, "$JS.API.CONSUMER.INFO.")
	})
	cancel() // the caller hangs up, so its work is cancelled
	<-hung
	w.until("the cancelled work is told", func() bool {
		return w.done(broker.GatewayUser, publish, bus.CancelPrefix)
	})
	w.worker.Sidecar.Signal(syscall.SIGCONT)
	w.encode(third, "", "after it")

	// A client's pool takes the worker and gives it back.
	status, body := w.ask(w.ctx, "POST", w.gateway+"/v1/pools", `{"name":"mine","gpus":{"cpu":1}}`)
	if status != 201 && status != 200 {
		t.Fatalf("a pool: %d %s", status, body)
	}
	w.encode(encoder, "mine", "in a pool")
	if status, body = w.ask(w.ctx, "DELETE", w.gateway+"/v1/pools/mine", ""); status >= 300 {
		t.Fatalf("the end of a pool: %d %s", status, body)
	}
	w.encode(encoder, "", "without a pool")

	// A model is added, and both hear of it.
	document := "sie_id: " + added + "\nhf_id: org/x\ninputs: {text: true}\ntasks: {encode: {dense: {dim: 8}}}\n" +
		"profiles:\n  default: {adapter_path: 'sie_server.adapters.bert_flash:X', max_batch_tokens: 512}\n"
	if status, body = w.ask(w.ctx, "POST", w.config+"/v1/configs/models", document); status != 201 {
		t.Fatalf("a model: %d %s", status, body)
	}
	w.encode(added, "", "in a new model")

	w.deadLetter()
	w.exporter()
	w.quota()
	w.until("the stream of a pool that is gone is removed", func() bool {
		return w.done(broker.GatewayUser, publish, "$JS.API.STREAM.DELETE.WORK_POOL_gone")
	})

	for _, v := range w.nats.Violations() {
		t.Errorf("refused: %s", v)
	}
	conf := Conf(t)
	w.minimal(conf, Rules(conf))
}

// deadLetter sends a text that ends every server that runs it, starts servers again as a kubelet
// does, and goes through its letter as an operator does.
func (w *world) deadLetter() {
	w.Helper()
	answer := make(chan string, 1)
	go func() {
		status, body := w.ask(w.ctx, "POST", w.gateway+"/v1/encode/"+encoder,
			`{"items":[{"id":"a","text":"!crash the server that runs this"}]}`)
		answer <- fmt.Sprint(status, " ", body)
	}()
	for told := false; !told; {
		select {
		case a := <-answer:
			if told = true; strings.HasPrefix(a, "2") {
				w.Errorf("the answer of a text that ends servers: %s", a)
			}
		case <-w.worker.Server.Ended():
			s, err := w.cluster.StartServer(w.ctx, "w1", w.lane)
			if err != nil {
				w.Fatal(err)
			}
			w.worker.Server = s.Server
		}
	}
	run := func(args ...string) string {
		w.Helper()
		program := filepath.Join(stage.Programs(w), stage.Gateway)
		cmd := exec.CommandContext(w.ctx, program, append([]string{"dlq"}, args...)...)
		cmd.Env = []string{"SIE_NATS_URL=" + w.nats.URL, "SIE_NATS_USER=" + broker.GatewayUser,
			"SIE_NATS_PASSWORD=" + PasswordOf(broker.GatewayUser)}
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		if err := cmd.Run(); err != nil && args[0] != "replay" {
			w.Fatalf("dlq %v: %v: %s", args, err, said.String())
		}
		return out.String()
	}
	var letter struct{ ID string }
	if err := json.Unmarshal([]byte(strings.SplitN(run("list", "--json"), "\n", 2)[0]), &letter); err != nil {
		w.Fatal(err)
	}
	run("show", letter.ID)
	run("drop", letter.ID)
}

// exporter asks the servers how they are.
func (w *world) exporter() {
	w.Helper()
	c := w.nats.Connect(w, broker.ExporterUser)
	for _, what := range []string{"STATSZ", "JSZ", "HEALTHZ"} {
		if m, err := c.RequestWithContext(w.ctx, "$SYS.REQ.SERVER.PING."+what, nil); err != nil ||
			!bytes.Contains(m.Data, []byte(`"server"`)) {
			w.Errorf("an exporter asks for %s: %v", what, err)
		}
	}
}

// quota has a gateway with a tenant's quota tell others what it has admitted.
func (w *world) quota() {
	w.Helper()
	file := filepath.Join(w.cluster.Dir, "tokens.yaml")
	tenants := "tenants: [{name: a, tokens: [s3cret], items_per_s: 1000}]\n"
	if err := os.WriteFile(file, []byte(tenants), 0o600); err != nil {
		w.Fatal(err)
	}
	_, url, err := w.cluster.StartGateway(w.ctx, "SIE_AUTH_MODE=token", "SIE_AUTH_TOKENS_FILE="+file)
	if err != nil {
		w.Fatal(err)
	}
	w.until("a gateway tells what it has admitted", func() bool {
		r, err := http.NewRequestWithContext(w.ctx, "POST", url+"/v1/encode/"+encoder,
			strings.NewReader(`{"items":[{"id":"a","text":"of a tenant"}]}`))
		if err != nil {
			w.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer s3cret")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			w.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode == 200 && w.done(broker.GatewayUser, publish, bus.QuotaPrefix)
	})
}

// minimal looks for each rule that allows something for what was done by it alone, and does that on
// a server without the rule, which must refuse.
func (w *world) minimal(conf string, rules []Rule) {
	w.Helper()
	actions := w.nats.Actions()
	for _, r := range rules {
		if r.Deny {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(rules), func(o Rule) bool { return o == r || o.Deny })
		needs := Action{}
		for a := range actions {
			alone := !slices.ContainsFunc(others, func(o Rule) bool { return o.Covers(a) })
			if r.Covers(a) && alone && (needs.Subject == "" || a.Subject < needs.Subject) {
				needs = a
			}
		}
		if needs.Subject == "" {
			w.Errorf("nobody needs that %v is allowed: take it out", r.Action)
		} else if s := Start(w, Without(conf, r)); !s.Refuses(w, needs) {
			w.Errorf("without %v the server allows %v", r.Action, needs)
		}
	}
}
