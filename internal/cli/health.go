package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Health probes a running server and reports the answer by its exit status. An image then needs
// no curl for its HEALTHCHECK.
type Health struct {
	URL     string        `name:"url" help:"Address of the server. Default: this machine's own, at the port that serve has without flags, by https and with any certificate where SIE_TLS_CERT is set; where SIE_TLS_CLIENT_CA is, at SIE_METRICS_PORT."`
	Probe   string        `help:"readyz: requests should be sent here. livez: the device answers. healthz: the process answers." default:"readyz" enum:"readyz,livez,healthz"`
	Timeout time.Duration `help:"Time for the answer." default:"3s" range:"1ms..1h"`

	Gone time.Duration `help:"Wait until nothing listens there any more, at most so long: a program that must outlive the other runs this before it ends. The default asks once." range:"0s|1ms..1h"`

	Insecure bool `help:"Take any certificate of an https address: the probe is for this machine's own server."`
}

// goneEvery is the time between two looks for whether a server has gone.
const goneEvery = 50 * time.Millisecond

// Run asks once, or with Gone until nothing listens.
func (c *Health) Run(k *kong.Context) error {
	if c.URL == "" {
		c.URL, c.Insecure = own(k.Model.Node)
	}
	return c.run()
}

// own returns the address at which a program's command serve answers without flags, and whether any
// certificate is taken there: those of a server are seldom for this machine's own address. A server
// that demands certificates is asked at its port for metrics, if it has one. So a HEALTHCHECK
// follows the variables of its container.
func own(program *kong.Node) (url string, insecure bool) {
	scheme, host, port := "http", "127.0.0.1", "8080"
	var demands bool
	var metricsHost, metricsPort string
	for _, command := range program.Children {
		if command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			value := f.Default
			for _, name := range f.Envs {
				if set := os.Getenv(name); set != "" {
					value = set
					break
				}
			}
			ip := net.ParseIP(value)
			if value == "" || ip != nil && ip.IsUnspecified() {
				continue
			}
			switch f.Name {
			case "port":
				port = value
			case "tls-cert":
				scheme = "https"
			case "host":
				host = value
			case "tls-client-ca":
				demands = true
			case "metrics-host":
				metricsHost = value
			case "metrics-port":
				metricsPort = value
			}
		}
	}
	if demands && metricsPort != "" && metricsPort != "0" {
		return "http://" + net.JoinHostPort(cmp.Or(metricsHost, host), metricsPort), false
	}
	return scheme + "://" + net.JoinHostPort(host, port), scheme == "https"
}

func (c *Health) run() error {
	if c.Gone > 0 {
		return c.await()
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	return c.ask(ctx)
}

// await returns nil once a connection is refused. Whatever else happens, such as an answer that
// does not come, is a server that is there.
func (c *Health) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.Gone)
	defer cancel()
	tick := time.NewTicker(goneEvery)
	defer tick.Stop()
	for {
		once, stop := context.WithTimeout(ctx, c.Timeout)
		err := c.ask(once)
		stop()
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: it is there still, %v after it was first asked", c.URL, c.Gone)
		}
	}
}

// ask returns nil if the probe answers 200. It uses no proxy, because the server is on this
// machine, and follows no redirection, because that would be another program's answer.
func (c *Health) ask(ctx context.Context) error {
	url := strings.TrimSuffix(c.URL, "/") + "/" + c.Probe
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("--url %s: %w", c.URL, err)
	}
	client := http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			//nolint:gosec // the flag --insecure asks for it
			TLSClientConfig: &tls.Config{InsecureSkipVerify: c.Insecure},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%s: no answer within %v", url, c.Timeout)
		}
		if strings.Contains(err.Error(), "tls: certificate required") { // crypto/tls has no type for it
			return fmt.Errorf("%w: it serves only clients with a certificate, and a probe has none; give it a "+
				"--metrics-port (SIE_METRICS_PORT), which answers probes, too", err)
		}
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 200)) // the status alone says enough
		return fmt.Errorf("%s: %d %s", url, answer.StatusCode, strings.TrimSpace(string(body)))
	}
	return nil
}
