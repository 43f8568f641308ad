package gcs

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sie-engine/sie/weights/bucket"
	"github.com/sie-engine/sie/weights/bucket/buckettest"
)

func open(t *testing.T, raw string) *Bucket {
	url, err := bucket.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return New(url)
}

// The client sends chunks of 16 MiB.
const large = 17 << 20

func TestContract(t *testing.T) {
	url, _, _ := buckettest.GCS(t)
	buckettest.Contract(t, open(t, url), large)
}

func TestContractBelowAPrefix(t *testing.T) {
	url, _, _ := buckettest.GCS(t)
	buckettest.Contract(t, open(t, url+"/some/prefix"), large)
}

func TestMissingBucketIsDenied(t *testing.T) {
	buckettest.GCS(t)
	if _, err := open(t, "gs://not-there").List(t.Context(), "", 1); !errors.Is(err, bucket.ErrDenied) {
		t.Error(err)
	}
}

// Of what a storage says in an error, however long, errors have the beginning.
func TestLongRefusals(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"error":{"code":403,"message":"no entry `+strings.Repeat("ä", 1<<20)+`"}}`)
	}))
	defer server.Close()
	t.Setenv("STORAGE_EMULATOR_HOST", server.Listener.Addr().String())
	t.Setenv("NO_PROXY", "*")
	_, err := open(t, "gs://models").List(t.Context(), "", 1)
	if !errors.Is(err, bucket.ErrDenied) || !strings.Contains(err.Error(), "403 no entry ä") ||
		len(err.Error()) > 1200 || !utf8.ValidString(err.Error()) {
		t.Errorf("%d bytes: %.200v", len(fmt.Sprint(err)), err)
	}
}

// Credentials may come after the first request.
func TestCredentialsMayComeLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials.json")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	b := open(t, "gs://models")
	if _, err := b.dial(); err == nil {
		t.Fatal("it needs no credentials")
	}
	user := `{"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}`
	if err := os.WriteFile(path, []byte(user), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := b.dial()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := b.dial(); err != nil || again != c {
		t.Errorf("a second client: %v", err)
	}
}
