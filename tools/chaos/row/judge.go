package row

import (
	"fmt"
	"slices"
	"time"

	"github.com/sie-engine/sie/tools/chaos/load"
)

// Demand is what a row demands beyond nothing lost, nothing wrong and nothing answered twice.
type Demand struct {
	// Only200 refuses anything but 200 to raw clients.
	Only200 bool
	// Longest bounds every wait of a raw client; 0: the client's patience alone.
	Longest time.Duration
	// FullRate bounds the time from Window.Back to the full rate.
	FullRate time.Duration
	// Felt is the least that the longest wait of a raw client must be: a fault that nobody feels
	// was none. 0: nothing.
	Felt time.Duration
	// Resets allows raw clients of these gateways a refused or reset connection.
	Resets []int
}

// Window is when the fault was.
type Window struct {
	Fault time.Time // the first signal
	Back  time.Time // everything runs again
	Steps []string  // what was done, with times, for the evidence
}

// Line is what a row shows.
type Line struct {
	Row        string   `json:"row"`
	Topology   string   `json:"topology"`
	Requests   int      `json:"requests"`
	Answered   int      `json:"answered"`
	Lost       int      `json:"lost"`
	Wrong      int      `json:"wrong"`
	Duplicated int      `json:"duplicated"`
	Refused    int      `json:"refused"` // with Retry-After: 503, and 202 where it is allowed
	Reset      int      `json:"reset"`   // connections of killed gateways
	RunTwice   int      `json:"run_twice"`
	LongestS   float64  `json:"longest_wait_s"` // of a raw client
	SDKLongest float64  `json:"longest_sdk_call_s"`
	ToFullS    float64  `json:"seconds_to_full_rate"`
	TookS      float64  `json:"took_s"`           // the row, with the return to the start
	Broken     []string `json:"broken,omitempty"` // requirements, each with its first evidence
	NotRun     string   `json:"not_run,omitempty"`
	Steps      []string `json:"steps,omitempty"`
}

// resetGrace is how long after its process has ended a connection may still be found closed.
const resetGrace = 2 * time.Second

// Judge returns the line of a row. steady is the rate of raw answers before the fault, a second.
func Judge(name string, d Demand, w Window, steady float64, records []load.Record) Line {
	l := Line{Row: name, Requests: len(records), Steps: w.Steps, ToFullS: -1}
	for i := range records {
		r := &records[i]
		if r.Second {
			l.Duplicated++
			l.breaks(l.Duplicated, "duplicated", r, w)
		}
		if r.Client != "raw" {
			l.SDKLongest = max(l.SDKLongest, r.Wait().Seconds())
		} else if l.LongestS = max(l.LongestS, r.Wait().Seconds()); d.Longest > 0 && r.Wait() > d.Longest {
			l.breaks(1, fmt.Sprintf("waited more than %v", d.Longest), r, w)
		}
		switch {
		case r.Verdict == load.OK:
			l.Answered++
		case r.Verdict == load.Wrong:
			l.Wrong++
			l.breaks(l.Wrong, "wrong", r, w)
		case r.Verdict == load.Refused || r.Verdict == load.Accepted:
			l.Refused++
			if d.Only200 {
				l.breaks(l.Refused, "only 200 is allowed here", r, w)
			}
		case r.Verdict == load.Reset && allowsReset(d, w, r):
			l.Reset++
		default:
			l.Lost++
			l.breaks(l.Lost, "lost", r, w)
		}
	}
	if l.LongestS < d.Felt.Seconds() {
		l.Broken = append(l.Broken, fmt.Sprintf("nobody felt the fault: the longest wait was %.1f s, less than %v",
			l.LongestS, d.Felt))
	}
	l.ToFullS = toFullRate(w.Back, steady, records)
	if d.FullRate > 0 && (l.ToFullS < 0 || l.ToFullS > d.FullRate.Seconds()) {
		l.Broken = append(l.Broken,
			fmt.Sprintf("full rate after %.1f s (-1: not seen), more than %v: %.1f a second "+
				"before the fault; back at %s", l.ToFullS, d.FullRate, steady, clock(w.Back)))
		l.Broken = append(l.Broken, held(w.Back, records)...)
	}
	if steady == 0 {
		l.Broken = append(l.Broken, "no request was answered before the fault")
	}
	return l
}

