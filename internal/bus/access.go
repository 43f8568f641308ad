package bus

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Access says who a component is to the broker, and whose certificates it trusts. It is the same
// flags and variables for every component. Files are read again at each new connection, so that
// they may be renewed. A connection is encrypted where the URL says tls://, the broker asks for it,
// or CA or Cert is given.
type Access struct {
	User     string `name:"nats-user" help:"User for NATS; with SIE_NATS_PASSWORD." env:"SIE_NATS_USER"`
	Password string `name:"nats-password" help:"Its password. Anybody who may list processes can read a flag: prefer the variable." env:"SIE_NATS_PASSWORD"`
	Token    string `name:"nats-token" help:"Token for NATS, in place of a user. Prefer the variable." env:"SIE_NATS_TOKEN"`
	Creds    string `name:"nats-creds" help:"File of a user's JWT and seed (.creds, as nsc writes it), in place of a user." env:"SIE_NATS_CREDS"`
	CA       string `name:"nats-ca" help:"File of the authorities (PEM) that sign NATS's certificates, in place of the system's." env:"SIE_NATS_CA"`
	Cert     string `name:"nats-cert" help:"File of this client's certificate (PEM) for NATS; with SIE_NATS_KEY." env:"SIE_NATS_CERT"`
	Key      string `name:"nats-key" help:"File of its private key (PEM)." env:"SIE_NATS_KEY"`
}

// Environ returns the variables that give a process this access, and no other.
func (a *Access) Environ() []string {
	return []string{
		"SIE_NATS_USER=" + a.User, "SIE_NATS_PASSWORD=" + a.Password, "SIE_NATS_TOKEN=" + a.Token,
		"SIE_NATS_CREDS=" + a.Creds, "SIE_NATS_CA=" + a.CA, "SIE_NATS_CERT=" + a.Cert,
		"SIE_NATS_KEY=" + a.Key,
	}
}

// ClientOptions returns what nats.go needs, and all that is wrong. Errors name variables and files,
// and never what is in them.
func (a *Access) ClientOptions() ([]nats.Option, error) {
	var all []error
	var out []nats.Option
	if (a.User == "") != (a.Password == "") {
		all = append(all, errors.New("give both SIE_NATS_USER and SIE_NATS_PASSWORD, or neither"))
	}
	given := 0
	for _, s := range []string{a.User + a.Password, a.Token, a.Creds} {
		if s != "" {
			given++
		}
	}
	if given > 1 {
		all = append(all, errors.New("give one of SIE_NATS_USER, SIE_NATS_TOKEN and SIE_NATS_CREDS"))
	}
	if a.User != "" {
		out = append(out, nats.UserInfo(a.User, a.Password))
	}
	if a.Token != "" {
		out = append(out, nats.Token(a.Token))
	}
	if a.Creds != "" {
		all = append(all, checkCreds(a.Creds))
		out = append(out, nats.UserCredentials(a.Creds))
	}
	if a.CA != "" {
		_, err := roots(a.CA)
		all = append(all, err)
		out = append(out, secure, func(o *nats.Options) error {
			o.RootCAsCB = func() (*x509.CertPool, error) { return roots(a.CA) }
			return nil
		})
	}
	switch {
	case (a.Cert == "") != (a.Key == ""):
		all = append(all, errors.New("give both SIE_NATS_CERT and SIE_NATS_KEY, or neither"))
	case a.Cert != "":
		_, err := pair(a.Cert, a.Key)
		all = append(all, err)
		out = append(out, secure, func(o *nats.Options) error {
			o.TLSCertCB = func() (tls.Certificate, error) { return pair(a.Cert, a.Key) }
			return nil
		})
	}
	return out, errors.Join(all...)
}

// secure makes a connection encrypted.
func secure(o *nats.Options) error {
	o.Secure = true
	if o.TLSConfig == nil {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return nil
}

// maxAccessFile bounds the files of an Access in bytes.
const maxAccessFile = 1 << 20

// read returns a file of an Access, whose variable errors name.
func read(variable, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxAccessFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", variable, err)
	case len(b) > maxAccessFile:
		return nil, fmt.Errorf("%s: %s has more than %d bytes", variable, path, maxAccessFile)
	}
	return b, nil
}

func roots(path string) (*x509.CertPool, error) {
	b, err := read("SIE_NATS_CA", path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("SIE_NATS_CA: %s has no certificate in PEM", path)
	}
	return pool, nil
}

func pair(cert, key string) (tls.Certificate, error) {
	c, err := read("SIE_NATS_CERT", cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	k, err := read("SIE_NATS_KEY", key)
	if err != nil {
		return tls.Certificate{}, err
	}
	out, err := tls.X509KeyPair(c, k)
	if err != nil {
		return out, fmt.Errorf("SIE_NATS_CERT %s and SIE_NATS_KEY %s: %w", cert, key, err)
	}
	return out, nil
}

func checkCreds(path string) error {
	b, err := read("SIE_NATS_CREDS", path)
	if err != nil {
		return err
	}
	if token, err := nkeys.ParseDecoratedJWT(b); err != nil || strings.Count(token, ".") != 2 {
		return fmt.Errorf("SIE_NATS_CREDS: %s has no JWT of a user", path)
	}
	seed, err := nkeys.ParseDecoratedUserNKey(b)
	if err != nil {
		return fmt.Errorf("SIE_NATS_CREDS: %s has no seed of a user", path)
	}
	seed.Wipe()
	return nil
}

// checkURLs refuses addresses that are none. They may hold passwords, which errors do not tell.
func checkURLs(list string) error {
	for s := range strings.SplitSeq(list, ",") {
		s = strings.TrimSpace(s)
		if s != "" && !strings.Contains(s, "://") {
			s = "nats://" + s // as nats.go reads it
		}
		u, err := url.Parse(s)
		var wrong *url.Error
		if errors.As(err, &wrong) && u == nil {
			return errors.New("SIE_NATS_URL: an address in it cannot be read; write nats://host:port or tls://host:port, " +
				"and escape special characters of a password")
		}
		if err != nil || u.Hostname() == "" {
			return errors.New("SIE_NATS_URL: an address in it has no host; write nats://host:port or tls://host:port")
		}
	}
	return nil
}

// Redacted returns addresses without the users and passwords in them, for messages.
func Redacted(list string) string {
	var out []string
	for s := range strings.SplitSeq(list, ",") {
		scheme, rest, found := strings.Cut(s, "://")
		if !found {
			scheme, rest = "", s
		} else {
			scheme += "://"
		}
		out = append(out, scheme+rest[strings.LastIndexByte(rest, '@')+1:])
	}
	return strings.Join(out, ",")
}
