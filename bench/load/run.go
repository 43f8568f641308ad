package main

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

type config struct {
	url, dialect, model string
	clients, perRequest int
	rate                float64
	duration            time.Duration
	verify              bool
	texts               []string
}

func (c *config) check() error {
	switch {
	case len(c.texts) == 0:
		return errors.New("-texts: no texts")
	case c.clients < 1 || c.clients > 10_000:
		return errors.New("-clients must be between 1 and 10,000")
	case c.perRequest < 1 || c.perRequest > len(c.texts):
		return fmt.Errorf("-per-request must be between 1 and %d", len(c.texts))
	case c.duration <= 0 || c.duration > 10*time.Minute:
		return errors.New("-duration must be above 0 and at most 10m")
	case dialects[c.dialect] == nil:
		return fmt.Errorf("-dialect %s: use sie, openai or tei", c.dialect)
	}
	return nil
}

// outcome is the result of one request.
type outcome struct {
	status     int
	took       time.Duration
	err        error
	wrong      bool
	retryAfter bool
	texts      int
	// outside is the total time minus tokenising and inference, from the server's own headers, or
	// negative without them.
	outside time.Duration
	// tokenize is the share of tokenising in preprocessing and tokenising, from the server's own
	// headers, or negative without them.
	tokenize float64
}

// sender holds the state that all requests share.
type sender struct {
	c      *config
	client *fasthttp.Client
	bodies [][]byte // made in advance, so that sending costs little
	path   string
	sums   []atomic.Uint64 // hash of the first answer to each body; 0 = none yet
	seed   maphash.Seed
	next   atomic.Int64
	late   atomic.Int64 // open loop: requests delayed by the bound on requests in flight
}

func (c *config) run() report {
	d := dialects[c.dialect]
	client := &fasthttp.Client{
		MaxConnsPerHost:          c.clients + 64,
		ReadTimeout:              3 * time.Minute,
		WriteTimeout:             time.Minute,
		NoDefaultUserAgentHeader: true,
		RetryIfErr:               func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
	}
	s := &sender{c: c, path: c.url + d.path(c.model), seed: maphash.MakeSeed(), client: client}
	for i := 0; i+c.perRequest <= len(c.texts); i += c.perRequest {
		s.bodies = append(s.bodies, d.body(c.model, c.texts[i:i+c.perRequest]))
	}
	s.sums = make([]atomic.Uint64, len(s.bodies))
	before := cpuTime()
	start := time.Now()
	var got []outcome
	if c.rate > 0 {
		got = s.open(start)
	} else {
		got = s.closed(start)
	}
	r := summarise(got, time.Since(start))
	r.CPUSeconds = cpuTime() - before
	r.Late = int(s.late.Load())
	r.Mode = "closed"
	if c.rate > 0 {
		r.Mode = "open"
	}
	return r
}

// closed runs one loop per client.
func (s *sender) closed(start time.Time) []outcome {
	all := make([][]outcome, s.c.clients)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for time.Since(start) < s.c.duration {
				o := s.send(time.Now())
				all[i] = append(all[i], o)
				if o.status != 200 {
					// a refused client that retried at once would only measure itself
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	return slices.Concat(all...)
}

// tick is the shortest sleep of an open loop. At rates above one request a tick, requests that
// became due during the sleep leave together.
const tick = 2 * time.Millisecond

// open sends at the fixed rate. Latency counts from the moment a request was due.
//
// On the server's own CPUs, each wake-up of the generator interrupts the server. That cost appears
// in the CPU time of neither, so it cannot be subtracted. At high rates the generator therefore
// wakes once a tick and does not preempt. Its requests then come in groups, as they do from a
// network card.
func (s *sender) open(start time.Time) []outcome {
	gap := time.Duration(float64(time.Second) / s.c.rate)
	if gap < tick {
		stepBack()
	}
	slots := make(chan struct{}, s.c.clients)
	var mu sync.Mutex
	var all []outcome
	var wg sync.WaitGroup
	for due := start; due.Sub(start) < s.c.duration; due = due.Add(gap) {
		if wait := time.Until(due); wait > 0 {
			time.Sleep(max(wait, tick))
		}
		select {
		case slots <- struct{}{}:
		default:
			s.late.Add(1)
			slots <- struct{}{}
		}
		wg.Go(func() {
			o := s.send(due)
			<-slots
			mu.Lock()
			all = append(all, o)
			mu.Unlock()
		})
	}
	wg.Wait()
	return all
}

// stepBack makes the threads of this process wait for their turn instead of preempting others on
// wake-up. If the system refuses, the measurement only disturbs the server more.
func stepBack() {
	batch := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH}
	for range 2 { // a thread that starts during the first round may miss it; later ones inherit
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil {
				_ = unix.SchedSetAttr(id, batch, 0)
			}
		}
	}
}

