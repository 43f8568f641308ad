package batch

import (
	"errors"
	"fmt"
	"time"
)

// MaxOutput bounds each output of a batch unless Options say otherwise: what slots and arena grow
// to stays when the batch is gone, and short texts with wide rows, such as sparse ones, would make
// it thousands of rows.
const MaxOutput = 64 << 20

// Options bound a queue and say when its batches close. Zero fields take the defaults in brackets.
type Options struct {
	MaxCost       int           // tokens of a batch [16,384]
	MaxRequests   int           // items at which a batch may leave [64]
	MaxWait       time.Duration // initial adaptive wait of the oldest item [15 ms]
	Coalesce      time.Duration // a pause in arrivals that closes a batch [15 ms, at most CoalesceRatio of the wait]
	CoalesceRatio float64       // [0.5]
	IdleCoalesce  time.Duration // pause awaited on an idle device [0: a lone query leaves at once]
	MaxItems      int           // queued items; half as many long ones besides [2,048]
	MaxBytes      int64         // queued token ids in bytes; half as many of long items besides [64 MiB]
	MaxSeqs       int           // items of a batch the program can take [4,096]
	MaxOutput     int64         // bytes of one output of a batch of several items [MaxOutput]
	MaxQueryRows  int           // rows of a batch's queries together [0: no item has a query]
	Adaptive      AdaptiveOptions
	Work          Work // of an item [its tokens]
	// MaxBacklog bounds the time that a new item is predicted to wait; Submit refuses what would
	// wait longer [no bound].
	MaxBacklog time.Duration
	// Fatal, if set, is told of every error of a batch and says whether it concerns the whole
	// device: running the batch again in halves is then pointless.
	Fatal func(error) bool
	// NoMemory, if set, says whether an error of a batch means that the device had too little
	// memory for it. Such a batch is run again as it is when MakeRoom, if set, frees some, and then
	// in halves. MakeRoom may block.
	NoMemory func(error) bool
	MakeRoom func() bool
	// Recovered, if set, is told what became of every batch that met NoMemory; called from a
	// batch's goroutine.
	Recovered func(Recovery)
	// NonFinite, if set, is told how many items of a batch gave results that are not finite; called
	// from a batch's goroutine.
	NonFinite func(items int)
	// BatchDone, if set, is told of every batch that ran; called from a batch's goroutine.
	BatchDone func(items, tokens int, run time.Duration)
}

// Work says what a sequence of n tokens costs to run: PerToken·n + PerPair·n². The unit is the same
// for all queues of a device, floating-point operations for example.
type Work struct {
	PerToken float64 // linear layers
	PerPair  float64 // attention: each token with each
}

// of is the work of n tokens.
func (w Work) of(n int) float64 { return (w.PerToken + w.PerPair*float64(n)) * float64(n) }

// Recovery is what was done for a batch that the device had too little memory for.
type Recovery struct {
	Evictions int // times that MakeRoom freed something
	Splits    int // times that a batch or a part of it was cut in halves
	Failed    int // items that there is no memory for even alone
}

// Validate returns everything that is wrong with the options, nil for none. Zero fields are
// defaults and never wrong.
func (o *Options) Validate() error {
	var all []error
	for _, x := range []struct {
		name  string
		value float64
	}{{"MaxCost", float64(o.MaxCost)}, {"MaxRequests", float64(o.MaxRequests)}, {"MaxWait", float64(o.MaxWait)}, {"Coalesce", float64(o.Coalesce)},
		{"CoalesceRatio", o.CoalesceRatio}, {"IdleCoalesce", float64(o.IdleCoalesce)}, {"MaxItems", float64(o.MaxItems)},
		{"MaxBytes", float64(o.MaxBytes)}, {"MaxSeqs", float64(o.MaxSeqs)}, {"MaxOutput", float64(o.MaxOutput)},
		{"MaxQueryRows", float64(o.MaxQueryRows)}, {"MaxBacklog", float64(o.MaxBacklog)}, {"Adaptive.TargetP50", float64(o.Adaptive.TargetP50)}} {
		if !(x.value >= 0) { // NaN is not
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

// Errors of Submit and of groups whose queue goes away.
var (
	ErrFull    = errors.New("batch: queue is full")
	ErrClosed  = errors.New("batch: queue is closed")
	ErrExpired = errors.New("batch: the item's deadline passed while it was queued")
)

// FullError says why a queue takes no new items now. It is ErrFull to errors.Is.
type FullError struct {
	Pending int // items queued, and items of admitted requests that wait for room
	Limit   int // items
	// Wait is how long a new item was predicted to wait, where that is the reason; else 0.
	Wait time.Duration
	// RetryAfter is when half of the time that may be queued will have run; 0 where the wait is not
	// the reason.
	RetryAfter time.Duration
}

func (e *FullError) Error() string {
	if e.Wait > 0 {
		return fmt.Sprintf("%v: its %d items take %v to run", ErrFull, e.Pending, e.Wait)
	}
	return fmt.Sprintf("%v: %d of %d items", ErrFull, e.Pending, e.Limit)
}

// Is makes a FullError an ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }
