package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/service"
)

// many returns an encode request of n short texts.
func many(n int) string {
	return `{"items":[` + strings.TrimSuffix(strings.Repeat(`{"text":"cat"},`, n), ",") + `]}`
}

// A request whose results can never be held is refused before anything runs. The error says how
// many items could be held, and that many are answered. A request whose results do not fit now gets
// a retryable error, which says how many would.
func TestResultsAreBounded(t *testing.T) {
	r := start(t, func(o *Options, w *service.Options) {
		w.Admit.MaxHeldBytes, o.DefaultModels = 4<<20, []string{model}
	})
	ran := func() string { return r.metric(`sie_device_batch_items_sum{model="test/mean"}`) }
	before := ran()
	texts := `["` + strings.Repeat(`cat","`, 11_000) + `cat"]`
	for path, c := range map[string]struct{ field, body string }{
		encodePath:       {"items", many(11_001)},
		"/v1/embeddings": {"input", `{"model":"` + model + `","input":` + texts + `}`},
		"/embed":         {"inputs", `{"inputs":` + texts + `}`},
		"/similarity":    {"inputs", `{"inputs":{"source_sentence":"a","sentences":` + texts + `}}`},
	} {
		a := r.do("POST", path, c.body)
		if a.status != 400 && a.status != 422 ||
			!strings.Contains(string(a.body), "Field '"+c.field+"': the results take") ||
			!strings.Contains(string(a.body), "such items in a request") {
			t.Errorf("%s: %d %.300s", path, a.status, a.body)
		}
	}
	if after := ran(); after != before {
		t.Errorf("%s texts had run, now %s", before, after)
	}
	a := r.encode(many(11_001))
	var most int
	if _, err := fmt.Sscanf(a.failure(t).Detail.Message[strings.Index(a.failure(t).Detail.Message,
		"at most"):], "at most %d such", &most); err != nil || most < 5000 || most > 11_000 {
		t.Fatalf("%v: %s", err, a.body)
	}
	if a := r.encode(many(most)); a.status != 200 {
		t.Errorf("the number that is said to fit: %d %.300s", a.status, a.body)
	}

	testrig.Until(t, "nothing is held", func() bool { return r.load().HeldBytes == 0 })
	others := r.dial()
	others.send(post(3<<20) + "{") // holds the room of its whole body
	testrig.Until(t, "others hold bytes", func() bool { return r.load().HeldBytes >= 3<<20 })
	a = r.encode(many(5000))
	if a.status != 503 || a.header.Get("Retry-After") == "" ||
		!strings.Contains(string(a.body), "of its items would fit now") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if a := r.encode(many(500)); a.status != 200 {
		t.Errorf("a request that fits: %d %s", a.status, a.body)
	}
	others.Close()
	testrig.Until(t, "others have left", func() bool { return r.load().HeldBytes == 0 })
	if a := r.encode(many(5000)); a.status != 200 {
		t.Errorf("later: %d %.300s", a.status, a.body)
	}
	testrig.Until(t, "nothing is held", func() bool { return r.load().HeldBytes == 0 })
}

// The room that a text turns out to need is asked for as soon as it is known.
func TestTokensAreBounded(t *testing.T) {
	r := start(t, func(o *Options, w *service.Options) {
		w.Admit.MaxHeldBytes, o.DefaultModels = 1<<20, []string{model}
	})
	body := `{"inputs":["` + strings.Repeat("cat ", 3000) + `"]}`
	if a := r.do("POST", "/tokenize", body); a.status != 200 || len(a.body) < 10*len(body) {
		t.Errorf("%d, %d bytes", a.status, len(a.body))
	}
	body = `{"inputs":["` + strings.Repeat("cat ", 30_000) + `"]}`
	if a := r.do("POST", "/tokenize", body); a.status == 200 || a.status >= 500 ||
		!strings.Contains(string(a.body), "such items in a request") {
		t.Errorf("%d %.300s", a.status, a.body)
	}
	ids := `{"ids":[[` + strings.Repeat("7,", 300_000) + `7]]}`
	if a := r.do("POST", "/decode", ids); a.status == 200 || a.status >= 500 {
		t.Errorf("%d %.300s", a.status, a.body)
	}
	testrig.Until(t, "nothing is held", func() bool { return r.load().HeldBytes == 0 })
}

// An answer has the same bytes whether it is sent whole, in chunks or to HTTP/1.0, in both formats.
// Its room is given back once it is written, and the connection stays usable.
func TestAnswersOfEverySize(t *testing.T) {
	r := start(t, func(o *Options, _ *service.Options) { o.AccessLog = true })
	for _, n := range []int{1, 30, 1500, 9000} {
		for _, accept := range []string{"application/json", "application/msgpack"} {
			body := many(n)
			request := func(version string) string {
				return fmt.Sprintf(
					"POST %s HTTP/%s\r\nHost: x\r\nConnection: keep-alive\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n%s",
					encodePath, version, accept, len(body), body)
			}
			var rows [2][]byte
			for i, version := range []string{"1.1", "1.0"} {
				w := r.dial()
				w.send(request(version))
				resp, err := http.ReadResponse(w.br, &http.Request{Method: "POST"})
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("%d items: %v %d", n, err, resp.StatusCode)
				}
				chunked := len(resp.TransferEncoding) > 0
				if chunked && (version == "1.0" || len(b) < 1<<20) ||
					!chunked && version == "1.1" && len(b) > 1<<20+1<<16 {
					t.Errorf("%d items, %s, HTTP/%s: %d bytes, chunked %v",
						n, accept, version, len(b), chunked)
				}
				w.send(getHealth)
				if a := w.receive("GET"); a.status != 200 {
					t.Errorf("the next request: %d", a.status)
				}
				items := b[:max(0, bytes.Index(b, []byte("timing")))]
				if rows[i] = items; accept == "application/json" && !json.Valid(b) {
					t.Errorf("%d items: not JSON", n)
				} else if rest, err := msgp.Skip(b); accept == "application/msgpack" &&
					(err != nil || len(rest) > 0) {
					t.Errorf("%d items: not msgpack: %v", n, err)
				}
			}
			if len(rows[0]) == 0 || !bytes.Equal(rows[0], rows[1]) {
				t.Errorf("%d items, %s: the versions differ", n, accept)
			}
			testrig.Until(t, "nothing is held", func() bool { return r.load().HeldBytes == 0 })
		}
	}
	if log := r.log.String(); strings.Count(log, "msg=request ") != 2*2*4*2 ||
		strings.Contains(log, "bytes_out=0 ") || strings.Contains(log, "bytes_out=-") {
		t.Errorf("%d lines in the access log", strings.Count(log, "msg=request "))
	}
}

// A client that reads its answer slowly holds no more than the answer's results, and for at most
// --write-timeout. A client that leaves holds nothing.
func TestSlowReadersOfLargeAnswers(t *testing.T) {
	for name, leave := range map[string]bool{"never reads": false, "leaves": true} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(o *Options, _ *service.Options) {
				if !leave {
					o.WriteTimeout = 300 * time.Millisecond
				}
			})
			w := r.dial()
			_ = w.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			body := many(30_000) // some 20 MB of JSON
			w.send(post(len(body)) + body)
			testrig.Until(t, "the answer begins", func() bool { _, err := w.br.Peek(1); return err == nil })
			if held := r.load().HeldBytes; held < 30_000*128 || held > 40<<20 {
				t.Errorf("%d bytes are held", held)
			}
			if leave {
				w.Close()
			}
			testrig.Until(t, "nothing is held", func() bool { return r.load().HeldBytes == 0 })
		})
	}
}
