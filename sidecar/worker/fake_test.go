package worker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
)

// hugeBytes is the length of the result of "!huge".
const hugeBytes = 6 << 20

// fakeServer answers on a socket like a server whose models load at once. A text that begins with
// "!hold" waits for release, one with "!crash" ends the process that the fake stands for.
type fakeServer struct {
	t    *testing.T
	path string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
	epoch    int
	loaded   []string
	hash     string // of the models that it was given
	docs     string // of their documents, as they were told
	pins     []string
	release  chan struct{}
	inside   int               // slices in the server
	most     int               // of them at once
	with     map[string]int    // by id: slices in the server when it began, itself included
	ran      map[string]int    // by id
	parents  map[string]string // traceparents by id
	down     bool

	tokens  atomic.Int64 // of a device batch
	crashes atomic.Int64
	running chan string // ids as they begin
}

func startFake(t *testing.T) *fakeServer {
	t.Helper()
	f := &fakeServer{
		t: t, path: filepath.Join(t.TempDir(), "ipc.sock"), release: make(chan struct{}),
		with: map[string]int{}, ran: map[string]int{}, parents: map[string]string{},
		running: make(chan string, 10000),
	}
	f.tokens.Store(1000)
	f.start()
	t.Cleanup(func() { f.kill() })
	return f
}

func (f *fakeServer) start() {
	l, err := net.Listen("unix", f.path)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.listener, f.down, f.loaded, f.inside, f.pins = l, false, nil, 0, nil
	f.hash, f.docs = "", ""
	f.epoch++
	f.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			go f.serve(c)
		}
	}()
}

// kill ends the process that the fake stands for.
func (f *fakeServer) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return
	}
	f.down = true
	f.listener.Close()
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}

func (f *fakeServer) serve(c net.Conn) {
	var write sync.Mutex
	send := func(kind, id string, m msgp.Marshaler) {
		body, err := m.MarshalMsg(nil)
		if err != nil {
			f.t.Error(err)
			return
		}
		r := ipc.Response{Kind: kind, Version: 1, RequestID: id, OK: true, Body: body}
		data, err := r.MarshalMsg(nil)
		if err != nil {
			f.t.Error(err)
			return
		}
		pieces := net.Buffers{binary.BigEndian.AppendUint32(nil, uint32(len(data))), data}
		if len(data) > ipc.MaxFrame {
			pieces = ipc.Chunks(ipc.KindChunk, id, data)
		}
		write.Lock()
		defer write.Unlock()
		_, _ = pieces.WriteTo(c)
	}
	r := bufio.NewReader(c)
	for {
		b, err := ipc.ReadFrame(r, nil)
		if err != nil {
			return
		}
		var q ipc.Request
		if _, err := q.UnmarshalMsg(b); err != nil {
			f.t.Error(err)
			return
		}
		f.mu.Lock()
		epoch, loaded, hash, docs := f.epoch, slices.Clone(f.loaded), f.hash, f.docs
		f.mu.Unlock()
		switch q.Method {
		case ipc.MethodPing:
			send(ipc.KindResponse, q.RequestID, &ipc.PingResponse{
				Ready: true, Epoch: fmt.Sprint(epoch), LoadedModels: loaded, PID: epoch, GPUCount: 1,
				BundleConfigHash: hash, BundleDocumentsHash: docs,
			})
		case ipc.MethodEnsureModelReady:
			var m ipc.ModelRequest
			_, _ = m.UnmarshalMsg(q.Body)
			f.mu.Lock()
			if !slices.Contains(f.loaded, m.ModelID) {
				f.loaded = append(f.loaded, m.ModelID)
			}
			f.mu.Unlock()
			send(ipc.KindResponse, q.RequestID,
				&ipc.ReadyResponse{State: ipc.StateReady, BatchTokens: f.tokens.Load()})
		case ipc.MethodWorkerCapabilities:
			send(ipc.KindResponse, q.RequestID,
				&ipc.CapabilitiesResponse{SupportedModels: []string{"org/m", "org/b"}})
		case ipc.MethodReplaceModelConfigs:
			var all ipc.ReplaceRequest
			if _, err := all.UnmarshalMsg(q.Body); err != nil {
				f.t.Error(err)
			}
			f.mu.Lock()
			f.hash, f.docs = fmt.Sprint(all.Models), ""
			for _, m := range all.Models {
				f.docs += m.ModelDocumentHash
			}
			did := &ipc.ConfigResponse{Applied: true, BundleConfigHash: f.hash, BundleDocumentsHash: f.docs}
			f.mu.Unlock()
			send(ipc.KindResponse, q.RequestID, did)
		case ipc.MethodRunBatch:
			var run ipc.RunBatchRequest
			if _, err := run.UnmarshalMsg(q.Body); err != nil {
				f.t.Error(err)
			}
			var items sync.WaitGroup
			for i := range run.Items {
				items.Go(func() {
					f.run(&run.Items[i], func(o *ipc.Outcome) { send(ipc.KindOutcome, q.RequestID, o) })
				})
			}
			go func() {
				items.Wait()
				send(ipc.KindResponse, q.RequestID, &ipc.BatchOutcome{})
			}()
		case ipc.MethodSetPinnedModels:
			var pins ipc.PinRequest
			if _, err := pins.UnmarshalMsg(q.Body); err != nil {
				f.t.Error(err)
			}
			f.mu.Lock()
			f.pins = pins.Models
			f.mu.Unlock()
			send(ipc.KindResponse, q.RequestID, &ipc.PinResponse{Applied: true, Count: len(pins.Models)})
		case ipc.MethodCancelItems:
			send(ipc.KindResponse, q.RequestID, &ipc.CancelResponse{})
		default:
			f.t.Errorf("the server was asked for %s", q.Method)
		}
	}
}

