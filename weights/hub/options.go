package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/weights/bucket"
)

// DefaultEndpoint is the hub's URL when HF_ENDPOINT is not set.
const DefaultEndpoint = "https://huggingface.co"

// Options configures a Resolver. Every field but CacheDir has a usable zero value.
type Options struct {
	// CacheDir is the root of the cache: the directory that holds models--org--name folders.
	CacheDir string
	// Endpoint is the base URL of the hub, with a path where a mirror has one. Default
	// DefaultEndpoint.
	Endpoint string
	// Token is sent to the endpoint as a bearer token, and never to another origin. Empty:
	// anonymous.
	Token string
	// Offline turns downloads from the hub off. Local directories and complete cached snapshots
	// still resolve, and so do models in the Bucket, if there is one.
	Offline bool

	// MaxFiles, MaxFileBytes and MaxTotalBytes bound the download of one model. Defaults: 2,000
	// files, 100 GiB a file and 400 GiB in all, several times the largest models this server runs.
	MaxFiles      int
	MaxFileBytes  int64
	MaxTotalBytes int64
	// Parallel is the number of files downloaded at once. Default 4, which fills a 10 Gbit/s line
	// at the hub's speed per connection without burdening the hub.
	Parallel int
	// Attempts is the number of tries in a row that may fail without receiving new bytes. Default
	// 6; the waits between them are 8 to 16 s in all.
	Attempts int
	// StallTimeout ends a request when nothing arrives for this long. The request is then tried
	// again. Default 30 s.
	StallTimeout time.Duration

	// Bucket is the cluster's shared storage, or nil for none. It is asked after the disk and
	// before the hub. Models that come from the hub are uploaded to it.
	Bucket bucket.Bucket
	// DiskThreshold is the used fraction of the disk, 0.85 for 85 %, above which a download first
	// removes the models used longest ago. 0 removes none.
	DiskThreshold float64
	// Log receives events that no caller waits for: models removed from the disk, failures of the
	// bucket. Default slog.Default().
	Log *slog.Logger

	// Progress, if set, receives the state of a download: at each change of stage, and at most ten
	// times a second between. It is called from the goroutines of Resolve, one call at a time for
	// each Resolve. It must return quickly.
	Progress func(Progress)
	// UserAgent is the product token of requests. Default "sie-server".
	UserAgent string
	// Transport replaces the HTTP transport. The default obeys HTTPS_PROXY, HTTP_PROXY and
	// NO_PROXY.
	Transport http.RoundTripper
}

// OptionsFromEnv reads the environment through lookup (os.LookupEnv):
//
//   - cache: SIE_LOCAL_CACHE, else HF_HUB_CACHE (or HUGGINGFACE_HUB_CACHE), else HF_HOME/hub, where
//     HF_HOME defaults to XDG_CACHE_HOME/huggingface and that to ~/.cache/huggingface
//   - token: HF_TOKEN (or HUGGING_FACE_HUB_TOKEN), else, unless HF_HUB_DISABLE_IMPLICIT_TOKEN is
//     on, the file HF_TOKEN_PATH or HF_HOME/token that `hf auth login` writes
//   - endpoint: HF_ENDPOINT
//   - offline: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE on, or SIE_HF_FALLBACK off
//
// An empty variable counts as unset. The error names each variable whose value is not understood, a
// token file that cannot be read, and a missing place for the cache.
func OptionsFromEnv(lookup func(name string) (string, bool)) (Options, error) {
	first := func(names ...string) string {
		for _, name := range names {
			if value, _ := lookup(name); value != "" {
				return value
			}
		}
		return ""
	}
	var problems []error
	on := func(name string, unset bool) bool {
		switch value := first(name); strings.ToLower(value) {
		case "":
			return unset
		case "1", "true", "yes", "on":
			return true
		case "0", "false", "no", "off":
			return false
		default:
			problems = append(problems, fmt.Errorf("%s=%q: want 1 or 0", name, value))
			return unset
		}
	}
	home := first("HOME")
	expand := func(path string) string {
		if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
			return filepath.Join(home, rest)
		}
		return path
	}

	hfHome := expand(first("HF_HOME"))
	if hfHome == "" {
		base := expand(first("XDG_CACHE_HOME"))
		if base == "" && home != "" {
			base = filepath.Join(home, ".cache")
		}
		if base != "" {
			hfHome = filepath.Join(base, "huggingface")
		}
	}
	options := Options{
		CacheDir: expand(first("SIE_LOCAL_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")),
		Endpoint: first("HF_ENDPOINT"),
		Token:    strings.TrimSpace(first("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")),
	}
	// Read every variable, so that each wrong value is reported.
	hubOffline, transformersOffline := on("HF_HUB_OFFLINE", false), on("TRANSFORMERS_OFFLINE", false)
	options.Offline = !on("SIE_HF_FALLBACK", true) || hubOffline || transformersOffline
	if options.CacheDir == "" && hfHome != "" {
		options.CacheDir = filepath.Join(hfHome, "hub")
	}
	if options.CacheDir == "" {
		problems = append(problems, errors.New("no place for the model cache: set SIE_LOCAL_CACHE or HOME"))
	}
	if options.Token == "" && !on("HF_HUB_DISABLE_IMPLICIT_TOKEN", false) {
		path := expand(first("HF_TOKEN_PATH"))
		if path == "" && hfHome != "" {
			path = filepath.Join(hfHome, "token")
		}
		if raw, err := readToken(path); err == nil {
			options.Token = strings.TrimSpace(string(raw))
		} else if !errors.Is(err, os.ErrNotExist) && path != "" {
			problems = append(problems, fmt.Errorf("token file: %w", err))
		}
	}
	return options, errors.Join(problems...)
}

