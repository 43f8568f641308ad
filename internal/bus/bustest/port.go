package bustest

import (
	"net/url"
	"strconv"
	"testing"
)

// portOf returns the port of a URL.
func portOf(t *testing.T, from string) int {
	t.Helper()
	u, err := url.Parse(from)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
