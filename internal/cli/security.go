package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	neturl "net/url"
	"os"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/httpd"
	"github.com/sie-engine/sie/internal/tenant"
)

// Security holds the flags that control access to the server and its TLS.
type Security struct {
	APIKey      []string `name:"api-key" help:"Key that requests must bring, as Authorization: Bearer or X-API-Key; repeat for several. Anybody who may list processes can read it: prefer SIE_API_KEYS (comma-separated) or --api-keys-file. Health and the static pages need none; metrics do, but on --metrics-port." sep:"none"`
	APIKeysFile string   `name:"api-keys-file" help:"File of keys, one a line; # begins a comment." env:"SIE_API_KEYS_FILE" type:"path"`
	TokensFile  string   `name:"tokens-file" help:"File of tokens with names, roles, pools, models and quotas, in YAML (docs/tenants.md). Read again when it changes; a file that cannot be used leaves the earlier one in force." env:"SIE_AUTH_TOKENS_FILE" type:"path"`
	AuthMode    string   `help:"none, static or token: whether requests need a key. Default: they do if there is one." env:"SIE_AUTH_MODE"`

	TLSCert     string   `name:"tls-cert" help:"Certificate in PEM, with the chain: serve HTTPS. Read again when it changes." env:"SIE_TLS_CERT" type:"path"`
	TLSKey      string   `name:"tls-key" help:"Its private key in PEM." env:"SIE_TLS_KEY" type:"path"`
	TLSClientCA string   `name:"tls-client-ca" help:"Serve only clients with a certificate that one of these authorities signed; health probes too." env:"SIE_TLS_CLIENT_CA" type:"path"`
	CORSOrigin  []string `name:"cors-origin" help:"Origin whose scripts may read answers, as https://app.example.com; * for all. Repeat for several." env:"SIE_CORS_ORIGINS" sep:","`
}

// access returns the keys of flags, environment and files together. The variables of the reference
// name keys too. It fails closed: a source that is given but holds no key, an unknown mode, and a
// mode that contradicts the keys are errors, and never lead to an open server.
func (f *Security) access(lookup func(string) (string, bool), log *slog.Logger) (*tenant.Access, error) {
	given := slices.Clone(f.APIKey)
	for _, name := range []string{"SIE_AUTH_TOKENS", "SIE_AUTH_TOKEN"} {
		list, ok := lookup(name)
		if !ok {
			continue
		}
		before := len(given)
		for token := range strings.SplitSeq(list, ",") {
			if token = strings.TrimSpace(token); token != "" {
				given = append(given, token)
			}
		}
		if len(given) == before && f.AuthMode != "none" {
			return nil, fmt.Errorf("%s is set but holds no token; set one, or unset it "+
				"or set SIE_AUTH_MODE to none to serve everybody", name)
		}
	}
	if list, ok := lookup("SIE_API_KEYS"); ok {
		before := len(given)
		for key := range strings.FieldsFuncSeq(list,
			func(r rune) bool { return r == ',' || r == '\n' || r == ' ' }) {
			given = append(given, key)
		}
		if len(given) == before {
			return nil, errors.New(
				"SIE_API_KEYS is set but holds no key; set one, or unset it to serve everybody")
		}
	}
	a, err := tenant.Open(
		tenant.Options{Keys: given, KeysFile: f.APIKeysFile, File: f.TokensFile, Log: log})
	if err != nil {
		return nil, err
	}
	if err := f.checkMode(a != nil); err != nil {
		return nil, err
	}
	return a, nil
}

// checkMode returns why the mode does not fit a server that has keys, or has none.
func (f *Security) checkMode(keys bool) error {
	switch f.AuthMode {
	case "":
	case "none":
		if keys {
			return errors.New("SIE_AUTH_MODE is none, but there are keys: remove one of them")
		}
	case "static", "token":
		if !keys {
			return fmt.Errorf("SIE_AUTH_MODE is %s, but there is no key: set SIE_AUTH_TOKENS, SIE_API_KEYS or "+
				"SIE_AUTH_TOKENS_FILE", f.AuthMode)
		}
	default:
		return fmt.Errorf("SIE_AUTH_MODE is %q; use none, static or token", f.AuthMode)
	}
	return nil
}

// tls returns the TLS configuration, nil without a certificate.
func (f *Security) tls(log *slog.Logger) (*tls.Config, error) {
	if f.TLSCert == "" && f.TLSKey == "" {
		if f.TLSClientCA != "" {
			return nil, errors.New("--tls-client-ca needs --tls-cert and --tls-key")
		}
		return nil, nil
	}
	return httpd.NewTLS(f.TLSCert, f.TLSKey, f.TLSClientCA, log)
}

// origins returns the allowed origins in the form that browsers send.
func (f *Security) origins() ([]string, error) {
	out := make([]string, 0, len(f.CORSOrigin))
	var problems []error
	for _, o := range f.CORSOrigin {
		o = strings.TrimSuffix(strings.TrimSpace(o), "/")
		u, err := neturl.Parse(o)
		if o != "*" && o != "null" &&
			(err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "") {
			problems = append(problems, fmt.Errorf(
				"--cors-origin %q is no origin: write scheme://host or scheme://host:port, or *", o))
		}
		out = append(out, strings.ToLower(o))
	}
	return out, errors.Join(problems...)
}

// Secured holds the results of the flags of Security.
type Secured struct {
	Access  *tenant.Access // nil: requests need no key
	TLS     *tls.Config    // nil: no TLS
	Origins []string       // in the form that browsers send
}

// Secure reads keys and certificates and returns all their errors together. A server calls it
// before it opens anything else, so that no error goes unnoticed.
func (f *Security) Secure(log *slog.Logger) (s Secured, err error) {
	var keys, tls, origins error
	s.Access, keys = f.access(os.LookupEnv, log)
	s.TLS, tls = f.tls(log)
	s.Origins, origins = f.origins()
	return s, errors.Join(keys, tls, origins)
}
