package httpd_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/tenant"
)

// A server that counts the words of a request. A client needs a key and may send at most one KiB.
func Example() {
	keys, err := tenant.Open(tenant.Options{Keys: []string{"let-me-in"}})
	if err != nil {
		panic(err)
	}
	count := func(r *httpd.Request, _ string) {
		err := r.Do("words", func(_ *admit.Work, body []byte) {
			words := len(strings.Fields(string(body)))
			r.Reply(api.JSON,
				func(dst []byte, _ *api.Sink) []byte { return fmt.Appendf(dst, `{"words":%d}`, words) })
		})
		if err != nil {
			r.Fail(dialect.RouteNative, errs.As(err))
		}
	}
	s, err := httpd.New(httpd.Options{Keys: keys, MaxBodyBytes: 1 << 10, Log: slog.New(slog.DiscardHandler)},
		[]httpd.Route{
			{Method: "GET", Path: "/healthz", Open: true,
				Serve: func(r *httpd.Request, _ string) { r.Plain(200, "ok") }},
			{Method: "POST", Path: "/count", Serve: count},
		})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()

	ask := func(key, body string) {
		q, _ := http.NewRequest("POST", "http://"+l.Addr().String()+"/count", strings.NewReader(body))
		q.Header.Set("X-API-Key", key)
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		fmt.Println(resp.StatusCode, strings.Contains(string(b), `"words":3`))
	}
	ask("let-me-in", "the cat sat")
	ask("please", "the cat sat")
	ask("let-me-in", strings.Repeat("cat ", 1000))

	if err := s.Shutdown(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(<-served)
	// Output:
	// 200 true
	// 401 false
	// 413 false
	// <nil>
}
