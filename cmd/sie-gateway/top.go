package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sie-engine/sie/gateway/top"
	"github.com/sie-engine/sie/internal/screen"
)

// topCmd shows a gateway and its cluster in a terminal.
type topCmd struct {
	URL      string `name:"url" help:"Address of the gateway." default:"http://127.0.0.1:8080"`
	APIKey   string `name:"api-key" help:"Its API key." env:"SIE_API_KEY"`
	Once     bool   `help:"Print one board and end; so it does where the output is no terminal."`
	Insecure bool   `help:"Take any certificate of an https address."`
}

const (
	pollEvery = time.Second
	pollTime  = 5 * time.Second // bounds one poll
)

// Run draws once a second until q, Ctrl-C or SIGTERM. A gateway that is away is asked again.
func (c *topCmd) Run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	client := &top.Client{URL: c.URL, Key: c.APIKey, HTTP: &http.Client{
		Timeout: pollTime,
		//nolint:gosec // the flag --insecure asks for it
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: c.Insecure}},
	}}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	b := &top.Board{}
	if c.Once || !screen.Terminal() {
		for i := range 2 { // rates need two
			f, err := client.Poll(ctx)
			if err != nil {
				return err
			}
			b.Add(f, nil)
			if i == 0 {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return nil
				}
			}
		}
		_, err := fmt.Println(b.Render(140, 1000, false))
		return err
	}
	s, err := screen.Open(cancel)
	if err != nil {
		return err
	}
	defer s.Close()
	for ctx.Err() == nil {
		b.Add(client.Poll(ctx))
		s.Draw(func(width, height int) string { return b.Render(width, height, true) })
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}
