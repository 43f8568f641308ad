package main

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
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

// outcome of one request.
type outcome struct {
	status     int
	took       time.Duration
	err        error
	wrong      bool
	retryAfter bool
	texts      int
}

// sender holds what the requests share.
type sender struct {
	c      *config
	client *fasthttp.Client
	bodies [][]byte // prepared, so that sending costs little
	path   string
	sums   []atomic.Uint64 // of the first answer to each body
	seed   maphash.Seed
	next   atomic.Int64
}

func (c *config) run() report {
	d := dialects[c.dialect]
	s := &sender{c: c, path: c.url + d.path(c.model), seed: maphash.MakeSeed(), client: &fasthttp.Client{
		MaxConnsPerHost: c.clients + 64, ReadTimeout: 3 * time.Minute, WriteTimeout: time.Minute, NoDefaultUserAgentHeader: true,
		RetryIf: func(*fasthttp.Request) bool { return false }}}
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
					time.Sleep(5 * time.Millisecond) // a refused client that spins would only measure itself
				}
			}
		})
	}
	wg.Wait()
	return slices.Concat(all...)
}

// open sends at the fixed rate; latency counts from the moment a request was due.
func (s *sender) open(start time.Time) []outcome {
	gap := time.Duration(float64(time.Second) / s.c.rate)
	slots := make(chan struct{}, s.c.clients)
	var mu sync.Mutex
	var all []outcome
	var wg sync.WaitGroup
	for due := start; due.Sub(start) < s.c.duration; due = due.Add(gap) {
		time.Sleep(time.Until(due))
		slots <- struct{}{}
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
	o := outcome{status: resp.StatusCode(), took: time.Since(due), err: err}
	if err != nil {
		o.status = 0
		return o
	}
	if o.status != 200 {
		o.retryAfter = len(resp.Header.Peek("Retry-After")) > 0
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

func summarise(all []outcome, took time.Duration) report {
	r := report{Seconds: took.Seconds(), Requests: len(all), Statuses: map[int]int{}, Errors: map[string]int{}}
	var times []float64
	for _, o := range all {
		r.Statuses[o.status]++
		switch {
		case o.err != nil:
			r.Failed++
			r.Errors[o.err.Error()]++
		case o.status == 200:
			r.Texts += o.texts
			times = append(times, o.took.Seconds()*1e3)
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
	if slices.Sort(times); len(times) > 0 {
		at := func(p float64) float64 { return times[int(p*float64(len(times)-1))] }
		r.P50MS, r.P99MS, r.MaxMS = at(0.5), at(0.99), times[len(times)-1]
	}
	return r
}

// cpuTime is this process's user and system time in seconds.
func cpuTime() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	sec := func(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return sec(u.Utime) + sec(u.Stime)
}
