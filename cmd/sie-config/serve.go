package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/bus"
	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/obs"
)

type serveCmd struct {
	sie.Log     `embed:""`
	sie.Metrics `embed:""`

	Host string `help:"Address to listen on." short:"h" default:"0.0.0.0" env:"SIE_CONFIG_HOST"`
	Port int    `help:"Port to listen on." short:"p" default:"8080" range:"0..65535" env:"SIE_CONFIG_PORT"`

	ModelsDir  string   `help:"Directory of model files. It replaces the built-in models. Read again at SIGHUP." env:"SIE_MODELS_DIR" type:"path"`
	BundlesDir string   `help:"Directory of bundle files. It replaces the built-in bundles. Read again at SIGHUP." env:"SIE_BUNDLES_DIR" type:"path"`
	Models     []string `name:"models" short:"m" help:"What the cluster serves, without it all: an id of the catalog, or a model file (*.yaml), which is added. sie-server models --documents writes one for a directory or a repository. Repeat for several." sep:"," env:"SIE_MODELS"`

	Store   string `name:"store" help:"Where added models and the epoch are kept: a directory, s3://bucket/prefix or gs://bucket/prefix. Without one they are lost at the end." env:"SIE_CONFIG_STORE_DIR"`
	NATSURL string `name:"nats-url" help:"NATS servers, separated by commas, where changes are told. Without one gateways find them by asking." env:"SIE_NATS_URL"`
	bus.Access

	TLSCert      string        `name:"tls-cert" help:"Certificate in PEM, with the chain: serve HTTPS." env:"SIE_TLS_CERT" type:"path"`
	TLSKey       string        `name:"tls-key" help:"Its private key in PEM." env:"SIE_TLS_KEY" type:"path"`
	DrainTimeout time.Duration `help:"Time for running requests after SIGTERM." env:"SIE_DRAIN_TIMEOUT" default:"10s" range:"0s..24h"`
	MaxConns     int           `help:"Open connections." env:"SIE_MAX_CONNS" default:"1024" range:"1..1048576"`
}

// Check returns what is wrong with the tokens and the certificate.
func (c *serveCmd) Check() error {
	_, tokens := tokens(os.LookupEnv)
	_, cert := c.tls(slog.New(slog.DiscardHandler))
	return errors.Join(tokens, cert)
}

// tokens reads who may read from the environment. One that is set but empty is an error, and never
// leads to an open server.
func tokens(lookup func(string) (string, bool)) (t configd.Tokens, err error) {
	for _, x := range []struct {
		name string
		to   *string
	}{{"SIE_CONFIG_READ_TOKEN", &t.Read}, {"SIE_AUTH_TOKEN", &t.Inference}, {"SIE_ADMIN_TOKEN", &t.Admin}} {
		value, set := lookup(x.name)
		if set && strings.TrimSpace(value) == "" {
			err = errors.Join(err, fmt.Errorf(
				"%s is set but empty; set a token, or unset it to serve without it", x.name))
		}
		*x.to = strings.TrimSpace(value)
	}
	for _, name := range []string{"SIE_DEPLOYMENT_ENV", "SIE_ENV"} {
		value, _ := lookup(name)
		switch strings.ToLower(strings.TrimSpace(value)) {
		case "prod", "production":
			t.Production = true
		}
	}
	return t, err
}

// tls returns the TLS configuration, nil without a certificate.
func (c *serveCmd) tls(log *slog.Logger) (*tls.Config, error) {
	if c.TLSCert == "" && c.TLSKey == "" {
		return nil, nil
	}
	return httpd.NewTLS(c.TLSCert, c.TLSKey, "", log)
}

// Run serves until a signal, or until the listener fails.
func (c *serveCmd) Run() error {
	signals, cancel := sie.UntilSignal()
	defer cancel()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	return c.serve(signals, hup, c.Logger(os.Stderr), func(net.Addr) {})
}

// serve serves until ctx ends. It calls ready with the address once it answers.
func (c *serveCmd) serve(
	ctx context.Context, hup <-chan os.Signal, log *slog.Logger, ready func(net.Addr),
) error {
	who, err := tokens(os.LookupEnv)
	if err != nil {
		return err
	}
	secure, err := c.tls(log)
	if err != nil {
		return err
	}
	base, bundles, err := c.builtin(log)
	if err != nil {
		return err
	}
	o := configd.Options{Tokens: who, Options: httpd.Options{
		Product: "sie-config/" + build.Version, Log: log, AccessLog: c.Log.Access, MaxConns: c.MaxConns,
	}}
	series := obs.NewRegistry()
	o.Metrics = configd.NewMetrics(series)
	store, err := c.openStore(ctx, o.Metrics.StoreCalled, log)
	if err != nil {
		return err
	}
	defer store.close()
	o.Ledger = store.ledger
	if c.NATSURL != "" {
		conn, err := c.connect(log)
		if err != nil {
			return err
		}
		defer conn.Close()
		o.Notifier = configd.NATS(conn, producer())
	}
	telemetry, err := c.Telemetry(ctx, "sie-config", build.Version, series, log)
	if err != nil {
		return err
	}
	if telemetry != nil {
		o.Tracer = telemetry.Tracer
		defer func() { // what waits for the collector
			end, cancel := context.WithTimeout(context.Background(), telemetryTime)
			defer cancel()
			if err := telemetry.Close(end); err != nil {
				log.Warn("telemetry", "error", err)
			}
		}()
	}
	s, err := configd.New(o)
	if err != nil {
		return err
	}
	if err := s.Set(base, bundles); err != nil {
		return errors.Join(err, s.Shutdown(ctx))
	}
	l, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: is another server on port %d? Choose one with --port", err, c.Port)
		}
		return errors.Join(err, s.Shutdown(ctx))
	}
	metrics, closeMetrics, err := c.Metrics.Serve(c.Host, series, s.Probes(), log)
	if err != nil {
		return errors.Join(err, l.Close(), s.Shutdown(ctx))
	}
	defer closeMetrics()
	address := l.Addr()
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	files, routable := s.Content().Models()
	log.Info("sie-config", "version", build.Version, "commit", build.Commit, "address", address.String(),
		"models", files, "ids", routable, "tokens", who != (configd.Tokens{Production: who.Production}),
		"tls", secure != nil, "store", store.name, "epoch", store.ledger.State().Epoch,
		"metrics", metrics)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	ready(address)
	looking, stop := context.WithCancel(ctx)
	looked, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		looked <- look(looking, s)
	}()
	err = c.wait(ctx, hup, s, log, served, looked, store.held)
	stop()
	<-ended
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout)
	defer cancel()
	return errors.Join(err, s.Shutdown(end), <-served)
}

// wait returns when ctx ends, with nil, or with what ends the process: that the listener failed, or
// that another process writes to the store.
func (c *serveCmd) wait(
	ctx context.Context, hup <-chan os.Signal, s *configd.Server, log *slog.Logger,
	served chan error, looked, held <-chan error,
) error {
	for {
		select {
		case err := <-served:
			served <- nil
			return err
		case err := <-s.Lost():
			return err
		case err := <-held:
			return err
		case err := <-looked:
			if err != nil {
				return err
			}
			looked = nil // ctx has ended
		case <-hup:
			c.again(s, log)
		case <-ctx.Done():
			return nil
		}
	}
}

// look looks for a change of which the store said nothing, and removes what the store needs no
// more, until ctx ends. The error says that another process writes to the store.
func look(ctx context.Context, s *configd.Server) error {
	s.Tidy(ctx) // what a process that was killed has left
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.Refresh(ctx); err != nil {
			return err
		}
		s.Tidy(ctx)
	}
}

// again reads all files again. If something is wrong with them, what was served before stays.
func (c *serveCmd) again(s *configd.Server, log *slog.Logger) {
	base, bundles, err := c.builtin(log)
	if err == nil {
		err = s.Set(base, bundles)
	}
	if err != nil {
		log.Error("the models were not read again; those of before stay", "error", err)
		return
	}
	files, routable := s.Content().Models()
	log.Info("models read again", "models", files, "ids", routable)
}

// builtin reads the models and bundles that the flags name.
func (c *serveCmd) builtin(log *slog.Logger) (*catalog.Catalog, catalog.Bundles, error) {
	all, err := catalog.Builtin()
	if c.ModelsDir != "" {
		all, err = catalog.LoadDir(c.ModelsDir)
	}
	if err != nil {
		return nil, nil, err
	}
	bundles, err := catalog.BuiltinBundles()
	if c.BundlesDir != "" {
		bundles, err = catalog.LoadBundlesDir(c.BundlesDir)
	}
	if err != nil {
		return nil, nil, err
	}
	if all, err = narrow(all, c.Models); err != nil {
		return nil, nil, err
	}
	for _, w := range all.Warnings() {
		log.Warn("catalog", "problem", w.Error())
	}
	return all, bundles, nil
}

// telemetryTime bounds sending what waits for the collector.
const telemetryTime = 5 * time.Second

// lookEvery is how often sie-config looks at its store.
const lookEvery = 5 * time.Second

// maxDocument bounds a model file; the catalog has a stricter bound.
const maxDocument = 1 << 20

// narrow returns the catalog of what refs name: ids, and model files, which it adds. Without refs
// it is all.
func narrow(all *catalog.Catalog, refs []string) (*catalog.Catalog, error) {
	var ids []string
	for _, ref := range refs {
		ref = strings.TrimSpace(ref)
		if filepath.Ext(ref) != ".yaml" {
			if ref != "" {
				ids = append(ids, ref)
			}
			continue
		}
		m, err := readModel(ref)
		if err != nil {
			return nil, fmt.Errorf("--models %s: %w", ref, err)
		}
		known := slices.ContainsFunc(all.Models(), func(o *catalog.Model) bool { return o.ID == m.ID })
		if known {
			all, err = all.With(m) // such as the same model with its weights in a directory
		} else {
			all, err = catalog.Merge(all, catalog.Document{Name: ref, Source: m.Source()})
		}
		if err != nil {
			return nil, fmt.Errorf("--models %s: %w", ref, err)
		}
		ids = append(ids, m.ID)
	}
	if len(ids) == 0 {
		return all, nil
	}
	some, missing := all.Select(ids)
	if len(missing) > 0 {
		text := fmt.Sprintf("--models %s: not in the catalog", missing[0])
		if near := all.Suggest(missing[0]); len(near) > 0 {
			text += "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return nil, errors.New(text)
	}
	return some, nil
}

func readModel(path string) (*catalog.Model, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case info.Size() > maxDocument:
		return nil, fmt.Errorf("the file has %d bytes; the limit is %d", info.Size(), maxDocument)
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, _, err := catalog.ParseModel(path, src)
	return m, err
}
