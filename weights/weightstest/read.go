package weightstest

import (
	"fmt"
	"testing"

	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/internal/hook"
)

// Bytes returns the elements of a tensor. It panics when it cannot read them.
func Bytes(t weights.Tensor) []byte {
	b := make([]byte, t.Bytes())
	if err := t.ReadAt(b, 0); err != nil {
		panic(fmt.Sprintf("weightstest: tensor %s: %v", t.Name, err))
	}
	return b
}

// OnRead calls f before each read of a checkpoint file until the test ends. It affects the whole
// process, so the test must not be parallel.
func OnRead(tb testing.TB, f func(path string, offset int64)) {
	tb.Helper()
	hook.OnRead(f)
	tb.Cleanup(func() { hook.OnRead(nil) })
}

// OnRelease calls f when a tensor is released, until the test ends. did: its pages are given up.
func OnRelease(tb testing.TB, f func(path string, begin, end int64, did bool)) {
	tb.Helper()
	hook.OnRelease(f)
	tb.Cleanup(func() { hook.OnRelease(nil) })
}
