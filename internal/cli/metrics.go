package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"github.com/sie-engine/sie/internal/httpd"
)

// Metrics holds the flags of a port for metrics and health.
type Metrics struct {
	MetricsHost string `help:"Address that the port for metrics listens on; default: that of the API." env:"SIE_METRICS_HOST"`
	MetricsPort int    `help:"Port that serves /metrics and the health probes alone, without TLS and without a key; 0: none. On the port of the API /metrics needs a key with the role metrics, where there are keys." range:"0..65535" env:"SIE_METRICS_PORT"`
}

// Serve serves the metrics and the probes until close, which waits for what is being written. host
// is that of the API. probes are the routes of the API that say how the program is: whoever has no
// certificate of an authority that the API demands, such as a kubelet, asks them here.
func (f *Metrics) Serve(
	host string, series prometheus.Gatherer, probes []httpd.Route, log *slog.Logger,
) (addr string, close func(), err error) {
	if f.MetricsPort == 0 {
		return "", func() {}, nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(f.MetricsHost, host), strconv.Itoa(f.MetricsPort)))
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("--metrics-port: %w: is another server on port %d?", err, f.MetricsPort)
	}
	if err != nil {
		return "", nil, err
	}
	return serveMetrics(l, series, probes, log)
}

func serveMetrics(
	l net.Listener, series prometheus.Gatherer, probes []httpd.Route, log *slog.Logger,
) (addr string, close func(), err error) {
	answer := fasthttpadaptor.NewFastHTTPHandler(
		promhttp.HandlerFor(series, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	s, err := httpd.New(httpd.Options{Log: log, MaxConns: maxScrapers}, append([]httpd.Route{{
		Method: "GET", Path: "/metrics", Open: true,
		Serve: func(r *httpd.Request, _ string) { answer(r.RequestCtx) },
	}}, probes...))
	if err != nil {
		return "", nil, errors.Join(err, l.Close())
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return l.Addr().String(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-served); err != nil {
			log.Warn("the port of the metrics", "error", err)
		}
	}, nil
}

const (
	maxScrapers = 64              // connections
	scrapeTime  = 2 * time.Second // for the last answers
)
