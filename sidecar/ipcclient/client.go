package ipcclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
)

// Events tells what is known of the server. The functions are called one at a time and in order.
type Events struct {
	// Up is called when a connection was made and the server has answered. same says that it is
	// the process of the connection before.
	Up func(p ipc.PingResponse, same bool)
	// Pong is called for each answer to a Ping after Up.
	Pong func(p ipc.PingResponse)
	// Lost is called when the connection ended, after the calls that ran have ended with ErrLost.
	Lost func()
	// Dead is called when the process of the last connection is gone, once for each process.
	Dead func()
}

// Options configures a Client.
type Options struct {
	Path     string // of the server's socket
	WorkerID string
	Log      *slog.Logger
	Events   Events
	Count    func(method, result string, took time.Duration) // of calls that ended; nil for none
	// MaxResponse bounds a response in chunks in bytes [ipc.MaxTransfer]; at most ipc.MaxResponse.
	MaxResponse int
}

// The errors of calls, for errors.Is. After ErrBusy and ErrAway nothing was sent; after ErrLost the
// server may have run the call.
var (
	ErrLost = errors.New("ipc: the connection to the server ended")
	ErrAway = errors.New("ipc: there is no connection to the server")
	ErrBusy = errors.New("ipc: too many calls wait for the server")
)

// The bounds and times of a connection.
const (
	maxCalls  = 4096      // that run at once; one more is ErrBusy
	maxUnsent = 256 << 20 // bytes that wait for the socket; more is ErrBusy
	// bytes of responses in chunks that are not complete; more ends the connection. A server sends
	// one after another.
	maxChunked  = ipc.MaxResponse
	dialTimeout = 2 * time.Second
	redialFirst = 20 * time.Millisecond
	redialLast  = 500 * time.Millisecond
	pingEvery   = 2 * time.Second
	keepBuffer  = 1 << 20 // of the reader between frames
)

// Client keeps a connection to a server. Its methods are safe for concurrent use.
type Client struct {
	o Options

	mu   sync.Mutex
	conn *conn // nil: none, or the server has not answered on it yet
	next uint64
}

// New returns a client. Run makes it work.
func New(o Options) *Client {
	o.MaxResponse = min(cmp.Or(o.MaxResponse, ipc.MaxTransfer), ipc.MaxResponse)
	return &Client{o: o}
}

// Run keeps a connection until ctx ends, and returns when its goroutines have ended.
func (c *Client) Run(ctx context.Context) {
	epoch, wait := "", redialFirst
	for ctx.Err() == nil {
		up, err := c.session(ctx, &epoch)
		if up {
			wait = redialFirst
		}
		if gone(err) && epoch != "" {
			c.o.Log.Warn("the server is gone", "socket", c.o.Path)
			epoch = ""
			c.o.Events.Dead()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, redialLast)
		}
	}
}

// gone reports whether an error of dialling proves that no process listens on the socket.
func gone(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// session makes a connection and serves it until it ends. up says that the server answered on it.
func (c *Client) session(ctx context.Context, epoch *string) (up bool, err error) {
	d := net.Dialer{Timeout: dialTimeout}
	socket, err := d.DialContext(ctx, "unix", c.o.Path)
	if err != nil {
		return false, err
	}
	k := newConn(socket, c.o.MaxResponse, c.o.Log, c.o.Count)
	stop := context.AfterFunc(ctx, k.close)
	defer stop()
	var both sync.WaitGroup
	both.Go(k.write)
	both.Go(func() {
		for {
			c.ping(k, func(p ipc.PingResponse) { up = c.pong(k, p, epoch, up) })
			select {
			case <-k.ended:
				return
			case <-time.After(pingEvery):
			}
		}
	})
	err = k.read()
	c.mu.Lock()
	c.conn = nil
	c.mu.Unlock()
	k.end()
	both.Wait()
	if up {
		if ctx.Err() == nil {
			c.o.Log.Warn("the connection to the server ended", "error", err)
		}
		c.o.Events.Lost()
	}
	return up, nil
}

// pong handles the answer to a Ping on the goroutine that reads k.
func (c *Client) pong(k *conn, p ipc.PingResponse, epoch *string, up bool) bool {
	k.serverTakes(p.RequestBytes)
	if up {
		c.o.Events.Pong(p)
		return true
	}
	same := *epoch != "" && *epoch == p.Epoch
	if *epoch != "" && !same {
		c.o.Log.Warn("another server answers", "pid", p.PID)
		c.o.Events.Dead()
	}
	*epoch = p.Epoch
	c.mu.Lock()
	c.conn = k
	c.mu.Unlock()
	c.o.Log.Info("the server answers", "pid", p.PID, "socket", c.o.Path)
	c.o.Events.Up(p, same)
	return true
}

func (c *Client) ping(k *conn, answer func(ipc.PingResponse)) {
	body := &ipc.PingRequest{TimestampMS: float64(time.Now().UnixMicro()) / 1e3, WorkerID: c.o.WorkerID}
	_ = k.start(c.id(), ipc.MethodPing, body, nil, func(r *ipc.Response, err error) {
		var p ipc.PingResponse
		if err == nil {
			_, err = p.UnmarshalMsg(r.Body)
		}
		if err == nil {
			answer(p)
		} else if !errors.Is(err, ErrLost) {
			c.o.Log.Warn("the server's answer to a Ping cannot be read", "error", err)
		}
	})
}

func (c *Client) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return strconv.FormatUint(c.next, 10)
}

// Message is a generated type of a method's body.
type Message interface {
	MarshalMsg(b []byte) ([]byte, error)
}

// Go starts a call. outcome, nil for none, gets each outcome that comes before the end; done gets
// the end: the response, whose OK is true, or an error, once. If Go returns an error, neither is
// called. The returned id is that of the server's Progress.
func (c *Client) Go(
	method string, body Message, outcome func(ipc.Outcome), done func(*ipc.Response, error),
) (id string, err error) {
	c.mu.Lock()
	k := c.conn
	c.mu.Unlock()
	if k == nil {
		return "", ErrAway
	}
	id = c.id()
	return id, k.start(id, method, body, outcome, done)
}

// Unmarshaler is a generated type of a method's reply.
type Unmarshaler interface {
	UnmarshalMsg(b []byte) ([]byte, error)
}

// Call makes a call and waits for its end, or ctx's. An error that the server sent is an
// *errs.Error.
func (c *Client) Call(ctx context.Context, method string, body Message, reply Unmarshaler) error {
	type end struct {
		r   *ipc.Response
		err error
	}
	ch := make(chan end, 1)
	if _, err := c.Go(method, body, nil, func(r *ipc.Response, err error) { ch <- end{r, err} }); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case e := <-ch:
		if e.err != nil || reply == nil {
			return e.err
		}
		if _, err := reply.UnmarshalMsg(e.r.Body); err != nil {
			return fmt.Errorf("ipc: the reply to %s: %w", method, err)
		}
		return nil
	}
}

// ApplyModelConfig adds or replaces one model's configuration in the server.
func (c *Client) ApplyModelConfig(ctx context.Context, r *ipc.ApplyRequest) (ipc.ConfigResponse, error) {
	var out ipc.ConfigResponse
	return out, c.Call(ctx, ipc.MethodApplyModelConfig, r, &out)
}

// failure returns the error of a response that is not OK.
func failure(r *ipc.Response) error {
	if len(r.Err) > 0 {
		if e, err := errs.FromMsgpack(r.Err); err == nil {
			return e
		}
	}
	return errs.Internal(fmt.Errorf("ipc: the server answered: %s", r.Error))
}
