package row

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/tools/chaos/load"
)

// fakeKnown makes answers of hashes.
type fakeKnown struct{}

func (fakeKnown) Dense(model, text string) []float32 {
	h := sha256.Sum256([]byte(model + "\x00" + text))
	x := make([]float32, 8)
	for i := range x {
		x[i] = float32(binary.LittleEndian.Uint32(h[4*i:])>>8) / (1 << 24)
	}
	return x
}

func (f fakeKnown) Score(model, query, text string) float64 {
	return float64(f.Dense(model, query+"\x00"+text)[0])
}

func (f fakeKnown) Extract(model, text string, _ []string) map[string]any {
	return map[string]any{"entities": []any{
		map[string]any{"text": text[:3], "label": "person", "score": float64(f.Dense(model, text)[0])},
	}}
}

// The faults of a fakeGateway.
const (
	honest        = "honest"
	loses         = "loses"         // never answers
	closes        = "closes"        // closes the connection in place of an answer
	swaps         = "swaps"         // answers with the vectors of other texts
	drops         = "drops"         // leaves the last item out
	turns         = "turns"         // gives the items in another order
	duplicates    = "duplicates"    // answers twice
	late          = "late"          // answers after lateBy
	refuses       = "refuses"       // 503 with Retry-After
	refusesBadly  = "refuses badly" // 503 without Retry-After
	failsAnswer   = "fails"         // 500
	cutsAnswer    = "cuts"          // half an answer, then the end of the connection
	oneBitIsWrong = "one bit"       // the last bit of a number
)

const lateBy = 300 * time.Millisecond

// fakeGateway answers as a gateway would, by fakeKnown, and does its fault to the tenth request and
// to each after it that has the same route.
type fakeGateway struct {
	fault string

	mu    sync.Mutex
	n     int
	done  int // faults
	hit   chan struct{}
	conns []net.Conn
}

func startFake(t *testing.T, fault string) (*fakeGateway, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &fakeGateway{fault: fault, hit: make(chan struct{})}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			g.conns = append(g.conns, c)
			g.mu.Unlock()
			done.Go(func() { g.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		g.mu.Lock()
		for _, c := range g.conns {
			c.Close()
		}
		g.mu.Unlock()
		done.Wait()
	})
	return g, "http://" + l.Addr().String()
}

// turn says whether the fault is due.
func (g *fakeGateway) turn(items int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
	if g.fault == honest || g.n < 10 || items < 2 || g.done >= 3 {
		return false
	}
	if g.done++; g.done == 1 {
		close(g.hit)
	}
	return true
}

func (g *fakeGateway) serve(c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var in map[string]any
		packed := strings.Contains(r.Header.Get("Content-Type"), "msgpack")
		if packed {
			v, _, err := msgp.ReadIntfBytes(body)
			if err != nil {
				return
			}
			in = v.(map[string]any)
		} else if err := json.Unmarshal(body, &in); err != nil {
			return
		}
		if !g.answer(c, r, in, packed) || r.Close {
			return
		}
	}
}

func (g *fakeGateway) answer(c net.Conn, r *http.Request, in map[string]any, packed bool) bool {
	texts, ids := textsOf(in)
	due := g.turn(len(texts))
	fault := honest
	if due {
		fault = g.fault
	}
	switch fault {
	case loses:
		_, _ = io.Copy(io.Discard, c) // until the client gives up
		return false
	case closes:
		return false
	case late:
		time.Sleep(lateBy) // the fault
	case refuses:
		write(c, 503, "Retry-After: 3\r\n", "application/json", []byte(`{"error":{"code":"QUEUE_FULL"}}`))
		return true
	case refusesBadly:
		write(c, 503, "", "application/json", []byte(`{"error":{"code":"QUEUE_FULL"}}`))
		return true
	case failsAnswer:
		write(c, 500, "", "application/json", []byte(`{"error":{"code":"INTERNAL_ERROR"}}`))
		return true
	case swaps:
		for i := range texts {
			texts[i] = "another's text"
		}
	case turns:
		slices.Reverse(texts)
	}
	out := fakeAnswer(r.URL.Path, in, texts, ids, fault, packed)
	var b []byte
	kind := "application/json"
	if packed {
		kind = "application/msgpack"
		b, _ = msgp.AppendIntf(nil, out)
	} else {
		b, _ = json.Marshal(out)
	}
	if fault == cutsAnswer {
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(b))
		_, _ = c.Write(b[:len(b)/2])
		return false
	}
	write(c, 200, "", kind, b)
	if fault == duplicates {
		write(c, 200, "", kind, b)
	}
	return true
}

