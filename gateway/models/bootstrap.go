package models

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/configpoll"
)

// degradedAfter is how many failures in a row count as long.
const degradedAfter = 10

// BootstrapOptions configures a Bootstrap.
type BootstrapOptions struct {
	URL    string // of sie-config: http or https
	Token  string // "": none
	Log    *slog.Logger
	Client *http.Client // nil: one of its own

	Every time.Duration // between two questions; 0: configpoll.PollEvery
}

// Bootstrap keeps a Registry equal to what sie-config has. What it installed last stays while
// sie-config is away.
type Bootstrap struct {
	client   *configpoll.Client
	mirror   *configpoll.Mirror[exported]
	kept     map[string]exported // the models that were read last, by id
	poller   *configpoll.Poller
	log      *slog.Logger
	registry *Registry

	failures atomic.Uint64
	inARow   atomic.Int64
	deltas   configpoll.Deltas
}

// NewBootstrap returns a Bootstrap of r, or what is wrong with the options.
func NewBootstrap(o BootstrapOptions, r *Registry) (*Bootstrap, error) {
	client, err := configpoll.NewClient(o.URL, o.Token, o.Client)
	if err != nil {
		return nil, err
	}
	return &Bootstrap{client: client, mirror: configpoll.NewMirror(client, readExported),
		poller: configpoll.NewPoller(o.Every), log: o.Log, registry: r}, nil
}

// Failures returns how often sie-config could not be read, and whether it has not been for long.
func (b *Bootstrap) Failures() (n uint64, degraded bool) {
	return b.failures.Load(), b.inARow.Load() >= degradedAfter
}

// Run reads everything from sie-config, and again when it has changed, until ctx ends. When it asks
// is configpoll.Poller.Run's.
func (b *Bootstrap) Run(ctx context.Context) {
	b.poller.Run(ctx, func(ctx context.Context) error {
		err := b.once(ctx)
		if err == nil {
			b.inARow.Store(0)
		}
		return err
	}, func(err error, retry time.Duration) {
		b.failures.Add(1)
		log := b.log.Warn
		if b.inARow.Add(1) >= degradedAfter {
			log = b.log.Error
		}
		log("the models could not be read from sie-config; those of before stay", "error", err, "retry", retry)
	})
}

// once asks sie-config what it has, and installs it unless the registry has it already.
func (b *Bootstrap) once(ctx context.Context) error {
	remote, err := b.epoch(ctx) // before the bundles, so that a change meanwhile is seen by the next poll
	if err != nil {
		return err
	}
	if has, ok := b.registry.Version(); ok && has == remote {
		return nil
	}
	bundles := b.registry.bundles()
	if bundles.Hash() != remote.BundlesHash {
		if bundles, err = b.bundles(ctx); err != nil {
			return err
		}
	}
	all, exported, err := b.mirror.Read(ctx)
	if err != nil {
		return err
	}
	models, said, broken := b.readable(exported)
	c, err := catalog.Union(models...)
	if err != nil {
		return err
	}
	version := remote
	version.Epoch, version.Partial = all.Epoch, broken != nil
	b.registry.SetSaid(c, bundles, version, said)
	b.log.Info("models read from sie-config", "epoch", version.Epoch, "models", c.Len(),
		"bundles", len(bundles))
	return broken
}

// readable returns the models of an export and the hashes of their documents. One that cannot be
// read keeps its earlier content and hash; broken then says what is wrong with it.
func (b *Bootstrap) readable(
	all []exported,
) (out []*catalog.Catalog, said map[string]string, broken error) {
	kept, said := make(map[string]exported, len(all)), make(map[string]string, len(all))
	for _, x := range all {
		if _, twice := kept[x.id]; twice {
			broken = errors.Join(broken, fmt.Errorf("model %q is exported twice", clip(x.id)))
			continue
		}
		if x.err != nil {
			broken = errors.Join(broken, x.err)
			x.one, x.said = b.kept[x.id].one, b.kept[x.id].said
		}
		kept[x.id] = x
		if x.one != nil {
			out = append(out, x.one)
			said[x.id] = x.said
		}
	}
	b.kept = kept
	return out, said, broken
}