func (s *sender) send(due time.Time) outcome {
	i := int(s.next.Add(1)-1) % len(s.bodies)
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	d := dialects[s.c.dialect]
	req.SetRequestURI(s.path)
	req.Header.SetMethod("POST")
	req.Header.SetContentType(d.contentType)
	req.Header.Set("Accept", d.contentType)
	req.SetBodyRaw(s.bodies[i])
	err := s.client.Do(req, resp)
	o := outcome{status: resp.StatusCode(), took: time.Since(due), err: err, outside: outside(&resp.Header),
		tokenize: tokenizeShare(&resp.Header)}
	if err != nil {
		o.status = 0
		return o
	}
	if o.status != 200 {
		after, err := strconv.Atoi(string(resp.Header.Peek("Retry-After")))
		o.retryAfter = err == nil && after > 0
		return o
	}
	o.texts = s.c.perRequest
	if s.c.verify {
		vectors, err := d.vectors(resp.Body())
		if err != nil {
			o.err, o.texts = err, 0
			return o
		}
		sum := maphash.Bytes(s.seed, vectors) | 1
		if !s.sums[i].CompareAndSwap(0, sum) && s.sums[i].Load() != sum {
			o.wrong = true
		}
	}
	return o
}

// outside returns the total time minus tokenising and inference, or -1 ns if a timing header is
// missing.
func outside(h *fasthttp.ResponseHeader) time.Duration {
	ms, ok := headerTimes(h, "X-Total-Time", "X-Tokenization-Time", "X-Inference-Time")
	if !ok {
		return -1
	}
	return max(0, time.Duration((ms[0]-ms[1]-ms[2])*float64(time.Millisecond)))
}

// tokenizeShare returns the share of tokenising in all that precedes a batch, or -1 if a header is
// missing or both times are 0.
func tokenizeShare(h *fasthttp.ResponseHeader) float64 {
	ms, ok := headerTimes(h, "X-Preprocess-Time", "X-Tokenization-Time")
	if !ok || ms[0]+ms[1] <= 0 {
		return -1
	}
	return ms[1] / (ms[0] + ms[1])
}

// headerTimes returns the milliseconds in the named headers; ok is false if one has none.
func headerTimes(h *fasthttp.ResponseHeader, names ...string) (ms []float64, ok bool) {
	for _, name := range names {
		v, err := strconv.ParseFloat(string(h.Peek(name)), 64)
		if err != nil {
			return nil, false
		}
		ms = append(ms, v)
	}
	return ms, true
}

func summarise(all []outcome, took time.Duration) report {
	r := report{
		Seconds: took.Seconds(), Requests: len(all), Statuses: map[int]int{}, Errors: map[string]int{},
	}
	var times, outside, tokenize []float64
	for _, o := range all {
		r.Statuses[o.status]++
		switch {
		case o.err != nil:
			r.Failed++
			r.Errors[o.err.Error()]++
		case o.status == 200:
			r.Texts += o.texts
			times = append(times, o.took.Seconds()*1e3)
			if o.outside >= 0 {
				outside = append(outside, o.outside.Seconds()*1e3)
			}
			if o.tokenize >= 0 {
				tokenize = append(tokenize, o.tokenize)
			}
		case o.status == 503 || o.status == 429:
			r.Refused++
			if !o.retryAfter {
				r.NoRetry++
			}
		default:
			r.Failed++
		}
		if o.wrong {
			r.Wrong++
		}
	}
	r.P50MS, r.P99MS, r.MaxMS = quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1)
	if len(outside) > 0 {
		v := quantile(outside, 0.5)
		r.OutsideP50MS = &v
	}
	if len(tokenize) > 0 {
		v := quantile(tokenize, 0.5)
		r.TokenizeShareP50 = &v
	}
	return r
}

// quantile sorts v and returns its p-quantile, or 0 for an empty v.
func quantile(v []float64, p float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[int(p*float64(len(v)-1))]
}

// cpuTime returns the user and system time of this process in seconds.
func cpuTime() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	sec := func(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return sec(u.Utime) + sec(u.Stime)
}