// allowsReset reports whether the gateway of a request was one that died, while the request was
// open or before it was back.
func allowsReset(d Demand, w Window, r *load.Record) bool {
	return r.Client == "raw" && slices.Contains(d.Resets, r.Gateway) &&
		r.End.After(w.Fault.Add(-time.Millisecond)) && r.Start.Before(w.Back.Add(resetGrace))
}

// breaks notes the first record of a kind as evidence.
func (l *Line) breaks(nth int, what string, r *load.Record, w Window) {
	if nth != 1 || len(l.Broken) >= maxBroken {
		return
	}
	l.Broken = append(l.Broken, fmt.Sprintf(
		"%s: request %s (%s, %s, gateway %d, %d items) from %s to %s, %.1f s after the fault: %s: %s",
		what, r.ID,
		r.Client, r.Op, r.Gateway, r.Items, clock(r.Start), clock(r.End), r.Start.Sub(w.Fault).Seconds(),
		r.Verdict, r.Why))
}

// maxBroken bounds the evidence of a line.
const maxBroken = 10

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// The window in which the rate is taken, and the share of the steady rate that counts as full.
const (
	rateWindow = time.Second
	rateStep   = 100 * time.Millisecond
	fullShare  = 0.9
)

// toFullRate returns the seconds from back to the begin of the first window with the full rate of
// raw answers, -1 if there is none.
func toFullRate(back time.Time, steady float64, records []load.Record) float64 {
	var ends []time.Time
	for i := range records {
		if r := &records[i]; r.Client == "raw" && r.Verdict == load.OK && r.End.After(back) {
			ends = append(ends, r.End)
		}
	}
	if len(ends) == 0 {
		return -1
	}
	slices.SortFunc(ends, time.Time.Compare)
	last := ends[len(ends)-1]
	for from := back; !from.Add(rateWindow).After(last); from = from.Add(rateStep) {
		lo, _ := slices.BinarySearchFunc(ends, from, time.Time.Compare)
		hi, _ := slices.BinarySearchFunc(ends, from.Add(rateWindow), time.Time.Compare)
		if float64(hi-lo) >= fullShare*steady*rateWindow.Seconds() {
			return from.Sub(back).Seconds()
		}
	}
	return -1
}

// held returns the requests of raw clients that were open at back and ended last, as evidence of
// what held up the rate: a client has one request open at a time.
func held(back time.Time, records []load.Record) []string {
	var open []*load.Record
	for i := range records {
		if r := &records[i]; r.Client == "raw" && r.Start.Before(back) && r.End.After(back) {
			open = append(open, r)
		}
	}
	slices.SortFunc(open, func(a, b *load.Record) int { return b.End.Compare(a.End) })
	var all []string
	for _, r := range open[:min(len(open), maxBroken)] {
		all = append(all, fmt.Sprintf("open at %s: request %s (%s of %s, gateway %d, %d items) from %s to %s: %s",
			clock(back), r.ID, r.Op, r.Model, r.Gateway, r.Items, clock(r.Start), clock(r.End), r.Verdict))
	}
	return all
}

// Rate returns the raw answers a second between two times.
func Rate(from, to time.Time, records []load.Record) float64 {
	n := 0
	for i := range records {
		if r := &records[i]; r.Client == "raw" && r.Verdict == load.OK && r.End.After(from) &&
			!r.End.After(to) {
			n++
		}
	}
	return float64(n) / to.Sub(from).Seconds()
}
