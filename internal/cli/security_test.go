package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestKeysFailClosed(t *testing.T) {
	dir := t.TempDir()
	empty, full := filepath.Join(dir, "empty"), filepath.Join(dir, "full")
	for name, text := range map[string]string{empty: "# none yet\n\n", full: "one # the first\n two \n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		flags []string
		file  string
		env   string // "-": not set
		open  bool
		err   string
	}{
		{nil, "", "-", true, ""},
		{[]string{"a"}, "", "-", false, ""},
		{nil, full, "-", false, ""},
		{nil, "", "a, b", false, ""},
		{nil, "", "", false, "SIE_API_KEYS is set but holds no key"},
		{[]string{"a"}, "", " ,", false, "SIE_API_KEYS is set but holds no key"},
		{nil, empty, "-", false, "holds no key"},
		{[]string{"a"}, empty, "-", false, "holds no key"},
		{nil, filepath.Join(dir, "none"), "-", false, "no such file"},
		{nil, dir, "-", false, "directory"},
		{[]string{""}, "", "-", false, "it is empty"},
		{[]string{"a b"}, "", "-", false, "not visible ASCII"},
		{[]string{strings.Repeat("k", 513)}, "", "-", false, "longer than 512"},
	} {
		f := Security{APIKey: c.flags, APIKeysFile: c.file}
		k, err := f.access(func(name string) (string, bool) {
			return c.env, c.env != "-" && name == "SIE_API_KEYS"
		}, slog.Default())
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil && (k == nil) != c.open {
			t.Errorf("%+v: open %v", c, k == nil)
		}
		if err != nil && k != nil {
			t.Errorf("%+v: keys and an error", c)
		}
	}
}

func TestTLSFlags(t *testing.T) {
	for _, f := range []Security{
		{TLSCert: "x"}, {TLSKey: "x"}, {TLSClientCA: "x"}, {TLSCert: "none", TLSKey: "none"},
	} {
		if _, err := f.tls(slog.Default()); err == nil {
			t.Errorf("%+v: no error", f)
		}
	}
	if c, err := (&Security{}).tls(slog.Default()); c != nil || err != nil {
		t.Errorf("%v, %v", c, err)
	}
}

func TestOrigins(t *testing.T) {
	got, err := (&Security{
		CORSOrigin: []string{"https://App.example.com/", "*", "http://localhost:3000"},
	}).origins()
	if err != nil || !slices.Equal(got, []string{"https://app.example.com", "*", "http://localhost:3000"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"example.com", "https://a/b", "https://", ""} {
		if _, err := (&Security{CORSOrigin: []string{bad}}).origins(); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
