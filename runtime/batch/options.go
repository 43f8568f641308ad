package batch

import (
	"errors"
	"fmt"
	"time"
)

// MaxOutput is the default bound on the bytes of each output of a batch. The bound is needed
// because slots and arenas never shrink, and a batch of short texts with wide rows (sparse ones)
// would grow them to thousands of rows.
const MaxOutput = 64 << 20

// Options bound a queue and control when its batches leave. Zero fields take the defaults in
// brackets.
type Options struct {
	MaxCost     int // tokens of a batch [16,384]
	MaxRequests int // a batch of this many items may leave [64]
	// initial adaptive wait: the longest that the oldest item waits while a slot is free [15 ms]
	MaxWait time.Duration
	// a batch leaves after this pause in arrivals [15 ms], or after CoalesceRatio of the wait if
	// that is shorter
	Coalesce      time.Duration
	CoalesceRatio float64       // [0.5]
	IdleCoalesce  time.Duration // replaces Coalesce on an idle device [0: a lone query leaves at once]
	MaxItems      int           // queued short items, plus half as many long ones [2,048]
	// token ids and places of queued short items in bytes, plus half as many bytes of long items
	// [64 MiB]
	MaxBytes int64
	MaxSeqs  int // items that the program can take in one batch [4,096]
	// bytes of each output of a batch; an item that exceeds it runs alone [MaxOutput]
	MaxOutput    int64
	MaxQueryRows int // rows of all queries of a batch [0: no item has a query]
	MaxSpans     int // spans of a batch; an item that has more runs alone [0: no item has spans]
	// tokens of all prefixes of a batch, each counted once [0: no item has a prefix]
	MaxPrefixTokens int
	Adaptive        AdaptiveOptions
	Work            Work // cost model of an item [its tokens]
	// MaxBacklog bounds the predicted wait of a new item; Submit refuses an item that would wait
	// longer [no bound].
	MaxBacklog time.Duration
	// Fatal, if set, is called with the error of every failed batch. It reports whether the whole
	// device is lost; the batch is then not run again in halves.
	Fatal func(error) bool
	// NoMemory, if set, reports whether an error means that the device had too little memory for
	// the batch. Such a batch is run again unchanged if MakeRoom is set and returns true, because
	// it freed some memory; then in halves. MakeRoom may block.
	NoMemory func(error) bool
	MakeRoom func() bool
	// Recovered, if set, is called with the outcome of every batch that had such an error. It is
	// called from the batch's goroutine.
	Recovered func(Recovery)
	// NonFinite, if set, is called after a batch in which items had results that are not finite,
	// with their number. It is called from the batch's goroutine.
	NonFinite func(items int)
	// BatchDone, if set, is called after every batch. It is called from the batch's goroutine.
	BatchDone func(items, tokens int, run time.Duration)
}

// Work gives the cost of running a sequence of n tokens: PerToken·n + PerPair·n² + PerNear for each
// near pair, one at most Window tokens apart. All queues of a device use the same unit, for example
// floating-point operations.
type Work struct {
	PerToken float64 // linear layers
	PerPair  float64 // attention: each token with every token
	PerNear  float64 // attention: each token with those near it
	Window   int
}

// of returns the work of n tokens.
func (w Work) of(n int) float64 {
	each := (w.PerToken + w.PerPair*float64(n)) * float64(n)
	if w.PerNear == 0 {
		return each
	}
	far := max(0, min(w.Window, n-1)) // the largest distance
	return each + w.PerNear*(float64(n)+float64(far)*float64(2*n-far-1))
}

// behind returns the work of n tokens behind a prefix of that many. The prefix's own is not in it.
func (w Work) behind(prefix, n int) float64 {
	if prefix == 0 {
		return w.of(n)
	}
	return w.of(prefix+n) - w.of(prefix)
}

// Recovery counts what was done for a batch that the device had too little memory for.
type Recovery struct {
	Evictions int // times that MakeRoom freed something
	Splits    int // times that a batch or a part of it was cut in halves
	Failed    int // items that failed because there was too little memory
}

// Validate returns all errors in the options joined, or nil. Zero fields mean defaults and are
// always valid.
func (o *Options) Validate() error {
	var all []error
	for _, x := range []struct {
		name  string
		value float64
	}{
		{"MaxCost", float64(o.MaxCost)}, {"MaxRequests", float64(o.MaxRequests)},
		{"MaxWait", float64(o.MaxWait)}, {"Coalesce", float64(o.Coalesce)},
		{"CoalesceRatio", o.CoalesceRatio}, {"IdleCoalesce", float64(o.IdleCoalesce)},
		{"MaxItems", float64(o.MaxItems)}, {"MaxBytes", float64(o.MaxBytes)}, {"MaxSeqs", float64(o.MaxSeqs)},
		{"MaxOutput", float64(o.MaxOutput)}, {"MaxQueryRows", float64(o.MaxQueryRows)},
		{"MaxSpans", float64(o.MaxSpans)},
		{"MaxPrefixTokens", float64(o.MaxPrefixTokens)},
		{"MaxBacklog", float64(o.MaxBacklog)}, {"Adaptive.TargetP50", float64(o.Adaptive.TargetP50)},
	} {
		if !(x.value >= 0) { // also catches NaN
			all = append(all, fmt.Errorf("%s must not be negative; got %v", x.name, x.value))
		}
	}
	if o.CoalesceRatio > 1 {
		all = append(all, fmt.Errorf("CoalesceRatio must be at most 1; got %v", o.CoalesceRatio))
	}
	return errors.Join(all...)
}

func (o *Options) setDefaults() {
	if o.MaxCost == 0 {
		o.MaxCost = 16384
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = 64
	}
	if o.MaxWait == 0 {
		o.MaxWait = 15 * time.Millisecond
	}
	if o.Coalesce == 0 {
		o.Coalesce = 15 * time.Millisecond
	}
	if o.CoalesceRatio == 0 {
		o.CoalesceRatio = 0.5
	}
	if o.MaxItems == 0 {
		o.MaxItems = 2048
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	if o.MaxSeqs == 0 {
		o.MaxSeqs = 4096
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = MaxOutput
	}
	if o.Work == (Work{}) {
		o.Work.PerToken = 1
	}
}

// Errors of Submit and of groups whose queue is closed.
var (
	ErrFull    = errors.New("batch: queue is full")
	ErrClosed  = errors.New("batch: queue is closed")
	ErrExpired = errors.New("batch: the item's deadline passed while it was queued")
)

// FullError gives the reason why a queue takes no new items now. errors.Is matches it to ErrFull.
type FullError struct {
	Pending int // queued items, and items of admitted requests that wait for room
	Limit   int // items
	// Wait is the predicted wait of a new item if that is the reason, else 0.
	Wait time.Duration
	// RetryAfter is the predicted time until the backlog has fallen to half of MaxBacklog, between
	// 1 s and 1 min. It is 0 if the wait is not the reason.
	RetryAfter time.Duration
}

func (e *FullError) Error() string {
	if e.Wait > 0 {
		return fmt.Sprintf("%v: its %d items take %v to run", ErrFull, e.Pending, e.Wait)
	}
	return fmt.Sprintf("%v: %d of %d items", ErrFull, e.Pending, e.Limit)
}

// Is reports whether target is ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }
