// Package testrig provides helpers for the tests of several packages: a log to read back, the value
// of a metric, waiting for a condition, and the check that no goroutine is left over. Tests only.
package testrig

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Log keeps everything that is written to it. It is safe for concurrent use.
type Log struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns everything that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// waitLimit bounds the wait for an event that is certain to happen. It is long enough for any
// machine, so that only a hang exceeds it.
const waitLimit = 2 * time.Minute

// Until waits for a condition that is certain to hold at some time. It fails the test if it does
// not.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !within(waitLimit, ok) {
		t.Fatalf("waited %v until %s", waitLimit, what)
	}
}

// Goroutines counts the goroutines now. The function it returns fails the test if the number stays
// higher than that.
func Goroutines(t testing.TB) func() {
	before := runtime.NumGoroutine()
	return func() {
		t.Helper()
		if !within(waitLimit, func() bool { return runtime.NumGoroutine() <= before }) {
			buf := make([]byte, 1<<16)
			t.Errorf("%d goroutines before, %d after:\n%s",
				before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	}
}

func within(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
