package s3

import (
	"bytes"
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

// S3 accepts parts of at least 5 MiB.
const testPart = 5 << 20

func TestContract(t *testing.T) {
	url, _, _ := buckettest.S3(t)
	b := open(t, url)
	b.part = testPart
	buckettest.Contract(t, b, 2*testPart+1000)
}

func TestContractBelowAPrefix(t *testing.T) {
	url, _, _ := buckettest.S3(t)
	outside := open(t, url)
	for _, key := range []string{"a/outside", "pre"} {
		if _, err := outside.Put(t.Context(), key, bytes.NewReader(nil), 0, bucket.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, url+"/some/prefix/")
	b.part = testPart
	buckettest.Contract(t, b, 2*testPart+1000)
}

func TestRefusalsAreDenied(t *testing.T) {
	url, _, _ := buckettest.S3(t)
	if _, _, err := open(t, "s3://not-there").Open(t.Context(), "x", 0, ""); !errors.Is(err,
		bucket.ErrDenied) || !strings.Contains(err.Error(), "not-there") {
		t.Errorf("a bucket that is not there: %v", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
	_, _, err := open(t, url).Open(t.Context(), "x", 0, "")
	if !errors.Is(err, bucket.ErrDenied) || strings.Contains(err.Error(), "wrong-secret") {
		t.Errorf("a wrong key: %v", err)
	}
}

// Of what a storage says in an error, however long, errors have the beginning.
func TestLongRefusals(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w,
			"<Error><Code>Odd</Code><Message>no entry "+strings.Repeat("ä", 1<<20)+"</Message></Error>")
	}))
	defer server.Close()
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": "a",
		"AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1", "NO_PROXY": "*"} {
		t.Setenv(name, value)
	}
	_, err := open(t, "s3://models").List(t.Context(), "", 1)
	if !errors.Is(err, bucket.ErrDenied) || !strings.Contains(err.Error(), "Odd no entry ä") ||
		len(err.Error()) > 1200 || !utf8.ValidString(err.Error()) {
		t.Errorf("%d bytes: %.200v", len(fmt.Sprint(err)), err)
	}
}

// The shared configuration may come after the first request.
func TestConfigurationMayComeLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	t.Setenv("AWS_CONFIG_FILE", path)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", path+".none")
	t.Setenv("AWS_PROFILE", "later")
	b := open(t, "s3://models")
	if _, err := b.dial(); err == nil {
		t.Fatal("it needs no profile")
	}
	if err := os.WriteFile(path, []byte("[profile later]\nregion = eu-west-1\n"), 0o600); err != nil {
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
