package bucket

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// An error with many words keeps what it is.
func TestBrief(t *testing.T) {
	long := fmt.Errorf("%s: %w", strings.Repeat("x", 5000), ErrDenied)
	if err := Brief(long); len(err.Error()) > 1200 || !errors.Is(err, ErrDenied) {
		t.Errorf("%d bytes, %v", len(err.Error()), errors.Is(err, ErrDenied))
	}
	if err := Brief(ErrDenied); err != ErrDenied {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"s3://models": "s3://models/", "s3://models/": "s3://models/", "gs://models/a/b/": "gs://models/a/b/",
		"s3://m//a": "s3://m/a/",
	} {
		if got, err := Parse(in); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "models", "/models", "http://models", "s3://", "s3:///a", "s3://key:secret@models",
		"s3://models?x=1", "gs://models#x", "s3://models:9000/a", "s3://models/a/../b", "s3://models/a//b",
	} {
		if got, err := Parse(in); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}
