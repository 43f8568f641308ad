package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sie-engine/sie/weights/hub"
)

// Downloads that run at the same time report at the same time. Each logs its start, its tenths and
// its end, and a download that has ended is forgotten.
func TestProgressOfDownloadsTogether(t *testing.T) {
	const downloads = 8
	var lines [downloads]atomic.Int64
	report := logProgress(func(_ string, args ...any) {
		var n int
		if _, err := fmt.Sscanf(args[1].(string), "org/%d", &n); err != nil {
			t.Error(err)
		}
		lines[n].Add(1)
	})
	var all sync.WaitGroup
	for n := range downloads {
		all.Go(func() {
			p := hub.Progress{Model: fmt.Sprintf("org/%d", n), Stage: hub.StageDownloading, Total: 100_000}
			for range 2 { // the second time as if it were loaded again
				for p.Bytes = 0; p.Bytes < p.Total; p.Bytes++ {
					report(p)
				}
				p.Stage = hub.StageDone
				report(p)
				p.Stage = hub.StageDownloading
			}
		})
	}
	all.Wait()
	for n := range lines {
		if got := lines[n].Load(); got != 2*11 {
			t.Errorf("download %d: %d lines, want 22", n, got)
		}
	}
}
