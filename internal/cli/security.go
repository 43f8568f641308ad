package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	neturl "net/url"
	"os"
	"strings"

	"github.com/sie-engine/sie/internal/httpd"
)

// Security holds the flags that control access to the server and its TLS.
type Security struct {
	APIKey      []string `name:"api-key" help:"Key that requests must bring, as Authorization: Bearer or X-API-Key; repeat for several. Anybody who may list processes can read it: prefer SIE_API_KEYS (comma-separated) or --api-keys-file. Health, metrics and the static pages need none." sep:"none"`
	APIKeysFile string   `name:"api-keys-file" help:"File of keys, one a line; # begins a comment." env:"SIE_API_KEYS_FILE" type:"path"`

	TLSCert     string   `name:"tls-cert" help:"Certificate in PEM, with the chain: serve HTTPS. Read again when it changes." env:"SIE_TLS_CERT" type:"path"`
	TLSKey      string   `name:"tls-key" help:"Its private key in PEM." env:"SIE_TLS_KEY" type:"path"`
	TLSClientCA string   `name:"tls-client-ca" help:"Serve only clients with a certificate that one of these authorities signed; health probes too." env:"SIE_TLS_CLIENT_CA" type:"path"`
	CORSOrigin  []string `name:"cors-origin" help:"Origin whose scripts may read answers, as https://app.example.com; * for all. Repeat for several." env:"SIE_CORS_ORIGINS" sep:","`
}

// keys returns the keys of flags, environment and file together. A source that is given but holds
// no key is an error, and never leads to an open server.
func (f *Security) keys(lookup func(string) (string, bool)) (*httpd.Keys, error) {
	given := f.APIKey
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
	return httpd.NewKeys(given, f.APIKeysFile)
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
	Keys    *httpd.Keys // nil: requests need no key
	TLS     *tls.Config // nil: no TLS
	Origins []string    // in the form that browsers send
}

// Secure reads keys and certificates and returns all their errors together. A server calls it
// before it opens anything else, so that no error goes unnoticed.
func (f *Security) Secure(log *slog.Logger) (s Secured, err error) {
	var keys, tls, origins error
	s.Keys, keys = f.keys(os.LookupEnv)
	s.TLS, tls = f.tls(log)
	s.Origins, origins = f.origins()
	return s, errors.Join(keys, tls, origins)
}
