package hub

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/weights/hub/hubtest"
)

func anonymous(o *Options) { o.Token = "" }

// TestRefusals: each kind of refusal by the hub has its own error, which names the fix, and is not
// retried.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(m *hubtest.Model)
		change  func(*Options)
		id      string
		class   Class
		texts   []string
	}{
		"gated, no token": {func(m *hubtest.Model) { m.Token, m.Gated = "hf_x", true }, anonymous, modelID,
			ClassGated, []string{"accept its licence at http", modelID, "set HF_TOKEN"}},
		"gated, no access": {func(m *hubtest.Model) { m.Token, m.Gated = "hf_x", true }, nil, modelID,
			ClassGated, []string{"the account of HF_TOKEN has no access yet", "accept its licence at http"}},
		"private, no token": {func(m *hubtest.Model) { m.Token = "hf_x" }, anonymous, modelID, ClassNotFound,
			[]string{"does not exist", "or is private", "check the spelling", "set HF_TOKEN"}},
		"missing, no token": {nil, anonymous, "org/absent", ClassNotFound,
			[]string{`"org/absent"`, "does not exist", "or is private"}},
		"missing, token": {nil, nil, "org/absent", ClassNotFound,
			[]string{"does not exist", "HF_TOKEN may not read it"}},
		"private, no access": {func(m *hubtest.Model) { m.Token = "hf_x" }, nil, modelID, ClassNotFound,
			[]string{"HF_TOKEN may not read it"}},
		"expired token": {nil, func(o *Options) { o.Token = "expired" }, modelID, ClassConfig,
			[]string{"HF_TOKEN is not a valid token"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			if c.prepare != nil {
				c.prepare(h.model)
			}
			change := c.change
			if change == nil {
				change = func(*Options) {}
			}
			_, err := h.resolver(change).Resolve(context.Background(), c.id, "")
			wantClass(t, err, c.class, c.texts...)
			if !ClassOf(err).Permanent() {
				t.Error("the refusal counts as transient")
			}
			asked := map[string]int{}
			for _, r := range h.hub.Requests() {
				if asked[r.Path]++; asked[r.Path] > 1 {
					t.Errorf("%s was asked for again", r.Path)
				}
			}
			if len(h.waits) > 0 {
				t.Errorf("waited %v", h.waits)
			}
			h.wantInvisible()
		})
	}
}

func TestTokenOpensPrivateModel(t *testing.T) {
	h := newHarness(t)
	h.model.Token, h.model.Gated = "hf_secret", true
	found, err := h.resolve()
	if err != nil {
		t.Fatal(err)
	}
	h.wantWhole(found.Dir)
}

func TestStatuses(t *testing.T) {
	for name, c := range map[string]struct {
		status        int
		code, message string
		class         Class
		text          string
		tries         int
	}{
		"400": {400, "", "Bad thing", ClassConfig, "400 Bad Request (Bad thing); check HF_ENDPOINT", 1},
		"403": {403, "", "Forbidden: fine-grained", ClassGated,
			"refuses access (Forbidden: fine-grained)", 1},
		"403 disabled":      {403, "", "Access to this resource is disabled.", ClassNotFound, "disabled", 1},
		"404 bare":          {404, "", "", ClassNotFound, "does not exist", 1},
		"404 revision":      {404, "RevisionNotFound", "", ClassNotFound, `no revision "main"`, 1},
		"404 repository":    {404, "RepoNotFound", "", ClassNotFound, "does not exist", 1},
		"401 bare":          {401, "", "", ClassNotFound, "does not exist", 1},
		"410":               {410, "", "", ClassConfig, "410 Gone", 1},
		"204":               {204, "", "", ClassConfig, "204", 1},
		"408":               {408, "", "", ClassNetwork, "408", 6},
		"429":               {429, "", "", ClassNetwork, "429 Too Many Requests", 6},
		"500":               {500, "", "", ClassNetwork, "500", 6},
		"502":               {502, "", "", ClassNetwork, "502", 6},
		"503":               {503, "", "", ClassNetwork, "503", 6},
		"unknown 599":       {599, "", "", ClassNetwork, "599", 6},
		"500 that is gated": {500, "GatedRepo", "", ClassNetwork, "500", 6},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			tries := 0
			h.hub.Fault(func(w http.ResponseWriter, r *http.Request, _ bool) bool {
				tries++
				hubtest.Refuse(w, c.status, c.code, c.message)
				return true
			})
			_, err := h.resolve()
			wantClass(t, err, c.class, c.text)
			if tries != c.tries || len(h.waits) != c.tries-1 {
				t.Errorf("%d tries, waits %v; want %d tries", tries, h.waits, c.tries)
			}
			for i, wait := range h.waits {
				if longest := min(backoffFirst<<i, backoffLongest); wait < longest/2 || wait > longest {
					t.Errorf("wait %d is %s, want %s to %s", i, wait, longest/2, longest)
				}
			}
		})
	}
}

