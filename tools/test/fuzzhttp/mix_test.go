//go:build native

package fuzzhttp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	mixClients = 8
	mixRounds  = 60
)

// passing matches the parts that differ between two answers to one request: the timings, and
// rerank's ids.
var passing = regexp.MustCompile(`"timing":\{[^}]*\}|^\{"id":"[0-9a-f-]{36}"`)

// settled returns an answer without the parts that differ between runs.
func settled(contentType string, body []byte) []byte {
	if contentType == packType {
		if at := bytes.LastIndex(body, []byte("\xa6timing")); at >= 0 {
			if end := bytes.LastIndex(body, []byte("\xa5usage")); end > at {
				return append(bytes.Clone(body[:at]), body[end:]...)
			}
		}
		return body
	}
	return passing.ReplaceAll(body, nil)
}

// exchange sends a request over a connection and returns the settled answer. It retries answers
// that say so.
func exchange(c net.Conn, br *bufio.Reader, a ask) ([]byte, error) {
	head, body := a.wire("")
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, err := c.Write(append([]byte(head), body...)); err != nil {
			return nil, err
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			return nil, err
		}
		got, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == 200:
			return settled(resp.Header.Get("Content-Type"), got), nil
		case resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || time.Now().After(end):
			return nil, fmt.Errorf("%d %.500s", resp.StatusCode, got)
		}
	}
}

// alone returns the answers to requests that are sent one by one. They must equal earlier, unless
// that is nil.
func (p *process) alone(all []ask, earlier [][]byte) [][]byte {
	p.t.Helper()
	c, br, err := p.dial()
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	out := make([][]byte, len(all))
	for i, a := range all {
		_ = c.SetDeadline(time.Now().Add(patience))
		if out[i], err = exchange(c, br, a); err != nil {
			p.t.Fatalf("%v: %v", a, err)
		}
		if earlier != nil && !bytes.Equal(out[i], earlier[i]) {
			p.t.Errorf("%v: another answer than before\n%.300q\n%.300q", a, earlier[i], out[i])
		}
	}
	return out
}

// Answers that are made together with others equal, bit for bit, the answers made one by one.
func TestMix(t *testing.T) {
	random(t, 0)
	p := serve(t, "--max-loras-per-model", "2") // three are asked for
	all := asks()
	alone := p.alone(all, nil)
	p.alone(all, alone)
	before := p.usage()
	var clients sync.WaitGroup
	var compared atomic.Int64
	end := time.Now().Add(*lasting)
	for k := range mixClients {
		r := random(t, 3000+uint64(k))
		clients.Go(func() {
			c, br, err := p.dial()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { c.Close() }()
			for i := 0; !t.Failed() && (*lasting == 0 && i < mixRounds || time.Now().Before(end)); i++ {
				_ = c.SetDeadline(time.Now().Add(patience))
				n := r.IntN(len(all))
				got, err := exchange(c, br, all[n])
				if err != nil || !bytes.Equal(got, alone[n]) {
					t.Errorf("client %d, request %d, %v: in company %v\n%.300q\nalone\n%.300q",
						k, i, all[n], err, got, alone[n])
				}
				compared.Add(1)
				if r.IntN(20) == 0 { // the client leaves during a request
					head, body := all[r.IntN(len(all))].wire("")
					_, _ = c.Write(append([]byte(head), body...))
					c.Close()
					if c, br, err = p.dial(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	clients.Wait()
	p.calm(before)
	t.Logf("%d answers compared, of %d kinds", compared.Load(), len(all))
}
