package task

import (
	"context"
	"slices"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/batch"
)

const (
	// chunkTexts is the number of texts that are tokenised and queued together. A request runs in
	// chunks, so that tokenising overlaps running, and 5,000 texts neither fill the queue nor wait
	// for each other.
	chunkTexts = 128
	// chunksAhead bounds the chunks of one request that are queued or running.
	chunksAhead = 4
)

// job is the work of one request on one program. Owned by one goroutine.
type job struct {
	ctx   context.Context
	queue *batch.Queue
	n     int // of the whole job
	// items of more tokens than maxLen go to the queue that long returns, which is called once;
	// where long is nil, all go to queue
	maxLen int
	long   func() (*batch.Queue, error)

	// make returns items [first, end); an item's Index counts from first. put takes the results of
	// items first, first+1, …
	make func(first, end int) ([]batch.Item, error)
	put  func(first int, results []batch.Result) error
	// bad is called before put for each item whose result is not finite. An error ends the job.
	bad func(i int) error

	// adapter changes the weights for every item; nil: no adapter.
	adapter batch.Adapter
	// admitted is set for a request that already has results. A full queue then makes the job wait
	// instead of fail.
	admitted bool
	timings  *api.Timings

	pending []chunk
	further *batch.Queue // what long returned
	ran     bool
	from    time.Time // when the first batch began
	before  time.Duration
}

// chunk is a range of items that was queued.
type chunk struct {
	group *batch.Group
	first int
	at    time.Time
}

// run makes, queues and collects every item. After an error, the queued items of the job are
// dropped.
func (j *job) run() error {
	j.before = j.timings.Inference
	err := j.all()
	if err != nil {
		for _, c := range j.pending {
			c.group.Fail(err)
		}
	}
	return err
}

func (j *job) all() error {
	for first := 0; first < j.n; first += chunkTexts {
		if err := j.submit(first, min(first+chunkTexts, j.n)); err != nil {
			return err
		}
		if len(j.pending) == chunksAhead {
			if err := j.collect(); err != nil {
				return err
			}
		}
	}
	for len(j.pending) > 0 {
		if err := j.collect(); err != nil {
			return err
		}
	}
	return nil
}

// submit makes items [first, end) and queues them. The first chunk is offered, so that a full queue
// refuses the request. Later chunks wait for room.
func (j *job) submit(first, end int) error {
	wait := j.admitted || first > 0
	if !wait {
		if full := j.queue.Room(end - first); full != nil {
			return full
		}
	}
	items, err := j.make(first, end)
	if err != nil {
		return err
	}
	if j.adapter != nil {
		for i := range items {
			items[i].Adapter = j.adapter
		}
	}
	c := chunk{group: batch.NewGroup(j.ctx, len(items)), first: first, at: time.Now()}
	short, long := items, []batch.Item(nil)
	if j.long != nil {
		short, long = splitByLength(items, j.maxLen)
	}
	if len(long) > 0 && j.further == nil {
		if j.further, err = j.long(); err != nil {
			return err
		}
	}
	if len(short) > 0 {
		if err := j.queue.Submit(j.ctx, c.group, short, wait); err != nil {
			return err
		}
	}
	if len(long) > 0 {
		if err := j.further.Submit(j.ctx, c.group, long, wait); err != nil {
			c.group.Fail(err) // the short ones are queued
			return err
		}
	}
	j.pending = append(j.pending, c)
	return nil
}

// splitByLength returns the items of at most limit tokens and those of more.
func splitByLength(items []batch.Item, limit int) (short, long []batch.Item) {
	isLong := func(it batch.Item) bool { return it.Tokens() > limit }
	if !slices.ContainsFunc(items, isLong) {
		return items, nil
	}
	for _, it := range items {
		if isLong(it) {
			long = append(long, it)
		} else {
			short = append(short, it)
		}
	}
	return short, long
}

// collect waits for the oldest chunk and passes its results to bad and put.
func (j *job) collect() error {
	c := j.pending[0]
	results, err := c.group.Wait()
	if err != nil {
		return err
	}
	j.pending = j.pending[1:]
	for _, i := range c.group.NonFinite() {
		if err := j.bad(c.first + i); err != nil {
			return err
		}
	}
	wait, run := c.group.Times(c.at)
	if !j.ran {
		j.ran, j.from = true, c.at.Add(wait)
		j.timings.BatchWait += wait
	}
	j.timings.Inference = j.before + max(j.timings.Inference-j.before, c.at.Add(wait+run).Sub(j.from))
	return j.put(c.first, results)
}