// TestServerErrorsPass: two failures of every path, then success.
func TestServerErrorsPass(t *testing.T) {
	for _, status := range []int{429, 500, 503} {
		h := newHarness(t)
		seen := map[string]int{}
		h.hub.Fault(func(w http.ResponseWriter, r *http.Request, _ bool) bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			if seen[r.URL.Path]++; seen[r.URL.Path] > 2 {
				return false
			}
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			return true
		})
		found, err := h.resolve()
		if err != nil {
			t.Fatalf("%d: %v", status, err)
		}
		h.wantWhole(found.Dir)
		for _, wait := range h.waits {
			if wait != 7*time.Second {
				t.Errorf("waited %s, want the 7 s of Retry-After", wait)
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "12": 12 * time.Second, " 3 ": 3 * time.Second, "-1": 0, "1.5": 0, "soon": 0,
		"99999999999999999999": 0, now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	// A wait that is too long ends the load at once, and the error gives the time to try again.
	h := newHarness(t)
	h.hub.Fault(func(w http.ResponseWriter, _ *http.Request, _ bool) bool {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(429)
		return true
	})
	_, err := h.resolve()
	wantClass(t, err, ClassNetwork, "asks to wait 1h0m0s")
	if len(h.waits) > 0 {
		t.Errorf("waited %v", h.waits)
	}
}

func TestUnreachable(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	h := newHarness(t)
	_, err := h.resolve(func(o *Options) { o.Endpoint = closed.URL })
	wantClass(t, err, ClassNetwork, "cannot be reached", "HF_ENDPOINT")
	if len(h.waits) != unreachableMax-1 {
		t.Errorf("waited %v, want %d waits", h.waits, unreachableMax-1)
	}
}

func TestRedirects(t *testing.T) {
	h := newHarness(t)
	stranger := ""
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stranger += r.Header.Get("Authorization") + r.Header.Get("Cookie")
		w.WriteHeader(http.StatusNotFound)
	}))
	defer thief.Close()
	for name, c := range map[string]struct {
		to    string
		class Class
		text  string
	}{
		"loop": {"/api/models/" + modelID + "/revision/main?blobs=true", ClassNetwork,
			"redirects more than 8 times"},
		"no web address": {"file:///etc/passwd", ClassNetwork, "not a web address"},
		"broken":         {"http://[", ClassNetwork, "Location"},
		"no host":        {"http:///x", ClassNetwork, "not a web address"},
		"stranger":       {thief.URL + "/listing", ClassNetwork, "404"},
	} {
		t.Run(name, func(t *testing.T) {
			h.hub.Fault(func(w http.ResponseWriter, r *http.Request, _ bool) bool {
				w.Header().Set("Location", c.to)
				w.WriteHeader(http.StatusFound)
				return true
			})
			_, err := h.resolve()
			wantClass(t, err, c.class, c.text)
		})
	}
	if stranger != "" {
		t.Errorf("another origin got %q", stranger)
	}

	// A renamed repository redirects within the same origin, which may receive the token.
	h.model.Token = "hf_secret"
	h.hub.Fault(func(w http.ResponseWriter, r *http.Request, _ bool) bool {
		if rest, old := strings.CutPrefix(r.URL.Path, "/old/name"); old {
			http.Redirect(w, r, "/"+modelID+rest, http.StatusTemporaryRedirect)
			return true
		} else if rest, old := strings.CutPrefix(r.URL.Path, "/api/models/old/name"); old {
			http.Redirect(w, r, "/api/models/"+modelID+rest+"?"+r.URL.RawQuery, http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	found, err := h.resolver().Resolve(context.Background(), "old/name", "")
	if err != nil {
		t.Fatal(err)
	}
	h.wantWhole(found.Dir)
}

// TestNoDowngrade: a redirect from https to http is refused, and an unknown certificate is not
// tried again.
func TestNoDowngrade(t *testing.T) {
	h := newHarness(t)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, h.hub.URL+r.URL.Path, http.StatusFound)
	}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it would log the handshake that fails on purpose
	secure.StartTLS()
	defer secure.Close()
	_, err := h.resolve(func(o *Options) { o.Endpoint, o.Transport = secure.URL, secure.Client().Transport })
	wantClass(t, err, ClassNetwork, "from https to plain http")
	_, err = h.resolve(func(o *Options) { o.Endpoint = secure.URL })
	wantClass(t, err, ClassNetwork, "certificate is not trusted")
	if len(h.waits) > 0 || len(h.hub.Requests()) > 0 {
		t.Errorf("waited %v", h.waits)
	}
}

func TestEndpointWithPath(t *testing.T) {
	h := newHarness(t)
	mirror := httptest.NewServer(
		http.StripPrefix("/mirror/hub", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/api/") || strings.Contains(r.URL.Path, "/resolve/") {
				h.hub.Serve(w, r, false)
			} else {
				http.NotFound(w, r)
			}
		})))
	defer mirror.Close()
	h.model.Files = map[string][]byte{"config.json": []byte("{}"), "model.safetensors": []byte("x")}
	l, err := newClient(Options{StallTimeout: time.Second, Parallel: 1}, mustURL(t, mirror.URL+
		"/mirror/hub/")).list(context.Background(), modelRef{id: modelID, revision: "main"})
	if err != nil || len(l.files) != 2 {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestMirrorWithoutChecksums: the resolver asks for each file's checksum before it downloads.
func TestMirrorWithoutChecksums(t *testing.T) {
	h := newHarness(t)
	h.model.NoChecksums = true
	found, err := h.resolve()
	if err != nil {
		t.Fatal(err)
	}
	h.wantWhole(found.Dir)
	heads := 0
	for _, r := range h.hub.Requests() {
		if r.Method == http.MethodHead {
			heads++
			if r.Storage {
				t.Error("asked the storage with HEAD, which its links do not allow")
			}
		}
	}
	if heads == 0 {
		t.Error("no HEAD")
	}
	// A mirror that has no checksums cannot be verified.
	h = newHarness(t)
	h.model.NoChecksums = true
	h.hub.Fault(func(w http.ResponseWriter, r *http.Request, _ bool) bool {
		return r.Method == http.MethodHead
	})
	_, err = h.resolve()
	wantClass(t, err, ClassConfig, "gives no checksum and size for")
}

func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		text   string
	}{
		"files": {func(o *Options) { o.MaxFiles = 5 }, "has 6 files, above the limit of 5"},
		"file": {func(o *Options) { o.MaxFileBytes = 99_999 },
			"model.safetensors has 100000 bytes, above the limit of 99999"},
		"total": {func(o *Options) { o.MaxTotalBytes = 100_001 }, "more than 100001 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			_, err := h.resolve(c.change)
			wantClass(t, err, ClassConfig, c.text)
			h.wantInvisible()
			if blobs, _ := os.ReadDir(h.repo().dir + "/blobs"); len(blobs) > 0 {
				t.Error("something was downloaded")
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	h := newHarness(t)
	_, err := h.resolver().Resolve(context.Background(), "sie-test/absent", "")
	want := fmt.Sprintf(
		"model \"sie-test/absent\": does not exist on %s, or HF_TOKEN may not read it: check the spelling and the token's permissions",
		strings.TrimPrefix(h.hub.URL, "http://"))
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestRemarksStayPrintable(t *testing.T) {
	if got := printable("Bad\x1b[31m\n\u202ething\x00").suffix(); got != " (Bad[31mthing)" {
		t.Errorf("%q", got)
	}
	if got := printable(strings.Repeat("x", 10_000)); len(got) > 200 {
		t.Errorf("%d bytes", len(got))
	}
}

// TestEndpointSecretsAreNotPrinted: a mirror's URL may hold a user's name and password. No
// error shows them.
func TestEndpointSecretsAreNotPrinted(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
	}{{403, "GatedRepo"}, {401, "GatedRepo"}, {403, ""}, {404, "RevisionNotFound"}, {404, ""}, {503, ""}} {
		h := newHarness(t)
		h.hub.Fault(func(w http.ResponseWriter, r *http.Request, _ bool) bool {
			hubtest.Refuse(w, c.status, c.code, "no")
			return true
		})
		_, err := h.resolve(
			func(o *Options) { o.Endpoint = strings.Replace(h.hub.URL, "://", "://someone:passw0rd@", 1) })
		if err == nil || strings.Contains(err.Error(), "someone") ||
			strings.Contains(err.Error(), "passw0rd") {
			t.Errorf("%d %s: %v", c.status, c.code, err)
		}
	}
	_, err := New(Options{CacheDir: t.TempDir(), Endpoint: "https://someone:passw0rd@mirror:port"})
	if err == nil || strings.Contains(err.Error(), "passw0rd") ||
		!strings.Contains(err.Error(), "HF_ENDPOINT: not a URL") {
		t.Errorf("what is no URL: %v", err)
	}
}
