package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
)

// The times of a Follower.
const (
	pollEvery    = 30 * time.Second
	firstRetry   = time.Second
	lastRetry    = 30 * time.Second
	fetchTimeout = 10 * time.Second
	nearest      = 200 * time.Millisecond // between Ask and the question, so that many are one
)

// The bounds of what is read, in bytes.
const (
	maxExport = 64 << 20
	maxAnswer = 1 << 20
	maxDelta  = 1 << 20
)

// Options configures a Follower.
type Options struct {
	URL     string // of sie-config, or of a gateway: http or https
	Token   string // for reading the export; "": none
	Bundle  string
	Trusted []string // producers of deltas: their names, or what they begin with before a dash
	Log     *slog.Logger
	Client  *http.Client // nil: one of its own

	// Read is called after each question that was answered, on the goroutine of Run, with what
	// sie-config has and when the question began. The Export is the same pointer until it changes.
	Read func(e *Export, asked time.Time)
}

// Follower keeps asking sie-config what it has.
type Follower struct {
	o    Options
	base string
	now  chan struct{} // one value: ask soon

	have   *Export // nil: nothing was read
	signs  signs   // of have
	broken string  // the last error that was logged

	failures, told, untrusted, unreadable atomic.Uint64
	epoch                                 atomic.Uint64
	failing                               atomic.Bool
}

// signs tell one configuration from another.
type signs struct {
	Epoch   uint64 `json:"epoch"`
	Bundles string `json:"bundles_hash"`
	Configs string `json:"bundle_config_hashes_hash"`
}

// New returns a Follower, or what is wrong with the options.
func New(o Options) (*Follower, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("the address of sie-config, SIE_CONFIG_SERVICE_URL, is no URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil:
		return nil, fmt.Errorf("SIE_CONFIG_SERVICE_URL is %q; write http://host:port or https://host:port",
			u.Redacted())
	}
	if o.Client == nil {
		o.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a redirect could take the token elsewhere
		}}
	}
	return &Follower{o: o, base: strings.TrimSuffix(u.String(), "/"), now: make(chan struct{}, 1)}, nil
}

// Ask has the Follower ask soon. It returns at once, and many calls cause one question.
func (f *Follower) Ask() {
	select {
	case f.now <- struct{}{}:
	default:
	}
}

// Listen has a trusted producer's deltas call Ask. It returns what ends that.
func (f *Follower) Listen(conn *nats.Conn) (*nats.Subscription, error) {
	return conn.Subscribe(bus.ConfigPrefix+f.o.Bundle, f.hear)
}

func (f *Follower) hear(m *nats.Msg) {
	var d struct {
		Producer string `json:"producer_id"`
		Router   string `json:"router_id"`
	}
	if m.Reply != "" || reserved(m.Header) || len(m.Data) > maxDelta || json.Unmarshal(m.Data, &d) != nil {
		f.unreadable.Add(1)
		return
	}
	if d.Producer == "" {
		d.Producer = d.Router
	}
	if !slices.ContainsFunc(f.o.Trusted, func(name string) bool {
		return d.Producer == name || strings.HasPrefix(d.Producer, name+"-")
	}) {
		if f.untrusted.Add(1) == 1 {
			f.o.Log.Warn("a change was told by a producer that is not trusted; see SIE_NATS_CONFIG_TRUSTED_PRODUCERS",
				"producer", fmt.Sprintf("%.80q", d.Producer))
		}
		return
	}
	f.told.Add(1)
	f.Ask()
}

// reserved reports whether a message has a header of the broker: sie-config sends none.
func reserved(h nats.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, bus.HeaderReserved) {
			return true
		}
	}
	return false
}

// Run asks until ctx ends: every pollEvery and after Ask; after a failure first after firstRetry,
// then twice as long each time up to lastRetry.
func (f *Follower) Run(ctx context.Context) {
	retry := firstRetry
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-f.now:
			select {
			case <-ctx.Done():
				return
			case <-time.After(nearest):
			}
			select { // what was told meanwhile is in the answer
			case <-f.now:
			default:
			}
		}
		asked := time.Now()
		err := f.once(ctx)
		if ctx.Err() != nil {
			return
		}
		f.failing.Store(err != nil)
		if err == nil {
			f.broken, retry = "", firstRetry
			f.o.Read(f.have, asked)
			timer.Reset(pollEvery)
			continue
		}
		f.failures.Add(1)
		if text := err.Error(); text != f.broken {
			f.broken = text
			f.o.Log.Warn("the models could not be read from sie-config; this worker serves what it knows",
				"error", err, "retry", retry)
		}
		timer.Reset(retry)
		retry = min(2*retry, lastRetry)
	}
}

// once asks what sie-config has, and reads it unless it is known.
func (f *Follower) once(ctx context.Context) error {
	var now signs // asked first, so that a change meanwhile is seen by the next question
	if err := f.get(ctx, "/v1/configs/epoch", maxAnswer, &now); err != nil {
		return err
	}
	if now.Bundles == "" {
		return errors.New("sie-config has no bundles yet")
	}
	if f.have != nil && f.signs == now {
		return nil
	}
	var a answer
	if err := f.get(ctx, "/v1/configs/export", maxExport, &a); err != nil {
		return err
	}
	e, err := a.of(f.o.Bundle)
	if err != nil {
		return err
	}
	now.Epoch = e.Epoch // an older export than the epoch is read again
	f.have, f.signs = e, now
	f.epoch.Store(e.Epoch)
	f.o.Log.Info("models read from sie-config", "epoch", e.Epoch, "models", len(e.Models))
	return nil
}

// get reads the JSON of an answer 200. Its errors hold no credential.
func (f *Follower) get(ctx context.Context, path string, limit int64, to any) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base+path, nil)
	if err != nil {
		return err
	}
	if f.o.Token != "" {
		q.Header.Set("Authorization", "Bearer "+f.o.Token)
	}
	resp, err := f.o.Client.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("GET %s: %w", path, err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("GET %s: status %d: %.200s", path, resp.StatusCode, body)
	case int64(len(body)) > limit:
		return fmt.Errorf("GET %s: more than %d bytes", path, limit)
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}
