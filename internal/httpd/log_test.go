package httpd

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/testrig"
)

// The kinds of failure are told apart without fasthttp's messages.
func TestConnFailures(t *testing.T) {
	log := &testrig.Log{}
	q := fasthttpLogger{slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	q.Printf("x %q %q: %v",
		&net.TCPAddr{Port: 1}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 2}, errors.New("sekret"))
	q.Printf("sekret %v", "sekret")
	for _, want := range []string{`client=10.0.0.2:2 why="not valid HTTP/1.1"`, `why="fasthttp: other"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, log)
		}
	}
	if strings.Contains(log.String(), "sekret") {
		t.Error(log)
	}
}