// run runs a slice: the result of each item is its text in upper case.
func (f *fakeServer) run(i *ipc.RunItem, outcome func(*ipc.Outcome)) {
	var it work.Item
	if _, err := it.UnmarshalMsg(i.Encode); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	epoch := f.epoch
	f.inside++
	f.most = max(f.most, f.inside)
	f.ran[i.WorkItemID]++
	f.with[i.WorkItemID] = f.inside
	f.parents[i.WorkItemID] = i.TraceParent
	f.mu.Unlock()
	f.running <- i.WorkItemID
	r := work.Result{Success: true, WorkItemID: "wrong", ModelID: it.ModelID}
	for _, raw := range it.Items {
		text, _, _ := msgp.ReadStringBytes(raw)
		switch {
		case strings.HasPrefix(text, "!hold"):
			<-f.release
		case strings.HasPrefix(text, "!crash"):
			f.crashes.Add(1)
			f.kill()
			return
		case strings.HasPrefix(text, "!huge"):
			text = strings.Repeat("X", hugeBytes)
		case strings.HasPrefix(text, "!big"):
			text = strings.Repeat("x", 3<<20)
		}
		r.Results = append(r.Results, msgp.AppendString(nil, strings.ToUpper(text)))
	}
	raw, err := r.MarshalMsg(nil)
	if err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	if f.epoch == epoch {
		f.inside--
	}
	dead := f.down || f.epoch != epoch
	f.mu.Unlock()
	if !dead {
		outcome(&ipc.Outcome{
			WorkItemID: i.WorkItemID, Disposition: ipc.PublishAndAck, Result: raw, InputTokens: 5,
		})
	}
}

// runs returns how often a slice began.
func (f *fakeServer) runs(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ran[id]
}

// company returns the slices that were in the server when a slice began, itself included.
func (f *fakeServer) company(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.with[id]
}

// mostInside returns the most slices that were in the server at once.
func (f *fakeServer) mostInside() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}
