package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/screen"
)

// topCmd shows a running server in a terminal. It reads the frames of the server's status socket.
type topCmd struct {
	URL      string `name:"url" help:"Address of the server." default:"http://127.0.0.1:8080"`
	APIKey   string `name:"api-key" help:"Its API key." env:"SIE_API_KEY"`
	Once     bool   `help:"Print one frame and end; so it does where the output is no terminal."`
	Insecure bool   `help:"Take any certificate of an https address."`
}

func (c *topCmd) Run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Once || !screen.Terminal() {
		return c.once(conn, os.Stdout)
	}
	w, err := screen.Open(cancel)
	if err != nil {
		return err
	}
	defer w.Close()
	return c.follow(ctx, conn, func(b *board) {
		w.Draw(func(width, height int) string { return b.render(width, height, true) })
	})
}

// dial opens the status socket.
func (c *topCmd) dial(ctx context.Context) (*websocket.Conn, error) {
	url := strings.TrimSuffix(c.URL, "/") + "/ws/status"
	if rest, ok := strings.CutPrefix(url, "http"); ok {
		url = "ws" + rest
	}
	header := http.Header{}
	if c.APIKey != "" {
		header.Set("Authorization", "Bearer "+c.APIKey)
	}
	d := websocket.Dialer{
		HandshakeTimeout: 5 * time.Second,
		//nolint:gosec // the flag --insecure asks for it
		TLSClientConfig: &tls.Config{InsecureSkipVerify: c.Insecure},
	}
	conn, answer, err := d.DialContext(ctx, url, header)
	if err != nil {
		if answer != nil && answer.StatusCode == http.StatusUnauthorized {
			return nil, errors.New("the server needs an API key: set --api-key or SIE_API_KEY")
		}
		return nil, fmt.Errorf("--url %s: %w", c.URL, err)
	}
	conn.SetReadLimit(16 << 20)
	return conn, nil
}

// once prints one board. It reads two frames, because rates need both.
func (c *topCmd) once(conn *websocket.Conn, w io.Writer) error {
	b := &board{}
	for range 2 {
		f, err := next(conn)
		if err != nil {
			return err
		}
		b.add(f)
	}
	_, err := io.WriteString(w, b.render(120, 1000, false))
	return err
}

// redraw is the least time between two drawings; frames come faster than anybody reads.
const redraw = 500 * time.Millisecond

// follow draws frames until ctx ends or the server shuts down.
func (c *topCmd) follow(ctx context.Context, conn *websocket.Conn, draw func(*board)) error {
	go func() {
		<-ctx.Done()
		_ = conn.SetReadDeadline(time.Now())
	}()
	b, drawn := &board{}, time.Time{}
	for {
		f, err := next(conn)
		switch {
		case ctx.Err() != nil:
			return nil
		case websocket.IsCloseError(err, websocket.CloseGoingAway):
			return errors.New("the server has shut down")
		case err != nil:
			return err
		}
		b.add(f)
		if time.Since(drawn) >= redraw {
			drawn = time.Now()
			draw(b)
		}
	}
}

func next(conn *websocket.Conn) (*api.Status, error) {
	f := &api.Status{}
	return f, conn.ReadJSON(f)
}
