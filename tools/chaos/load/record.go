package load

import (
	"sync"
	"time"
)

// Verdict says what became of a request.
type Verdict int

// The verdicts. Only OK is an answer.
const (
	OK       Verdict = iota
	Accepted         // 202 with Retry-After, to a caller that may get it
	Refused          // a retryable 503 with Retry-After of at least 1
	Reset            // the connection was refused, or closed before an answer
	Wrong            // 200 and not the answer
	Lost             // no answer within the client's patience
	Failed           // any other status; of an SDK: an exception
)

var verdicts = [...]string{"ok", "202", "refused", "reset", "wrong", "lost", "failed"}

// String returns the verdict's word.
func (v Verdict) String() string { return verdicts[v] }

// Record is one request and what became of it.
type Record struct {
	ID      string
	Client  string // "raw" or "sdk 0.10.1"
	Gateway int
	Op      string
	Model   string
	Items   int
	Start   time.Time
	End     time.Time
	Status  int
	Verdict Verdict
	Why     string // the first evidence, of every verdict but OK
	// Second is set where a further answer, or a part of one, followed on the connection.
	Second bool
}

// Wait returns how long the client waited.
func (r *Record) Wait() time.Duration { return r.End.Sub(r.Start) }

// maxRecords bounds the records of one Load: 25 minutes at 600 requests a second.
const maxRecords = 1_000_000

// recorder keeps the records of a Load.
type recorder struct {
	mu      sync.Mutex
	records []Record
	over    int // records above maxRecords, which are lost
}

func (r *recorder) add(x Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) >= maxRecords {
		r.over++
		return
	}
	r.records = append(r.records, x)
}

// since returns the records from the n-th on.
func (r *recorder) since(n int) []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Record(nil), r.records[min(n, len(r.records)):]...)
}
