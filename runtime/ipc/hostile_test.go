package ipc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/runtime/service"
)

// refusal returns the error with which a call is answered.
func (c *client) refusal(method string, body marshaler, change func(*wire.Request)) *errs.Error {
	c.Helper()
	a, err := c.await(c.begin(method, body, change))
	if err != nil || a.OK {
		c.Fatalf("%s: it is answered, or not at all: %v", method[:min(len(method), 40)], err)
	}
	e, err := errs.FromMsgpack(a.Err)
	if err != nil {
		c.Fatal(err)
	}
	return e
}

// A call that is wrong is answered with an error that names the field, and the connection goes on.
func TestWrongCalls(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	for name, x := range map[string]struct {
		method string
		body   marshaler
		change func(*wire.Request)
		says   string
	}{
		"version": {wire.MethodPing, &wire.PingRequest{}, func(q *wire.Request) { q.Version = 2 },
			"'version' is 2"},
		"method":  {strings.Repeat("Generate", 1000), nil, nil, "no method 'Generate"},
		"body":    {wire.MethodRunBatch, msgp.Raw{0x07}, nil, "'body' of RunBatch"},
		"no body": {wire.MethodCancelItems, nil, nil, "'body' of CancelItems"},
		"many slices": {wire.MethodRunBatch, msgp.Raw("\x81\xa5items\xdc\x10\x01" +
			strings.Repeat("\x80", 4097)), nil, "limit exceeded"},
	} {
		e := c.refusal(x.method, x.body, x.change)
		if e.Code != errs.InvalidInput || !strings.Contains(e.Message, x.says) || len(e.Message) > 500 {
			t.Errorf("%s: %v", name, e)
		}
	}
	if x := c.one(sliceOf("1", work.Encode, nil, "a")); !x.result.Success {
		t.Errorf("afterwards: %+v", x)
	}
}

// frame returns bytes as a frame, whose head may claim more.
func frame(claims int, data string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(claims)), data...)
}

