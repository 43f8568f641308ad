package configpoll

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A token goes to sie-config alone, and no answer is read beyond its bound.
func TestGet(t *testing.T) {
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer elsewhere.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch {
		case q.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case q.URL.Path == "/away":
			http.Redirect(w, q, elsewhere.URL, http.StatusFound)
		default:
			_, _ = w.Write([]byte(strings.Repeat("x", 10)))
		}
	}))
	defer s.Close()
	c, err := NewClient(s.URL+"/", "secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := c.Get(t.Context(), "/a", 10); err != nil || len(body) != 10 {
		t.Errorf("%q, %v", body, err)
	}
	for _, bad := range []struct {
		path  string
		limit int64
		says  string
	}{{"/a", 9, "more than 9 bytes"}, {"/away", 10, "status 302"}} {
		_, err := c.Get(t.Context(), bad.path, bad.limit)
		if err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %v", bad.path, err)
		}
	}
	if asked != 0 {
		t.Error("a redirect was followed")
	}
	for _, address := range []string{
		"", "config:8080", "ftp://config", "http://a:b@config", "http://config?x=1", "%",
	} {
		if _, err := NewClient(address, "", nil); err == nil || strings.Contains(err.Error(), "a:b") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
