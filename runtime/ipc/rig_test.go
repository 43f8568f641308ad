package ipc

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/runtime/metrics"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/service"
	"github.com/sie-engine/sie/runtime/testmodels"
)

const (
	everything = "BAAI/bge-m3" // it gives dense, sparse and token vectors
	reranker   = "BAAI/bge-reranker-v2-m3"
	tagger     = "tagger"
)

// rig is a server over the null device and its socket.
type rig struct {
	testing.TB
	path    string
	service *service.Service
	server  *Server
	configs *Configs
	log     *testrig.Log
}

// start serves a socket until the test ends, and fails the test if goroutines are left over.
func start(t testing.TB, change func(*service.Options, *Options)) *rig {
	t.Helper()
	leftOver := func() {}
	if _, endless := t.(*testing.F); !endless { // the fuzzer has goroutines of its own
		leftOver = testrig.Goroutines(t)
	}
	all, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	tags := testmodels.Entry(t, tagger, t.TempDir(), "token_classification", "tasks: {extract: {}}")
	if all, err = all.With(tags); err != nil {
		t.Fatal(err)
	}
	log := &testrig.Log{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	so := service.Options{Options: model.Options{
		Catalog: all, Hub: testmodels.Hub(t), Null: &model.Null{}, LoadWait: time.Minute,
		Metrics: metrics.New(), Log: logger,
	}}
	o := Options{WorkerID: "worker-1", Log: logger}
	if change != nil {
		change(&so, &o)
	}
	r := &rig{TB: t, path: filepath.Join(t.TempDir(), "s", "ipc.sock"), log: log}
	if r.service, err = service.New(so); err != nil {
		t.Fatal(err)
	}
	bundles, err := catalog.BuiltinBundles()
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := bundles.ByName("default")
	if err != nil {
		t.Fatal(err)
	}
	r.configs = NewConfigs(r.service, all, bundle, nil)
	o.Service, o.Configs = r.service, r.configs
	if r.server, err = New(o); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(r.path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(l) }()
	t.Cleanup(func() {
		r.server.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if n := r.service.Gate().Held(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
		if n := r.service.Gate().Running(); n != 0 {
			t.Errorf("%d requests still run", n)
		}
		r.service.Close()
		leftOver()
	})
	return r
}

// client is a sidecar's side of one connection. Its reader sorts responses by call.
type client struct {
	testing.TB
	net  net.Conn
	mu   sync.Mutex
	next int
	open map[string]chan wire.Response
	over chan struct{} // closed when the connection has ended

	between func() // nil, or called between the chunks of a request
}

func (r *rig) dial() *client {
	r.Helper()
	n, err := net.Dial("unix", r.path)
	if err != nil {
		r.Fatal(err)
	}
	c := &client{TB: r.TB, net: n, open: map[string]chan wire.Response{}, over: make(chan struct{})}
	go c.read()
	r.Cleanup(c.close)
	return c
}

func (c *client) close() {
	c.net.Close()
	<-c.over
}

func (c *client) read() {
	defer close(c.over)
	defer c.net.Close() // a stream that is broken serves nobody
	var buf []byte
	parts := map[string][]byte{}
	for {
		var err error
		if buf, err = wire.ReadFrame(c.net, buf); err != nil {
			return
		}
		var a wire.Response
		if _, err := a.UnmarshalMsg(bytes.Clone(buf)); err != nil {
			c.Errorf("a frame that is no response: %v", err)
			return
		}
		if a.Kind == wire.KindChunk {
			var k wire.Chunk
			if _, err := k.UnmarshalMsg(buf); err != nil {
				c.Errorf("a bad chunk: %v", err)
				return
			}
			key := string(k.Digest)
			parts[key] = append(parts[key], k.Payload...)
			if k.Index+1 < k.Count {
				continue
			}
			sum := sha256.Sum256(parts[key])
			if string(sum[:]) != key || uint64(len(parts[key])) != k.TotalBytes {
				c.Errorf("%d bytes in chunks differ from their digest", len(parts[key]))
			}
			a = wire.Response{}
			if _, err := a.UnmarshalMsg(parts[key]); err != nil {
				c.Errorf("chunks that are no response: %v", err)
				return
			}
			delete(parts, key)
		}
		c.mu.Lock()
		to := c.open[a.RequestID]
		c.mu.Unlock()
		if to == nil {
			c.Errorf("a response to nobody: %q", a.RequestID)
			return
		}
		to <- a
	}
}

type marshaler interface {
	MarshalMsg([]byte) ([]byte, error)
}

// begin sends a request and returns where its responses come.
func (c *client) begin(method string, body marshaler, change func(*wire.Request)) chan wire.Response {
	c.Helper()
	raw := msgp.Raw{0xc0}
	if body != nil {
		var err error
		if raw, err = body.MarshalMsg(nil); err != nil {
			c.Fatal(err)
		}
	}
	to := make(chan wire.Response, 16)
	c.mu.Lock()
	c.next++
	r := wire.Request{
		Version: wire.Version, Method: method, RequestID: strconv.Itoa(c.next), Body: raw,
		AcceptsChunks: true, AcceptsOutcomes: true,
	}
	c.open[r.RequestID] = to
	c.mu.Unlock()
	if change != nil {
		change(&r)
	}
	data, err := r.MarshalMsg(nil)
	if err != nil {
		c.Fatal(err)
	}
	pieces := [][]byte{frame(len(data), ""), data}
	if len(data) > wire.MaxFrame {
		pieces = wire.Chunks(wire.KindRequestChunk, r.RequestID, data)
	}
	for i, p := range pieces {
		if i == 4 && c.between != nil {
			c.between()
		}
		if _, err := c.net.Write(p); err != nil {
			c.Logf("write: %v", err) // the server may have closed the connection
		}
	}
	return to
}

var errEnded = errors.New("the connection ended")

// await returns the next response of a call.
func (c *client) await(from chan wire.Response) (wire.Response, error) {
	select {
	case a := <-from:
		return a, nil
	case <-c.over:
		select {
		case a := <-from:
			return a, nil
		default:
		}
		return wire.Response{}, errEnded
	case <-time.After(2 * time.Minute):
		return wire.Response{}, errors.New("no response for 30 s")
	}
}

// call makes a call that must be answered, and reads its reply.
func (c *client) call(method string, body marshaler, reply interface {
	UnmarshalMsg([]byte) ([]byte, error)
}) error {
	c.Helper()
	a, err := c.await(c.begin(method, body, nil))
	if err != nil {
		c.Fatal(err)
	}
	if !a.OK {
		e, err := errs.FromMsgpack(a.Err)
		if err != nil {
			c.Fatal(err)
		}
		return e
	}
	if _, err := reply.UnmarshalMsg(a.Body); err != nil {
		c.Fatal(err)
	}
	return nil
}

// ended is an outcome with its result.
type ended struct {
	wire.Outcome
	result work.Result
	err    *errs.Error // of the result
}

func read(t testing.TB, raw msgp.Raw) (x ended) {
	t.Helper()
	if _, err := x.UnmarshalMsg(raw); err != nil {
		t.Fatal(err)
	}
	if _, err := x.result.UnmarshalMsg(x.Result); err != nil {
		t.Fatal(err)
	}
	if len(x.result.Err) > 0 {
		var err error
		if x.err, err = errs.FromMsgpack(x.result.Err); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// readLast returns the only outcome of the response that ends a RunBatch.
func readLast(t testing.TB, body msgp.Raw) ended {
	t.Helper()
	var all wire.BatchOutcome
	if _, err := all.UnmarshalMsg(body); err != nil {
		t.Fatal(err)
	}
	if len(all.Outcomes) != 1 {
		t.Fatalf("%d outcomes at the end of a call", len(all.Outcomes))
	}
	raw, err := all.Outcomes[0].MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, raw)
}

// run runs slices and returns their outcomes by work item id, and the ids in the order of arrival.
func (c *client) run(items []wire.RunItem, change func(*wire.Request)) (map[string]ended, []string, error) {
	c.Helper()
	from := c.begin(wire.MethodRunBatch, &wire.RunBatchRequest{ModelID: everything, Items: items}, change)
	out, order := map[string]ended{}, []string{}
	add := func(raw msgp.Raw) {
		x := read(c.TB, raw)
		if _, twice := out[x.WorkItemID]; twice {
			c.Errorf("two outcomes of %s", x.WorkItemID)
		}
		out[x.WorkItemID] = x
		order = append(order, x.WorkItemID)
	}
	for {
		a, err := c.await(from)
		switch {
		case err != nil:
			return out, order, err
		case !a.OK:
			return out, order, errors.New(a.Error)
		case a.Kind == wire.KindOutcome:
			add(a.Body)
			continue
		}
		var last wire.BatchOutcome
		if _, err := last.UnmarshalMsg(a.Body); err != nil {
			c.Fatal(err)
		}
		for i := range last.Outcomes {
			raw, _ := last.Outcomes[i].MarshalMsg(nil)
			add(raw)
		}
		return out, order, nil
	}
}

// slice returns a slice of texts.
func sliceOf(id, op string, change func(*work.Item), texts ...string) wire.RunItem {
	wi := work.Item{
		WorkItemID: id, RequestID: "r", Operation: op, ModelID: everything, Total: 1,
		CallerID: "caller-" + id,
	}
	for _, s := range texts {
		wi.Items = append(wi.Items, api.AppendItem(nil, &api.Item{Text: s, HasText: true}))
	}
	if change != nil {
		change(&wi)
	}
	raw, err := wi.MarshalMsg(nil)
	if err != nil {
		panic(err)
	}
	it := wire.RunItem{Op: op, WorkItemID: id, RequestID: "r", ItemIndex: 7}
	*map[string]*msgp.Raw{
		work.Encode: &it.Encode, work.Score: &it.Score, work.Extract: &it.Extract,
		work.Classify: &it.Classify, work.Tokenize: &it.Tokenize, work.Detokenize: &it.Detokenize,
		"other": &it.Encode,
	}[op] = raw
	return it
}

// until waits for a condition that the server reaches by itself.
func (r *rig) until(what string, is func() bool) {
	r.Helper()
	testrig.Until(r.TB, what, is)
}
