package dev

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
)

// probeTime bounds one look at whether a process is ready.
const probeTime = 2 * time.Second

// prober asks over HTTP. It keeps no connection, because the process may be another the next time.
// It takes any certificate: that of a gateway is seldom for this machine's own address.
var prober = &http.Client{
	Timeout: probeTime,
	Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // it sends no secret
}

// maxAnswer bounds what is read of an answer that is not ready, for the message.
const maxAnswer = 200

// answers returns a probe that is content with 200 at url.
func answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := prober.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
			return fmt.Errorf("%s: status %d: %s", url, answer.StatusCode, strings.TrimSpace(string(text)))
		}
		return nil
	}
}

// knows returns a probe that is content when a gateway has heard of so many workers that are ready.
// It is content too when the gateway tells only those who have a key.
func knows(gateway string, workers int) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, gateway+"/health", nil)
		if err != nil {
			return err
		}
		answer, err := prober.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusUnauthorized {
			return nil
		}
		var health struct {
			Workers []struct {
				Healthy bool `json:"healthy"`
			} `json:"workers"`
		}
		if err := json.NewDecoder(io.LimitReader(answer.Body, maxHealth)).Decode(&health); err != nil {
			return fmt.Errorf("%s/health: %w", gateway, err)
		}
		ready := 0
		for _, w := range health.Workers {
			if w.Healthy {
				ready++
			}
		}
		if ready < workers {
			return fmt.Errorf("%s knows %d of %d workers", gateway, ready, workers)
		}
		return nil
	}
}

// maxHealth bounds what is read of /health in bytes.
const maxHealth = 16 << 20

// listens returns a probe that is content with a connection.
func listens(network, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// jetStream returns a probe that is content when JetStream answers, which in a cluster of servers
// needs a leader.
func jetStream(url string, a bus.Access) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		opts, err := a.ClientOptions()
		if err != nil {
			return err
		}
		c, err := nats.Connect(url, append(opts, nats.NoReconnect(), nats.Timeout(probeTime))...)
		if err != nil {
			return err
		}
		defer c.Close()
		js, err := jetstream.New(c)
		if err != nil {
			return err
		}
		if _, err = js.Stream(ctx, bus.DLQStream); errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	}
}
