package control

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/configpoll"
)

// Options configures a Follower.
type Options struct {
	URL     string // of sie-config, or of a gateway: http or https
	Token   string // for reading the export; "": none
	Bundle  string
	Trusted []string // producers of deltas: their names, or what they begin with before a dash
	Log     *slog.Logger
	Client  *http.Client // nil: one of its own

	Every time.Duration // between two questions; 0: configpoll.PollEvery

	// Read is called after each question that was answered, on the goroutine of Run, with what
	// sie-config has and when the question began. The Export is the same pointer until it changes.
	Read func(e *Export, asked time.Time)
}

// Follower keeps asking sie-config what it has.
type Follower struct {
	o      Options
	client *configpoll.Client
	mirror *configpoll.Mirror[exported]
	poller *configpoll.Poller
	deltas configpoll.Deltas

	have   *Export // nil: nothing was read
	signs  signs   // of have
	broken string  // the last error that was logged

	failures, epoch atomic.Uint64
	failing         atomic.Bool
}

// signs tell one configuration from another.
type signs struct {
	Epoch   uint64 `json:"epoch"`
	Bundles string `json:"bundles_hash"`
	Configs string `json:"bundle_config_hashes_hash"`
	Models  string `json:"models_hash"` // of all documents; "" where sie-config does not say
}

// New returns a Follower, or what is wrong with the options.
func New(o Options) (*Follower, error) {
	client, err := configpoll.NewClient(o.URL, o.Token, o.Client)
	if err != nil {
		return nil, err
	}
	return &Follower{o: o, client: client, mirror: configpoll.NewMirror(client, readExported),
		poller: configpoll.NewPoller(o.Every)}, nil
}

// Ask has the Follower ask soon. It returns at once, and many calls cause one question.
func (f *Follower) Ask() { f.poller.Ask() }

// Listen has a trusted producer's deltas call Ask. It returns what ends that.
func (f *Follower) Listen(conn *nats.Conn) (*nats.Subscription, error) {
	return conn.Subscribe(bus.ConfigPrefix+f.o.Bundle, f.hear)
}

func (f *Follower) hear(m *nats.Msg) {
	if f.deltas.Hear(m, f.o.Trusted, f.o.Log) {
		f.Ask()
	}
}

// Run asks until ctx ends, as configpoll.Poller.Run does.
func (f *Follower) Run(ctx context.Context) {
	f.poller.Run(ctx, func(ctx context.Context) error {
		asked := time.Now()
		if err := f.once(ctx); err != nil {
			return err
		}
		f.failing.Store(false)
		f.broken = ""
		f.o.Read(f.have, asked)
		return nil
	}, func(err error, retry time.Duration) {
		f.failing.Store(true)
		f.failures.Add(1)
		if text := err.Error(); text != f.broken {
			f.broken = text
			f.o.Log.Warn("the models could not be read from sie-config; this worker serves what it knows",
				"error", err, "retry", retry)
		}
	})
}

// once asks what sie-config has, and reads it unless it is known.
func (f *Follower) once(ctx context.Context) error {
	var now signs // asked first, so that a change meanwhile is seen by the next question
	if err := f.client.GetJSON(ctx, "/v1/configs/epoch", configpoll.MaxAnswer, &now); err != nil {
		return err
	}
	if now.Bundles == "" {
		return errors.New("sie-config has no bundles yet")
	}
	if f.have != nil && f.signs == now {
		return nil
	}
	all, models, err := f.mirror.Read(ctx)
	if err != nil {
		return err
	}
	e, err := exportOf(f.o.Bundle, all, models)
	if err != nil {
		return err
	}
	now.Epoch = e.Epoch // an older export than the epoch is read again
	f.have, f.signs = e, now
	f.epoch.Store(e.Epoch)
	f.o.Log.Info("models read from sie-config", "epoch", e.Epoch, "models", len(e.Models))
	return nil
}