// What is no frame ends its connection alone, and little memory is taken for it.
func TestBrokenFrames(t *testing.T) {
	r := start(t, nil)
	stays := r.dial()
	envelope := func(body string) string {
		return "\x84\xa7version\x01\xa6method\xa8RunBatch\xaarequest_id\xa11\xa4body" + body
	}
	deep := envelope(strings.Repeat("\x91", 1_000_000) + "\xc0")
	chunk := func(index, count uint32, total uint64, payload string) string {
		b, err := wire.AppendFrame(nil, &wire.Chunk{Kind: wire.KindRequestChunk, Version: 1, RequestID: "1",
			Digest: make([]byte, 32), Index: index, Count: count, TotalBytes: total,
			Payload: []byte(payload)})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, data := range map[string][]byte{
		"no last chunk":      []byte(chunk(0, 3, 100, "x") + chunk(1, 3, 100, "y")),
		"no first chunk":     []byte(chunk(1, 3, 100, "x")),
		"a missing chunk":    []byte(chunk(0, 3, 3, "x") + chunk(2, 3, 3, "y")),
		"an announced flood": []byte(chunk(0, 3, 1<<60, "x")),
		"another digest":     []byte(chunk(0, 2, 2, "x") + chunk(1, 2, 2, "y")),
		"a cut chunk":        []byte(chunk(0, 2, 2, "x") + chunk(1, 2, 2, "y")[:40]),
		"another kind":       []byte(strings.ReplaceAll(chunk(0, 2, 2, "x"), "request_", "another_")),
		"garbage":            []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"too long":           frame(1<<31, "x"),
		"cut":                frame(100, "x"),
		"no map":             frame(1, "\x07"),
		"empty":              frame(0, ""),
		"deep":               frame(len(deep), deep),
		"claims arrays":      frame(len(envelope("\xdd\xff\xff\xff\xff")), envelope("\xdd\xff\xff\xff\xff")),
		"a long id":          frame(515, "\x81\xaarequest_id\xda\x01\xf4"+strings.Repeat("x", 500)),
	} {
		c, err := net.Dial("unix", r.path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(data); err != nil {
			t.Logf("%s: %v", name, err)
		}
		_ = c.(*net.UnixConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		// Another kind is read as a call without a method, whose answer may come before the end.
		if answer, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") ||
			len(answer) > 0 && !(name == "another kind" && bytes.Contains(answer, []byte("no method"))) {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
		c.Close()
	}
	if x := stays.one(sliceOf("1", work.Encode, nil, "a")); !x.result.Success {
		t.Errorf("another connection: %+v", x)
	}
}

// Many heads that claim much take little memory together.
func TestClaimsTakeLittleMemory(t *testing.T) {
	r := start(t, nil)
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 14 {
		c, err := net.Dial("unix", r.path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(frame(wire.MaxFrame, "\x84")); err != nil {
			t.Fatal(err)
		}
	}
	last := r.dial() // its answer comes after the others were accepted
	var p wire.PingResponse
	if err := last.call(wire.MethodPing, &wire.PingRequest{}, &p); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&during)
	if took := int64(during.TotalAlloc - before.TotalAlloc); took > 64<<20 {
		t.Errorf("14 claims of 32 MiB take %d MiB", took>>20)
	}
}

// Without room for its bytes a batch is given back, whole.
func TestNoRoomForABatch(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	gate := r.service.Gate()
	all := int64(1<<30) - gate.Held()
	if err := gate.Reserve(all); err != nil {
		t.Fatal(err)
	}
	items := []wire.RunItem{sliceOf("1", work.Encode, nil, "a"), sliceOf("2", work.Encode, nil, "b")}
	got, _, err := c.run(items, nil)
	if err != nil || got["1"].Disposition != wire.NakRetry || got["2"].Disposition != wire.NakRetry {
		t.Errorf("%+v, %v", got, err)
	}
	big := &wire.ApplyRequest{ModelConfig: strings.Repeat("x", smallBytes)}
	if e := c.refusal(wire.MethodApplyModelConfig, big, nil); e.Code != errs.QueueFull {
		t.Errorf("%v", e)
	}
	var n wire.CancelResponse
	if err := c.call(wire.MethodCancelItems, &wire.CancelRequest{WorkItemIDs: []string{"1"}},
		&n); err != nil {
		t.Errorf("a cancellation: %v", err)
	}
	gate.Free(all)
	if x := c.one(items[0]); !x.result.Success {
		t.Errorf("afterwards: %+v", x)
	}
}

// FuzzConnection sends any bytes over a connection. The server answers in whole frames or closes
// it, and goes on; nothing stays held.
func FuzzConnection(f *testing.F) {
	ping, _ := wire.AppendFrame(nil, &wire.Request{Version: 1, Method: wire.MethodPing, RequestID: "1",
		Body: msgp.Raw("\x81\xactimestamp_ms\xcb\x00\x00\x00\x00\x00\x00\x00\x00")})
	f.Add(ping)
	body, _ := (&wire.RunBatchRequest{Items: []wire.RunItem{
		sliceOf("1", work.Encode, nil, "a", "b"), sliceOf("2", work.Score, nil, "a"),
	}}).MarshalMsg(nil)
	for _, method := range []string{
		wire.MethodRunBatch, wire.MethodProcessEncodeBatch, wire.MethodCancelItems,
		wire.MethodEnsureModelReady, wire.MethodApplyModelConfig, wire.MethodReplaceModelConfigs,
		wire.MethodSetPinnedModels,
	} {
		one, _ := wire.AppendFrame(nil, &wire.Request{
			Version: 1, Method: method, RequestID: "2", Body: body, AcceptsChunks: true,
			AcceptsOutcomes: true,
		})
		f.Add(append(one, ping...))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Add(bytes.Join(wire.Chunks(wire.KindRequestChunk, "3", ping[4:]), nil))
	r := start(f, nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Contains(data, []byte("Drain")) || bytes.Contains(data, []byte("!")) {
			return // it would end the server for the inputs after it, or hold its device
		}
		mine, theirs := pair(t)
		if err := r.server.open(theirs); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = mine.Write(data)
			_ = mine.CloseWrite()
		}()
		_ = mine.SetReadDeadline(time.Now().Add(2 * time.Minute))
		answer, err := io.ReadAll(mine)
		if err != nil && !strings.Contains(err.Error(), "reset") {
			t.Fatal(err)
		}
		mine.Close()
		in := bytes.NewReader(answer)
		for {
			one, err := wire.ReadFrame(in, nil)
			if err == io.EOF || err == io.ErrUnexpectedEOF { // it was closed in the middle
				break
			}
			var a wire.Response
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.UnmarshalMsg(one); err != nil || a.Version != wire.Version {
				t.Fatalf("%q: %v", one, err)
			}
		}
	})
}

// pair returns both ends of a connection.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// A sidecar that takes no answers holds bytes up to the gate's bound. Others are given back what
// does not fit, and go on when it has left.
func TestAPeerThatDoesNotRead(t *testing.T) {
	r := start(t, func(o *service.Options, _ *Options) { o.Admit.MaxHeldBytes = 32 << 20 })
	stuck, err := net.Dial("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	var items []wire.RunItem
	for i := range 60 {
		items = append(items, sliceOf(fmt.Sprint(i), work.Encode, nil, "!big=4MiB"))
	}
	body, err := (&wire.RunBatchRequest{ModelID: everything, Items: items}).MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	call, err := wire.AppendFrame(nil, &wire.Request{
		Version: wire.Version, Method: wire.MethodRunBatch, RequestID: "1", Body: body,
		AcceptsChunks: true, AcceptsOutcomes: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stuck.Write(call); err != nil {
		t.Fatal(err)
	}
	gate := r.service.Gate()
	r.until("its results fill the gate", func() bool { return gate.Running() == 0 && gate.Held() > 24<<20 })
	if held := gate.Held(); held > 32<<20 {
		t.Errorf("%d MiB are held", held>>20)
	}
	c := r.dial()
	if x := c.one(sliceOf("a", work.Encode, nil, "!big=9MiB")); x.Disposition != wire.NakRetry {
		t.Errorf("there is no room: %+v", x.err)
	}
	var p wire.PingResponse
	if err := c.call(wire.MethodPing, &wire.PingRequest{}, &p); err != nil {
		t.Error(err)
	}
	stuck.Close()
	r.until("its bytes are free", func() bool { return gate.Held() == 0 })
	if x := c.one(sliceOf("b", work.Encode, nil, "!big=9MiB")); !x.result.Success {
		t.Errorf("afterwards: %+v", x.err)
	}
}
