package broker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/sie-engine/sie/internal/files"
)

// File configures a server by a file in NATS's own format. The server reads it again, and the
// certificates and passwords with it, when one of them changes.
type File struct {
	Path      string // of the configuration; it must not include others
	Passwords string // directory with a file for each password, as a Secret is mounted; "": none
	LameDuck  time.Duration
	Log       *slog.Logger
}

// maxConfig bounds the configuration and each password's file in bytes.
const maxConfig = 1 << 20

// reference is a variable of a password: $sie_gateway_password is what the file gateway holds.
var reference = regexp.MustCompile(`\$sie_([a-z]+)_password\b`)

// Open returns a server as f says. It opens no port before Run.
func Open(f File) (*Server, error) {
	o, err := f.Options()
	if err != nil {
		return nil, err
	}
	n, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("NATS: --config %s: %w", f.Path, err)
	}
	s := &Server{nats: n, fatal: make(chan string, 1), cluster: o.Cluster.Name != "", file: &f}
	n.SetLogger(logger{f.Log, s.fatal}, o.Debug, o.Trace)
	return s, nil
}

// Options reads the configuration. Errors name files and variables, and no password.
func (f *File) Options() (*server.Options, error) {
	text, err := f.text()
	if err != nil {
		return nil, err
	}
	o := &server.Options{}
	if err := o.ProcessConfigString(text); err != nil {
		return nil, fmt.Errorf("--config %s: %w", f.Path, err)
	}
	o.NoSigs, o.DisableJetStreamBanner = true, true
	o.LameDuckDuration, o.LameDuckGracePeriod = cmp.Or(f.LameDuck, lameDuck), lameDuckGrace
	for _, r := range o.Routes { // NATS asks them for a user, and does not take its cluster's own
		if r.User == nil && o.Cluster.Username != "" {
			r.User = url.UserPassword(o.Cluster.Username, o.Cluster.Password)
		}
	}
	return o, nil
}

// text returns the configuration behind the passwords that it refers to. They stand behind it on
// one line each, so that NATS counts its lines right.
func (f *File) text() (string, error) {
	b, err := files.Read(f.Path, maxConfig)
	if err != nil {
		return "", fmt.Errorf("--config: %w", err)
	}
	text := string(b)
	var defined strings.Builder
	var all []error
	for _, name := range f.names(text) {
		if f.Passwords == "" {
			all = append(all, fmt.Errorf("--config %s uses $sie_%s_password: "+
				"name the directory of passwords with --passwords", f.Path, name))
			continue
		}
		quoted, err := readPassword(filepath.Join(f.Passwords, name))
		all = append(all, err)
		fmt.Fprintf(&defined, "sie_%s_password: %s; ", name, quoted)
	}
	return defined.String() + text, errors.Join(all...)
}

// names returns whose passwords a configuration refers to.
func (f *File) names(text string) (out []string) {
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(out, m[1]) {
			out = append(out, m[1])
		}
	}
	return out
}

// minPassword is the least length of a password in bytes.
const minPassword = 16

// password matches a text that NATS can read as nothing else.
var password = regexp.MustCompile(`^[-A-Za-z0-9._~+/=]+$`)

// readPassword returns a password as a string of NATS's format.
func readPassword(path string) (string, error) {
	b, err := files.Read(path, maxConfig)
	if err != nil {
		return "", fmt.Errorf("--passwords: %w", err)
	}
	text := strings.TrimRight(string(b), "\r\n")
	if len(text) < minPassword {
		return "", fmt.Errorf("--passwords: %s has fewer than %d characters", path, minPassword)
	}
	if !password.MatchString(text) {
		return "", fmt.Errorf("--passwords: %s has a character that is none of A-Z a-z 0-9 - . _ ~ + / =",
			path)
	}
	return `"` + text + `"`, nil
}

// stamp distinguishes the versions of a file.
type stamp struct {
	modified time.Time
	size     int64
}

// stamps returns the versions of all files that the configuration depends on. Where the
// configuration cannot be read, those of the others are left out.
func (f *File) stamps() map[string]stamp {
	out := map[string]stamp{}
	look := func(path string) {
		if st, err := os.Stat(path); err == nil {
			out[path] = stamp{st.ModTime(), st.Size()}
		}
	}
	look(f.Path)
	b, err := files.Read(f.Path, maxConfig)
	if err != nil {
		return out
	}
	for _, name := range f.names(string(b)) {
		look(filepath.Join(f.Passwords, name))
	}
	text, err := f.text()
	if err != nil {
		return out
	}
	if m, err := conf.Parse(text); err == nil {
		for _, path := range pems(m) {
			look(path)
		}
	}
	return out
}

// pems returns the files of certificates and keys that a configuration names.
func pems(v any) (out []string) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			path, is := value.(string)
			if is && slices.Contains([]string{"cert_file", "key_file", "ca_file"}, name) {
				out = append(out, path)
			}
			out = append(out, pems(value)...)
		}
	case []any:
		for _, value := range v {
			out = append(out, pems(value)...)
		}
	}
	return out
}

// lookEvery is the time between two looks at the files of a File.
const lookEvery = time.Second

// again makes the server take what its files say now. What it had before stays where they cannot be
// used: a certificate that does not fit its key yet, a setting that needs a new start.
func (s *Server) again() {
	o, err := s.file.Options()
	if err == nil {
		err = s.nats.ReloadOptions(o)
	}
	if err != nil {
		s.file.Log.Error("the configuration of NATS changed but cannot be used; the earlier one stays",
			"error", err)
		return
	}
	s.file.Log.Info("the configuration of NATS is read again")
}
