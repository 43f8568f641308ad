package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long a raw client waits for an answer. Above every limit of a gateway: who waits
// longer has lost its answer.
const patience = 170 * time.Second

// raw is one HTTP client without retries. It belongs to one goroutine.
type raw struct {
	fresh bool // a connection for each request
	// patience bounds the wait for an answer
	patience time.Duration
	packed   bool // msgpack where the route has it

	conn net.Conn
	br   *bufio.Reader
	to   string // the address of conn
}

// close closes the connection.
func (c *raw) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// connect makes a connection to an address, unless a kept one still stands. A kept connection that
// holds bytes nobody asked for has a second answer.
func (c *raw) connect(ctx context.Context, address string) (second bool, err error) {
	if c.conn != nil {
		state := c.idle()
		second = state == idleBytes
		if c.fresh || c.to != address || state != idleOpen {
			c.close()
		}
	}
	if c.conn != nil {
		return second, nil
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return second, err
	}
	c.conn, c.br, c.to = conn, bufio.NewReaderSize(conn, 64<<10), address
	return second, nil
}

// The states of a connection between two requests.
const (
	idleOpen = iota
	idleClosed
	idleBytes
)

// idle looks at the kept connection without waiting.
func (c *raw) idle() int {
	if c.br.Buffered() > 0 {
		return idleBytes
	}
	rc, err := c.conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return idleClosed
	}
	state := idleClosed
	err = rc.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case n > 0:
			state = idleBytes
		case errors.Is(err, syscall.EAGAIN):
			state = idleOpen
		}
		return true
	})
	if err != nil {
		return idleClosed
	}
	return state
}

// do sends a request to a gateway and fills in what became of it.
func (c *raw) do(ctx context.Context, k Known, base *url.URL, r *Request, rec *Record) {
	rec.Start = time.Now()
	defer func() { rec.End = time.Now() }()
	body, contentType, err := r.body(c.packed)
	if err != nil {
		rec.Verdict, rec.Why = Failed, "the request cannot be written: "+err.Error()
		return
	}
	rec.Second, err = c.connect(ctx, base.Host)
	if err != nil {
		rec.Verdict, rec.Why = c.broken(err)
		return
	}
	resp, answer, err := c.exchange(r, base.Host, contentType, body)
	if err != nil {
		rec.Verdict, rec.Why = c.broken(err)
		c.close()
		return
	}
	rec.Status = resp.StatusCode
	rec.Second = rec.Second || c.br.Buffered() > 0
	c.judge(k, r, resp, answer, rec)
	if resp.Close || c.fresh {
		// Whatever follows on a connection that ends is read to its end: nothing may.
		_ = c.conn.SetReadDeadline(time.Now().Add(time.Second))
		if n, _ := io.Copy(io.Discard, io.LimitReader(c.br, 1)); resp.Close && n > 0 {
			rec.Second = true
		}
		c.close()
	}
}

func (c *raw) exchange(
	r *Request, host, contentType string, body []byte,
) (*http.Response, []byte, error) {
	var b bytes.Buffer
	keep := "keep-alive"
	if c.fresh {
		keep = "close"
	}
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nAccept: %s\r\nConnection: %s\r\n"+
		"X-Request-ID: %s\r\nContent-Length: %d\r\n\r\n", r.path(), host, contentType, contentType, keep,
		r.ID,
		len(body))
	b.Write(body)
	if err := c.conn.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return nil, nil, err
	}
	if _, err := c.conn.Write(b.Bytes()); err != nil {
		return nil, nil, err
	}
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp, answer, err
}

// broken tells a connection that ended from an answer that never came.
func (c *raw) broken(err error) (Verdict, string) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return Lost, fmt.Sprintf("no answer in %v", c.patience)
	}
	return Reset, err.Error()
}

// retryable are the codes of a 503 that callers without a version may see, of either API.
var retryable = []string{
	"QUEUE_FULL", "PROVISIONING", "MODEL_LOADING", "RESOURCE_EXHAUSTED", "DRAINING", "SERVER_OVERLOADED",
}

// judge sets the verdict of an answer.
func (c *raw) judge(k Known, r *Request, resp *http.Response, body []byte, rec *Record) {
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	short := strings.TrimSpace(string(body[:min(len(body), 300)]))
	switch {
	case resp.StatusCode == 200:
		a, err := parse(r.Op, resp.Header.Get("Content-Type"), body)
		if err != nil {
			rec.Verdict, rec.Why = Wrong, err.Error()
		} else if why := check(k, r, a); why != "" {
			rec.Verdict, rec.Why = Wrong, why
		}
	case resp.StatusCode == 202 && after >= 1 && r.Op != Embeddings:
		rec.Verdict, rec.Why = Accepted, fmt.Sprintf("202, Retry-After %d", after)
	case resp.StatusCode == 503 && after >= 1 && slices.Contains(retryable, errorCode(resp, body)):
		rec.Verdict = Refused
		rec.Why = fmt.Sprintf("503 %s, Retry-After %d: %s", errorCode(resp, body), after, short)
	default:
		rec.Verdict = Failed
		rec.Why = fmt.Sprintf("status %d, Retry-After %q: %s", resp.StatusCode,
			resp.Header.Get("Retry-After"), short)
	}
}

// errorCode returns the code of an error answer, in upper case.
func errorCode(resp *http.Response, body []byte) string {
	if c := resp.Header.Get("X-SIE-Error-Code"); c != "" {
		return strings.ToUpper(c)
	}
	var e struct {
		Error, Detail struct{ Code string }
	}
	_ = json.Unmarshal(body, &e) // of no form: no code
	code := e.Error.Code
	if code == "" {
		code = e.Detail.Code
	}
	return strings.ToUpper(code)
}