func write(w io.Writer, status int, headers, kind string, b []byte) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d X\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n", status, headers,
		kind, len(b))
	out.Write(b)
	_, _ = w.Write(out.Bytes()) // a client that left is a client's matter
}

func textsOf(in map[string]any) (texts, ids []string) {
	if list, ok := in["input"].([]any); ok {
		for _, x := range list {
			texts, ids = append(texts, x.(string)), append(ids, "")
		}
		return texts, ids
	}
	for _, x := range in["items"].([]any) {
		item := x.(map[string]any)
		texts, ids = append(texts, item["text"].(string)), append(ids, item["id"].(string))
	}
	return texts, ids
}

func fakeAnswer(
	path string, in map[string]any, texts, ids []string, fault string, packed bool,
) map[string]any {
	var k fakeKnown
	parts := strings.SplitN(strings.TrimPrefix(path, "/v1/"), "/", 2)
	op, model := parts[0], ""
	if len(parts) > 1 {
		model = parts[1]
	}
	key, list := "items", []any{}
	for i, text := range texts {
		x := k.Dense(cmpModel(model, in), text)
		if fault == oneBitIsWrong && i == 1 {
			x[3] = math.Float32frombits(math.Float32bits(x[3]) ^ 1)
		}
		switch op {
		case load.Embeddings:
			key = "data"
			list = append(list, map[string]any{"index": i, "embedding": floats(x)})
		case load.Score:
			key = "scores"
			score := k.Score(model, in["query"].(map[string]any)["text"].(string), text)
			if fault == oneBitIsWrong && i == 1 {
				score += 1e-3
			}
			list = append(list, map[string]any{"item_id": ids[i], "score": score})
		case load.Extract:
			item := k.Extract(model, text, nil)
			if fault == oneBitIsWrong && i == 1 {
				item["entities"] = []any{}
			}
			item["id"] = ids[i]
			list = append(list, item)
		default:
			var values any = floats(x)
			if packed {
				values = numpy(x)
			}
			list = append(list, map[string]any{"id": ids[i], "dense": map[string]any{"values": values}})
		}
	}
	if op == load.Score {
		slices.SortStableFunc(list, func(a, b any) int {
			if a.(map[string]any)["score"].(float64) > b.(map[string]any)["score"].(float64) {
				return -1
			}
			return 1
		})
		for i, x := range list {
			x.(map[string]any)["rank"] = i
		}
	}
	if fault == drops {
		list = list[:len(list)-1]
	}
	return map[string]any{key: list, "model": model}
}

func cmpModel(model string, in map[string]any) string {
	if model == "" {
		model = in["model"].(string)
	}
	return model
}

func floats(x []float32) []any {
	out := make([]any, len(x))
	for i, f := range x {
		out[i] = f
	}
	return out
}

// numpy writes a vector as msgpack-numpy does.
func numpy(x []float32) msgp.Raw {
	data := make([]byte, 0, 4*len(x))
	for _, f := range x {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f))
	}
	b := msgp.AppendMapHeader(nil, 4)
	b = msgp.AppendBool(msgp.AppendBytes(b, []byte("nd")), true)
	b = msgp.AppendString(msgp.AppendBytes(b, []byte("type")), "<f4")
	b = msgp.AppendInt(msgp.AppendArrayHeader(msgp.AppendBytes(b, []byte("shape")), 1), len(x))
	return msgp.AppendBytes(msgp.AppendBytes(b, []byte("data")), data)
}

var fakeModels = load.Models{
	Encode: []string{"a/encoder", "b/encoder"}, Score: "a/scorer", Extract: "an/extractor",
}
