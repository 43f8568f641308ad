package api

import "time"

// Timings are the durations of one request. The phases of a request that spans batches overlap, so
// they need not add up.
type Timings struct {
	Preprocess time.Duration // validation, templates, waiting for a load
	Tokenize   time.Duration
	BatchWait  time.Duration // in the queue, first item
	Inference  time.Duration // first batch starts to last batch ends
	Total      time.Duration
}

// Wire returns the durations as answers and headers give them.
func (t Timings) Wire() *Timing {
	return &Timing{Total: Milliseconds(t.Total), Queue: Milliseconds(t.BatchWait), Tokenization: Milliseconds(t.Tokenize),
		Inference: Milliseconds(t.Inference), Detailed: true, Preprocess: Milliseconds(t.Preprocess), BatchWait: Milliseconds(t.BatchWait)}
}

// Milliseconds returns d in milliseconds, with its fraction.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
