package httpd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificates are a server's certificate and the authority its clients must come from, read again when their files change,
// so that a renewed certificate needs no restart. Safe for concurrent use.
type certificates struct {
	cert, key, clientCA string
	log                 *slog.Logger
	every               time.Duration // how often the files are looked at, at most

	mu      sync.Mutex // guards the fields below
	looked  time.Time
	stamps  [3]stamp
	current *tls.Config
}

// stamp tells one version of a file from the next.
type stamp struct {
	modified time.Time
	size     int64
}

// NewTLS returns the configuration of a TLS listener from PEM files. clientCA may be ""; else clients must show a
// certificate that it signed. Files that cannot be read, or do not fit together, are an error now; later the last good ones
// stay in use and log says so.
func NewTLS(cert, key, clientCA string, log *slog.Logger) (*tls.Config, error) {
	if cert == "" || key == "" {
		return nil, errors.New("TLS needs both a certificate and its key: set --tls-cert and --tls-key")
	}
	c := &certificates{cert: cert, key: key, clientCA: clientCA, log: log, every: time.Second}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c.config(), nil
}

func (c *certificates) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.latest(), nil }}
}

// latest returns the configuration of the files as they are now.
func (c *certificates) latest() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < c.every {
		return c.current
	}
	c.looked = time.Now()
	if c.stampsNow() == c.stamps {
		return c.current
	}
	if err := c.loadLocked(); err != nil {
		c.log.Error("TLS files changed but cannot be used; the earlier ones stay", "error", err)
	} else {
		c.log.Info("TLS files changed; new connections use them")
	}
	return c.current
}

func (c *certificates) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = time.Now()
	return c.loadLocked()
}

func (c *certificates) loadLocked() error {
	c.stamps = c.stampsNow() // before the files are read: a change in between is seen next time
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("TLS certificate %s with key %s: %w", c.cert, c.key, err)
	}
	next := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair}}
	if c.clientCA != "" {
		pem, err := os.ReadFile(c.clientCA)
		if err != nil {
			return fmt.Errorf("TLS client authority: %w", err)
		}
		next.ClientCAs, next.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !next.ClientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("TLS client authority: %s holds no certificate in PEM", c.clientCA)
		}
	}
	c.current = next
	return nil
}

func (c *certificates) stampsNow() (out [3]stamp) {
	for i, name := range []string{c.cert, c.key, c.clientCA} {
		if name == "" {
			continue
		}
		if st, err := os.Stat(name); err == nil {
			out[i] = stamp{st.ModTime(), st.Size()}
		}
	}
	return out
}
