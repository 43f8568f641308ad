package ipc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/nulldev"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/runtime/service"
)

// one runs a slice and returns its outcome.
func (c *client) one(it wire.RunItem) ended {
	c.Helper()
	all, _, err := c.run([]wire.RunItem{it}, nil)
	if err != nil || len(all) != 1 {
		c.Fatalf("%v; %d outcomes", err, len(all))
	}
	return all[it.WorkItemID]
}

// Every operation of a slice gives what a request gives, and is counted.
func TestOperations(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	both := func(w *work.Item) { w.OutputTypes = []string{"dense", "sparse"} }
	x := c.one(sliceOf("e", work.Encode, both, "a", "b"))
	if x.Disposition != wire.PublishAndAck || !x.result.Success || len(x.result.Results) != 2 ||
		x.InputTokens != 6 || x.result.Units.InputTokens != 6 || x.result.ModelID != everything ||
		x.ItemIndex != 7 || x.result.Index != 7 || x.result.ProcessingMS <= 0 ||
		x.result.ExecutedBundleConfigHash != r.configs.Hash() {
		t.Fatalf("%+v", x)
	}
	for i, text := range []string{"a", "b"} {
		it, err := api.ReadEncodeResult(x.result.Results[i])
		want := f32(nulldev.Dense(everything, nulldev.Document, text, 1024))
		if err != nil || !bytes.Equal(it.Dense.Values.Data, want) || it.Sparse == nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	x = c.one(sliceOf("s", work.Score, func(w *work.Item) {
		w.ModelID, w.Query = reranker, api.AppendItem(nil, &api.Item{Text: "q", HasText: true})
	}, "a", "b", "c"))
	for i, text := range []string{"a", "b", "c"} {
		s, err := api.ReadScoreResult(x.result.Results[i])
		if err != nil || s != nulldev.Score(reranker, "q", text) || x.result.Units.Pairs != 3 {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
	x = c.one(sliceOf("x", work.Extract, func(w *work.Item) {
		w.ModelID, w.FirstIndex = tagger, 64
	}, "a", "b"))
	for i := range 2 {
		it, err := api.ReadExtractResult(x.result.Results[i])
		if err != nil || it.ID != fmt.Sprintf("item-%d", 64+i) {
			t.Errorf("%+v, %v", it, err)
		}
	}
	x = c.one(sliceOf("c", work.Classify, func(w *work.Item) {
		w.ModelID, w.Foreign = reranker, &work.Foreign{RawScores: true}
	}, "a"))
	scores, err := api.ReadClassifyResult(x.result.Results[0])
	if err != nil || !slices.Equal(scores, nulldev.Class(reranker, "a", "")) ||
		!slices.Equal(x.result.Labels, nulldev.Labels) {
		t.Errorf("%v, %v, %+v", scores, err, x.result)
	}
	x = c.one(sliceOf("t", work.Tokenize, func(w *work.Item) {
		w.Items = []msgp.Raw{api.AppendText(nil, "aé"), api.AppendText(nil, "")}
		w.Foreign = &work.Foreign{AddSpecial: true}
	}))
	tokens, err := api.ReadTokens(x.result.Results[0])
	if err != nil || len(tokens) != 4 || len(x.result.Results) != 2 || x.result.ModelID != everything {
		t.Errorf("%+v, %v", tokens, err)
	}
	x = c.one(sliceOf("d", work.Detokenize, func(w *work.Item) {
		w.Items = []msgp.Raw{api.AppendTokenIDs(nil, []int32{'a', 'é'})}
	}))
	if text, err := api.ReadText(x.result.Results[0]); text != "aé" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

func f32(v []float32) (out []byte) {
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// The reference's forms are answered in their form.
func TestReferenceForms(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	single := func(w *work.Item) {
		w.Single, w.Operation, w.ModelID = api.AppendItem(nil, &api.Item{Text: "a", HasText: true}), "", ""
	}
	x := c.one(sliceOf("e", work.Encode, single))
	it, err := api.ReadEncodeResult(x.result.ResultMsgpack)
	if err != nil || len(x.result.Results) != 0 || it.Dense == nil {
		t.Errorf("%+v, %v", x, err)
	}
	x = c.one(sliceOf("content", work.Encode, func(w *work.Item) {
		single(w)
		w.Single = msgp.Raw("\x81\xa7content\xa1a")
	}))
	if !bytes.Equal(f32(nulldev.Dense(everything, nulldev.Document, "a", 1024)), it.Dense.Values.Data) ||
		!x.result.Success {
		t.Errorf("%+v", x)
	}
	x = c.one(sliceOf("s", work.Score, func(w *work.Item) {
		w.ModelID, w.Query = reranker, api.AppendItem(nil, &api.Item{Text: "q", HasText: true})
		for _, s := range []string{"a", "b", "c"} {
			w.ScoreItems = append(w.ScoreItems, api.AppendItem(nil, &api.Item{Text: s, HasText: true}))
		}
	}))
	n, rest, err := msgp.ReadArrayHeaderBytes(x.result.ResultMsgpack)
	if err != nil || n != 3 || !bytes.Contains(rest, []byte("item_id")) {
		t.Errorf("%+v, %v", x, err)
	}
	batch, err := (&wire.ProcessBatchRequest{ModelID: everything, Items: []msgp.Raw{
		sliceOf("p", work.Encode, single).Encode, msgp.Raw("\x01"),
	}}).MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.await(c.begin(wire.MethodProcessEncodeBatch, msgp.Raw(batch),
		func(q *wire.Request) { q.AcceptsOutcomes = false }))
	var out wire.BatchOutcome
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.UnmarshalMsg(a.Body); err != nil || len(out.Outcomes) != 2 ||
		out.Outcomes[0].WorkItemID+out.Outcomes[1].WorkItemID != "p" {
		t.Fatalf("%+v, %v", out, err)
	}
}

// An error crosses whole, and its indices are those of the request.
func TestErrors(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	for name, c2 := range map[string]struct {
		item  wire.RunItem
		code  errs.Code
		param string
		says  string
	}{
		"no text": {sliceOf("1", work.Encode, func(w *work.Item) {
			w.FirstIndex, w.Items = 32, []msgp.Raw{msgp.Raw("\x80"), msgp.Raw("\x80")}
		}), errs.InvalidInput, "items", "'items[32]' has no text"},
		"a bad item": {sliceOf("2", work.Encode, func(w *work.Item) {
			w.FirstIndex, w.Items = 32, append(w.Items, msgp.Raw("\x81\xa4text\x01"))
		}, "a", "b"), errs.InvalidInput, "items[34].text", "`$.items[34].text`"},
		"another API's field": {sliceOf("3", work.Encode, func(w *work.Item) {
			w.FirstIndex, w.Foreign = 9, &work.Foreign{Field: "input"}
			w.Items = []msgp.Raw{msgp.Raw("\x82\xa4text\xa1a\xa6second\xa1b")}
		}), errs.InvalidInput, "input", "'input[9]' has two texts"},
		"no operation": {sliceOf("4", "other", nil, "a"), errs.InvalidInput, "op", "no operation 'other'"},
		"no output": {sliceOf("5", work.Encode, func(w *work.Item) { w.OutputTypes = []string{"x"} }, "a"),
			errs.InvalidInput, "", "output types"},
		"memory": {sliceOf("6", work.Encode, nil, "!oom"), errs.ResourceExhausted, "", "out of memory"},
		"no work item": {wire.RunItem{Op: "encode", WorkItemID: "7"},
			errs.InvalidInput, "items", "no work item"},
		"garbage": {wire.RunItem{Op: "encode", WorkItemID: "8", Encode: msgp.Raw{7}},
			errs.InvalidInput, "", "work item"},
		"no items": {sliceOf("9", work.Encode, nil), errs.InvalidInput, "items", "no items"},
	} {
		x := c.one(c2.item)
		if x.Disposition != wire.PublishErrorAndAck || x.err == nil || x.err.Code != c2.code ||
			x.err.Param != c2.param && c2.param != "" || !strings.Contains(x.err.Message, c2.says) ||
			x.result.ErrorCode != string(c2.code) || x.result.Success || len(x.result.Results) > 0 {
			t.Errorf("%s: %s, %+v", name, x.Disposition, x.err)
		}
	}
}

// A result tells the configuration that it ran under, though another came before its end.
func TestResultsTellTheirConfiguration(t *testing.T) {
	r := start(t, func(o *service.Options, _ *Options) { o.Batch.MaxRequests = 1 })
	c := r.dial()
	before := r.configs.Hash()
	from := c.begin(wire.MethodRunBatch, &wire.RunBatchRequest{ModelID: everything, Items: []wire.RunItem{
		sliceOf("1", work.Encode, nil, "!sleep=500ms"), sliceOf("2", work.Encode, nil, "!sleep=1s"),
	}}, nil)
	if _, err := c.await(from); err != nil { // the other one has begun long ago
		t.Fatal(err)
	}
	var did wire.ConfigResponse
	err := c.call(wire.MethodApplyModelConfig, &wire.ApplyRequest{BundleID: "default", ModelID: "org/new",
		Epoch: 7, ModelConfig: document("org/new", plain)}, &did)
	if err != nil || did.BundleConfigHash == before {
		t.Fatalf("%+v, %v", did, err)
	}
	last, err := c.await(from)
	if err != nil {
		t.Fatal(err)
	}
	if x := readLast(t, last.Body); !x.result.Success || x.result.ExecutedBundleConfigHash != before {
		t.Errorf("it ran under %s and tells %+v", before, x.result)
	}
}

// What another worker could answer is given back, with a delay.
func TestGivenBack(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	other := func(w *work.Item) { w.ModelConfigHash = "other" }
	for name, it := range map[string]wire.RunItem{
		"config": sliceOf("1", work.Encode, other, "a"),
		"model":  sliceOf("2", work.Encode, func(w *work.Item) { w.ModelID = "none/such" }, "a"),
	} {
		x := c.one(it)
		if x.Disposition != wire.NakRetry || x.NakDelayMS == nil || *x.NakDelayMS < 100 || x.err != nil {
			t.Errorf("%s: %+v", name, x)
		}
	}
	x := c.one(sliceOf("3", work.Encode, func(w *work.Item) {
		w.ModelConfigHash = r.configs.ModelHash(everything)
	}, "a"))
	if x.Disposition != wire.PublishAndAck || r.configs.ModelHash(everything) == "" {
		t.Errorf("its own configuration: %+v", x)
	}
	var a wire.DrainResponse
	err := c.call(wire.MethodDrain, &wire.DrainRequest{DeadlineMS: 1000}, &a)
	if err != nil || !a.Acknowledged {
		t.Fatal(err)
	}
	x = c.one(sliceOf("4", work.Encode, nil, "a"))
	if x.Disposition != wire.NakRetry || *x.NakDelayMS != 100 {
		t.Errorf("while draining: %+v", x)
	}
	var p wire.PingResponse
	if err := c.call(wire.MethodPing, &wire.PingRequest{}, &p); err != nil || p.Ready {
		t.Errorf("ready while draining: %v", err)
	}
}

// Outcomes go out as their slices end: a short text does not wait for a long one.
func TestOutcomesStream(t *testing.T) {
	r := start(t, func(o *service.Options, _ *Options) { o.Batch.MaxRequests = 1 })
	c := r.dial()
	items := []wire.RunItem{
		sliceOf("long", work.Encode, nil, "!sleep=300ms"), sliceOf("short", work.Encode, nil, "a"),
	}
	_, order, err := c.run(items, nil)
	if err != nil || !slices.Equal(order, []string{"short", "long"}) {
		t.Errorf("%v, %v", order, err)
	}
	all, _, err := c.run(items[1:], func(q *wire.Request) { q.AcceptsOutcomes = false })
	if err != nil || len(all) != 1 || !all["short"].result.Success {
		t.Errorf("together: %+v, %v", all, err)
	}
}

// Results above a frame cross in chunks. Above the most that crosses they are an error, for a
// caller without chunks above a frame.
func TestLargeResults(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	x := c.one(sliceOf("1", work.Encode, nil, "!big=40MiB"))
	it, err := api.ReadEncodeResult(x.result.Results[0])
	if err != nil || len(it.Dense.Values.Data) != 40<<20 {
		t.Fatalf("%v", err)
	}
	if testing.Short() { // larger ones go the same way, and take a minute under the race detector
		return
	}
	for _, c2 := range []struct {
		id     string
		chunks bool
		text   string
	}{{"2", true, "!big=130MiB"}, {"3", false, "!big=40MiB"}} {
		for _, outcomes := range []bool{true, false} {
			all, _, err := c.run([]wire.RunItem{sliceOf(c2.id, work.Encode, nil, c2.text)},
				func(q *wire.Request) { q.AcceptsChunks, q.AcceptsOutcomes = c2.chunks, outcomes })
			if x := all[c2.id]; err != nil || x.err == nil || x.err.Status != 400 ||
				strings.Contains(x.err.Message, "payload store") != c2.chunks {
				t.Errorf("%+v: %v, %v", c2, err, x.err)
			}
		}
	}
	all, _, err := c.run([]wire.RunItem{sliceOf("6", work.Encode, nil, "!big=130MiB")},
		func(q *wire.Request) { q.MostBytes = 140 << 20 })
	if x := all["6"]; err != nil || !x.result.Success || len(x.result.Results[0]) < 130<<20 {
		t.Errorf("a caller that takes 140 MiB: %v, %v", err, x.err)
	}
	// two that fit alone and not together, for a caller that takes one frame
	all, _, err = c.run([]wire.RunItem{
		sliceOf("4", work.Encode, nil, "!big=20MiB"), sliceOf("5", work.Encode, nil, "!big=20MiB x"),
	}, func(q *wire.Request) { q.AcceptsChunks, q.AcceptsOutcomes = false, false })
	given := all["4"].Disposition + " " + all["5"].Disposition
	if err != nil || !strings.Contains(given, wire.NakRetry) || !strings.Contains(given, wire.PublishAndAck) {
		t.Errorf("%s, %v", given, err)
	}
}

// A request of more than a frame comes in chunks, also between others, and its bytes are freed. One
// for which there is no room is refused, and its chunks are thrown away.
func TestRequestsInChunks(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	big := func(id string) wire.RunItem {
		item := msgp.AppendMapHeader(nil, 2)
		item = msgp.AppendString(msgp.AppendString(item, "text"), "a")
		item = msgp.AppendBytes(msgp.AppendString(item, "extra"), make([]byte, 40<<20))
		return sliceOf(id, work.Encode, func(wi *work.Item) { wi.Items = []msgp.Raw{item} })
	}
	var p wire.PingResponse
	if err := c.call(wire.MethodPing, &wire.PingRequest{}, &p); err != nil || p.RequestBytes < 100<<20 {
		t.Fatalf("the server takes %d bytes, %v", p.RequestBytes, err)
	}
	c.between = func() { _ = c.call(wire.MethodPing, &wire.PingRequest{}, &p) }
	small := c.one(sliceOf("small", work.Encode, nil, "a"))
	x := c.one(big("big"))
	if !x.result.Success || string(x.result.Results[0]) != string(small.result.Results[0]) {
		t.Errorf("%v", x.err)
	}
	gate := r.service.Gate()
	r.until("its bytes are free", func() bool { return gate.Held() == 0 })
	all := int64(1<<30) - 30<<20
	if err := gate.Reserve(all); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.run([]wire.RunItem{big("none")}, nil); err == nil ||
		!strings.Contains(err.Error(), "bytes") {
		t.Errorf("without room: %v", err)
	}
	gate.Free(all)
	r.until("its bytes are free", func() bool { return gate.Held() == 0 })
	if x := c.one(big("next")); !x.result.Success {
		t.Errorf("afterwards: %v", x.err)
	}
}

// A slice is cancelled by its id from any connection, alone and while its batch runs.
func TestCancel(t *testing.T) {
	r := start(t, func(o *service.Options, _ *Options) { o.Batch.MaxRequests = 1 })
	c := r.dial()
	items := []wire.RunItem{
		sliceOf("1", work.Encode, nil, "!sleep=1s"), sliceOf("2", work.Encode, nil, "!sleep=1s x"),
	}
	done := make(chan map[string]ended, 1)
	go func() {
		all, _, _ := c.run(items, nil)
		done <- all
	}()
	r.until("both run", func() bool { return r.service.Gate().Running() == 2 })
	var n wire.CancelResponse
	err := r.dial().call(wire.MethodCancelItems, &wire.CancelRequest{WorkItemIDs: []string{"2", "none"}}, &n)
	if err != nil || n.Cancelled != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	all := <-done
	if x := all["2"]; x.err == nil || !strings.Contains(x.err.Message, "cancelled") {
		t.Errorf("%+v", x)
	}
	if !all["1"].result.Success {
		t.Errorf("%+v", all)
	}
}

// A slice ends at its deadline, while its batch goes on.
func TestDeadlines(t *testing.T) {
	r := start(t, nil)
	it := sliceOf("1", work.Encode, nil, "!sleep=200ms")
	it.TimeoutMS = 5
	if x := r.dial().one(it); x.err == nil || x.err.Code != errs.DeadlineExceeded ||
		!strings.Contains(x.err.Message, "5ms") {
		t.Errorf("%+v", x)
	}
}

// A connection that ends cancels its slices and gives back what they held; others go on.
func TestAConnectionThatEndsCancelsItsSlices(t *testing.T) {
	r := start(t, func(o *service.Options, _ *Options) { o.Batch.MaxRequests = 1 })
	stays, leaves := r.dial(), r.dial()
	run := func(c *client, it wire.RunItem) chan wire.Response {
		return c.begin(wire.MethodRunBatch,
			&wire.RunBatchRequest{ModelID: everything, Items: []wire.RunItem{it}}, nil)
	}
	stay := run(stays, sliceOf("1", work.Encode, nil, "!sleep=300ms"))
	run(leaves, sliceOf("2", work.Encode, nil, "!sleep=1s"))
	r.until("both run", func() bool { return r.service.Gate().Running() == 2 })
	leaves.net.Close()
	r.until("one is left", func() bool { return r.service.Gate().Running() <= 1 })
	r.until("its slice has ended", func() bool { return strings.Contains(r.log.String(), "work_item=2") })
	if s := r.log.String(); !strings.Contains(s, "error=cancelled") {
		t.Errorf("its slice was not cancelled: %s", s)
	}
	if a, err := stays.await(stay); err != nil || !readLast(t, a.Body).result.Success {
		t.Errorf("%+v, %v", a, err)
	}
}

// Above their bounds, slices are given back and calls are refused.
func TestBounds(t *testing.T) {
	r := start(t, func(_ *service.Options, o *Options) { o.MaxSlices, o.MaxCalls, o.MaxConns = 2, 1, 2 })
	c := r.dial()
	var items []wire.RunItem
	for i := range 5 {
		items = append(items, sliceOf(fmt.Sprint(i), work.Encode, nil, fmt.Sprintf("!sleep=1s %d", i)))
	}
	first := c.begin(wire.MethodRunBatch, &wire.RunBatchRequest{ModelID: everything, Items: items}, nil)
	for range 3 { // three of five are given back at once
		a, err := c.await(first)
		if err != nil || read(t, a.Body).Disposition != wire.NakRetry {
			t.Errorf("%v", err)
		}
	}
	var out wire.CapabilitiesResponse
	err := c.call(wire.MethodWorkerCapabilities, nil, &out)
	if e := errs.As(err); e == nil || e.Code != errs.QueueFull {
		t.Errorf("a call too many: %v", err)
	}
	var p wire.PingResponse
	if err := c.call(wire.MethodPing, &wire.PingRequest{TimestampMS: 3}, &p); err != nil ||
		p.TimestampMS != 3 || len(p.Running) != 1 || p.Running[0].Done != 3 || p.Running[0].Total != 5 {
		t.Errorf("%+v, %v", p, err)
	}
	second := r.dial()
	if err := second.call(wire.MethodPing, &wire.PingRequest{}, &p); err != nil {
		t.Error(err)
	}
	third := r.dial()
	if _, err := third.await(third.begin(wire.MethodPing, &wire.PingRequest{}, nil)); err != errEnded {
		t.Errorf("a connection too many: %v", err)
	}
	for range 2 { // the last comes with the end of the call
		if _, err := c.await(first); err != nil {
			t.Error(err)
		}
	}
	r.until("others may run", func() bool { return len(r.server.slots) == 0 })
}

// A defect in one slice is that slice's error, and is logged with its place.
func TestAPanicIsOneSlicesError(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	operations["other"] = func(*request) (*answer, error) { panic("a defect") }
	defer delete(operations, "other")
	x := c.one(sliceOf("1", "other", nil, "a"))
	if x.err == nil || x.err.Code != errs.InternalError || strings.Contains(x.err.Message, "defect") {
		t.Errorf("%+v", x.err)
	}
	if s := r.log.String(); !strings.Contains(s, "panic: a defect") || !strings.Contains(s, "answer.go") {
		t.Errorf("%s", s)
	}
	if x := c.one(sliceOf("2", work.Encode, nil, "a")); !x.result.Success {
		t.Errorf("afterwards: %+v", x)
	}
}
