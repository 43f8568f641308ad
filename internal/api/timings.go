package api

import "time"

// Timings holds the durations of one request. The phases of a request that spans batches overlap,
// so they need not add up.
type Timings struct {
	Preprocess time.Duration // validation, templates, waiting for a load
	Tokenize   time.Duration
	BatchWait  time.Duration // of the first item, in the queue
	Inference  time.Duration // from the start of the first batch to the end of the last
	Total      time.Duration
}

// Wire returns the durations in the form of answers and headers.
func (t Timings) Wire() *Timing {
	return &Timing{
		Total:        Milliseconds(t.Total),
		Queue:        Milliseconds(t.BatchWait),
		Tokenization: Milliseconds(t.Tokenize),
		Inference:    Milliseconds(t.Inference),
		Detailed:     true,
		Preprocess:   Milliseconds(t.Preprocess),
		BatchWait:    Milliseconds(t.BatchWait),
	}
}

// Milliseconds returns d in milliseconds, with its fraction.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
