package hub

import (
	"sync"
	"time"
)

// Stage is the current step of a Resolve that downloads.
type Stage string

// The stages, in order.
const (
	StageWaiting     Stage = "waiting"     // another process or goroutine downloads this model
	StageDownloading Stage = "downloading" // files arrive
	StageDone        Stage = "done"        // all files are verified and visible
)

// Progress is the state of a download.
type Progress struct {
	Model string
	Stage Stage
	Bytes int64  // on disk, including the bytes of an earlier try
	Total int64  // size of all files to download
	Files int    // finished
	Of    int    // all files to download
	File  string // the file whose bytes arrived last
}

// progressInterval is the minimum time between two reports of received bytes.
const progressInterval = 100 * time.Millisecond

// reporter counts the bytes and files of one Resolve and calls the user's function. It is safe for
// concurrent use.
type reporter struct {
	call func(Progress) // nil: no reports

	mu    sync.Mutex // guards the rest and serialises call
	state Progress
	last  time.Time
}

// stage reports a change of stage at once.
func (r *reporter) stage(stage Stage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Stage = stage
	r.emitLocked()
}

// begin sets the totals.
func (r *reporter) begin(total int64, files int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Total, r.state.Of = total, files
}

// received adds bytes of a file. bytes is negative when a partial file was discarded.
func (r *reporter) received(file string, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.File = file
	r.state.Bytes += bytes
	if time.Since(r.last) >= progressInterval {
		r.emitLocked()
	}
}

// finished counts a file that is verified and in place.
func (r *reporter) finished(file string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.File = file
	r.state.Files++
}

func (r *reporter) emitLocked() {
	r.last = time.Now()
	if r.call != nil {
		r.call(r.state)
	}
}
