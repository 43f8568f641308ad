//go:build native

package fuzzhttp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func sortedKeys(m tree) []string { return slices.Sorted(maps.Keys(m)) }

// fuzzClients send requests at the same time, each over fuzzRounds connections unless a time is
// set.
const (
	fuzzClients = 6
	fuzzRounds  = 60
)

// weird returns a value that replaces an expected one.
func weird(r *rand.Rand) any {
	deep := any("x")
	for range r.IntN(1200) {
		deep = []any{deep}
	}
	values := []any{
		nil, true, 0, 1, -1, math.MaxInt32, math.MaxInt, 1e308, math.Copysign(0, -1), 0.5, "", "x",
		strings.Repeat("é", r.IntN(3000)), "\x00", "\xff\xfe", "\u202e",
		strings.Repeat("\ufdfa", r.IntN(200)), []any{}, tree{}, []any{nil}, tree{"": tree{"": nil}},
		[]byte{0, 1, 0xff}, []any{1, "a", nil}, deep, raw("NaN"), raw("\xc1"), raw("1e999"), raw(`"\ud800"`),
		bigMap{true, math.MaxUint32}, bigMap{false, 1 << 20}, twice{"text", "a", "b"},
		twice{"items", []any{}, 5}, "float32", "muvera", "smve", []any{"dense", "dense"}, "four", "no/such",
		"../../etc", "mean:default", 60, 1 << 20,
	}
	return values[r.IntN(len(values))]
}

// mutate changes a tree at one place: it changes a value or a key, or adds, removes or repeats
// entries.
func mutate(r *rand.Rand, x any) any {
	switch v := x.(type) {
	case tree:
		keys := sortedKeys(v)
		switch n := r.IntN(12); {
		case len(keys) == 0 || n == 0:
			v[[]string{
				"zzz", "options", "params", "text", "images", "metadata", "profile", "output_schema",
				"labels", "",
			}[r.IntN(10)]] = weird(r)
		case n == 1:
			delete(v, keys[r.IntN(len(keys))])
		case n == 2:
			k := keys[r.IntN(len(keys))]
			v[k+" "], v[k] = v[k], weird(r)
		case n == 3:
			return weird(r)
		default:
			k := keys[r.IntN(len(keys))]
			v[k] = mutate(r, v[k])
		}
		return v
	case []any:
		switch n := r.IntN(8); {
		case len(v) == 0 || n == 0:
			return append(v, weird(r))
		case n == 1:
			return v[:r.IntN(len(v))]
		case n == 2:
			return slices.Repeat(v, 1+r.IntN(60))
		case n == 3:
			return weird(r)
		default:
			i := r.IntN(len(v))
			v[i] = mutate(r, v[i])
		}
		return v
	case string:
		if r.IntN(3) == 0 {
			return v + v + "\u0301" + string(rune(r.IntN(0x30000)))
		}
	}
	return weird(r)
}

// odd holds bytes with a meaning in HTTP, JSON or msgpack.
const odd = "\r\n\x00{}[]\":,\\\xff\xc4\xdf\xdd"

// corrupt changes bytes at one to three places: it changes, inserts or removes bytes, or cuts the
// end.
func corrupt(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + r.IntN(3) {
		if len(b) == 0 {
			return []byte{byte(r.IntN(256))}
		}
		i := r.IntN(len(b))
		switch r.IntN(6) {
		case 0:
			b[i] ^= 1 << r.IntN(8)
		case 1:
			b[i] = byte(r.IntN(256))
		case 2:
			b = slices.Insert(b, i, odd[r.IntN(len(odd))])
		case 3:
			b = slices.Delete(b, i, min(len(b), i+1+r.IntN(8)))
		case 4:
			b = b[:i]
		case 5:
			j := r.IntN(len(b))
			b = slices.Insert(b, i, b[j:min(len(b), j+r.IntN(20))]...)
		}
	}
	return b
}

// inChunks returns a request with a chunked body. If broken is set, some chunk sizes are wrong.
func inChunks(r *rand.Rand, head string, body []byte, broken bool) []byte {
	at := strings.Index(head, "Content-Length:")
	out := []byte(head[:at] + "Transfer-Encoding: chunked" + head[at+strings.Index(head[at:], "\r\n"):])
	for len(body) > 0 {
		n := 1 + r.IntN(len(body))
		size := n
		if broken && r.IntN(2) == 0 {
			size += r.IntN(5) - 2
		}
		out = fmt.Appendf(out, "%x\r\n%s\r\n", max(size, 0), body[:n])
		body = body[n:]
	}
	return append(out, "0\r\n\r\n"...)
}

// load is the bytes sent over one connection: requests one after another, without waiting for
// answers.
type load struct {
	bytes   []byte
	answers int // that must come; -1: unknown
	what    []string
}

// last ends every load, so that the server closes the connection.
const last = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