const maxTokenBytes = 4096

// readToken reads the file that holds the hub's token. The file may be a pipe, because the operator
// names it.
func readToken(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return files.ReadAll(f, maxTokenBytes)
}

// withDefaults fills the zero fields.
func (o Options) withDefaults() Options {
	def := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	def64 := func(field *int64, value int64) {
		if *field == 0 {
			*field = value
		}
	}
	def(&o.MaxFiles, 2000)
	def(&o.Parallel, 4)
	def(&o.Attempts, 6)
	def64(&o.MaxFileBytes, 100<<30)
	def64(&o.MaxTotalBytes, 400<<30)
	def64((*int64)(&o.StallTimeout), int64(30*time.Second))
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.UserAgent == "" {
		o.UserAgent = "sie-server"
	}
	return o
}

// validate returns the parsed endpoint and an error that names every wrong option.
func (o Options) validate() (*url.URL, error) {
	var problems []error
	if o.CacheDir == "" {
		problems = append(problems, errors.New("CacheDir: must be set"))
	}
	endpoint, err := url.Parse(o.Endpoint)
	switch {
	case err != nil:
		// Its value may hold a password, and where that would begin is not known.
		problems = append(problems,
			fmt.Errorf("HF_ENDPOINT: not a URL; want one such as %s", DefaultEndpoint))
	case endpoint.Scheme != "https" && endpoint.Scheme != "http" || endpoint.Host == "" ||
		endpoint.RawQuery != "" || endpoint.Fragment != "":
		problems = append(problems,
			fmt.Errorf("HF_ENDPOINT %q: want a URL such as %s", endpoint.Redacted(), DefaultEndpoint))
	}
	for _, c := range []byte(o.Token) {
		if c <= ' ' || c >= 0x7f {
			problems = append(problems,
				errors.New("HF_TOKEN: holds a space or a character that no token has; copy it again"))
			break
		}
	}
	if len(o.Token) > maxTokenBytes {
		problems = append(problems, fmt.Errorf("HF_TOKEN: longer than %d bytes", maxTokenBytes))
	}
	for name, value := range map[string]int64{
		"MaxFiles":      int64(o.MaxFiles),
		"MaxFileBytes":  o.MaxFileBytes,
		"MaxTotalBytes": o.MaxTotalBytes,
		"Parallel":      int64(o.Parallel),
		"Attempts":      int64(o.Attempts),
		"StallTimeout":  int64(o.StallTimeout),
	} {
		if value < 0 {
			problems = append(problems, fmt.Errorf("%s: must not be negative", name))
		}
	}
	if o.DiskThreshold < 0 || o.DiskThreshold >= 1 {
		problems = append(problems,
			fmt.Errorf("DiskThreshold: must be at least 0 and below 1, got %v", o.DiskThreshold))
	}
	return endpoint, errors.Join(problems...)
}