// makeLoad makes a load of one to eight requests. Each is valid, or changed in its structure, its
// bytes or its framing.
func makeLoad(r *rand.Rand, all []ask) load {
	var l load
	for range 1 + r.IntN(8) {
		a := all[r.IntN(len(all))]
		extra := []string{
			"", "", "X-SIE-SDK-Version: 0.6.30\r\n", "X-Request-ID: a\r\n", "X-SIE-MACHINE-PROFILE: l4\r\n",
			"Content-Encoding: gzip\r\n", "Accept: text/html\r\n", "X-SIE-Remote: x\r\n",
			"Expect: 100-continue\r\n", "Origin: null\r\n",
		}[r.IntN(10)]
		kind := r.IntN(8)
		if a.body != nil && kind < 5 {
			a.body = clone(a.body)
			for range 1 + r.IntN(2) {
				a.body = mutate(r, a.body)
			}
		}
		head, body := a.wire(extra)
		one := append([]byte(head), body...)
		switch {
		case kind < 4:
		case kind == 4 && a.body != nil:
			one = inChunks(r, head, body, false)
		case kind == 5 && a.body != nil:
			bad := corrupt(r, body)
			one = append([]byte(strings.Replace(head, fmt.Sprintf("Content-Length: %d", len(body)),
				fmt.Sprintf("Content-Length: %d", len(bad)), 1)), bad...)
		case kind == 6 && a.body != nil:
			one, l.answers = inChunks(r, head, body, true), -1
		case kind == 7 && r.IntN(3) == 0:
			one, l.answers = corrupt(r, one), -1
		}
		if extra == "Expect: 100-continue\r\n" { // may be refused, which ends the connection
			l.answers = -1
		}
		l.bytes, l.what = append(l.bytes, one...), append(l.what, a.String())
		if l.answers >= 0 {
			l.answers++
		}
	}
	l.bytes = append(l.bytes, last...)
	if l.answers >= 0 {
		l.answers++
	}
	return l
}

// check returns an error if an answer breaks a rule that holds for every request.
func check(status int, h http.Header, body []byte) error {
	switch {
	case status == 503 || status == 504:
		if h.Get("Retry-After") == "" {
			return errors.New("not retryable")
		}
	case status == 501 || status == 505:
	case status < 200 || status >= 500:
		return errors.New("the server's fault")
	}
	if h.Get("X-Request-Id") == "" {
		return errors.New("no request id")
	}
	if strings.HasPrefix(h.Get("Content-Type"), jsonType) && !json.Valid(body) {
		return errors.New("not JSON")
	}
	return nil
}

// send sends a load and checks its answers.
func (p *process) send(l load) (answers int, err error) {
	c, br, err := p.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = c.Write(l.bytes) // the server may close the connection early
	}()
	defer func() { c.Close(); <-wrote }()
	closing, asked := false, l.answers >= 0
	for {
		if !asked && quiet(c, br) {
			// A damaged length may have made the last request a part of the body before it. The
			// connection then waits for another one.
			select {
			case <-wrote:
				asked = true
				_, _ = io.WriteString(c, last)
			default:
			}
		}
		resp, err := http.ReadResponse(br, &http.Request{Method: "POST"})
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && br.Buffered() == 0 ||
			isReset(err):
			if l.answers >= 0 && answers < l.answers && !closing {
				return answers, fmt.Errorf("%d answers to %d requests, then %w", answers, l.answers, err)
			}
			if answers == 0 {
				return answers, fmt.Errorf("no answer at all: %w", err)
			}
			return answers, nil
		default:
			return answers, fmt.Errorf("after %d answers: %w", answers, err)
		}
		if resp.StatusCode == 100 {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return answers, fmt.Errorf("answer %d: %w", answers, err)
		}
		if err := check(resp.StatusCode, resp.Header, body); err != nil {
			return answers, fmt.Errorf("answer %d is a %d, %w: %v %.500s",
				answers, resp.StatusCode, err, resp.Header, body)
		}
		answers, closing = answers+1, closing || resp.Close
	}
}

// quiet reports whether no byte arrives for five seconds. It consumes nothing.
func quiet(c net.Conn, br *bufio.Reader) bool {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err := br.Peek(1)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

// Every request gets an answer that blames the request or may be retried. The server survives, and
// its use of memory, descriptors and goroutines does not grow.
func TestFuzz(t *testing.T) {
	random(t, 0)
	p := serve(t, "--body-stall", "300ms", "--body-timeout", "2s", "--head-timeout", "500ms",
		"--max-held-bytes", "2000000")
	all := asks()
	alone := p.alone(all, nil)
	p.fuzz(all, 1000, fuzzRounds/4, 0) // for resources made on first use
	before := p.usage()
	rounds, answers := p.fuzz(all, 2000, fuzzRounds, *lasting)
	p.alone(all, alone)
	p.calm(before)
	if now := p.usage(); now.rss > 2*before.rss+300<<10 {
		t.Errorf("%d KiB in memory, %d before", now.rss, before.rss)
	}
	t.Logf("%d connections, %d answers", rounds, answers)
	if answers < rounds {
		t.Error("too few answers: the test proves nothing")
	}
	for _, word := range []string{"panic", "goroutine ", "level=ERROR"} {
		if log := p.log.String(); strings.Contains(log, word) {
			t.Errorf("%q in the log: %s",
				word, tail(log[strings.Index(log, word):][:min(3000, len(log)-strings.Index(log, word))]))
		}
	}
}

// fuzz makes clients send n loads each, or loads for some time. part selects their random choices.
func (p *process) fuzz(all []ask, part uint64, n int, lasting time.Duration) (rounds, answers int64) {
	var clients sync.WaitGroup
	var sent, got atomic.Int64
	end := time.Now().Add(lasting)
	for k := range fuzzClients {
		r := random(p.t, part+uint64(k))
		clients.Go(func() {
			for i := 0; !p.t.Failed() && (lasting == 0 && i < n || time.Now().Before(end)); i++ {
				l := makeLoad(r, all)
				a, err := p.send(l)
				sent.Add(1)
				got.Add(int64(a))
				if err != nil {
					p.t.Errorf("client %d, connection %d: %v\n%s\n%.3000q",
						k, i, err, strings.Join(l.what, "\n"), l.bytes)
				}
			}
		})
	}
	clients.Wait()
	return sent.Load(), got.Load()
}
