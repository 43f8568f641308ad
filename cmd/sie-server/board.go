package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/api"
)

// historyLength is the number of points that a line of the board has.
const historyLength = 60

// board is the content of the screen: the last frame, and the rates of the last frames.
type board struct {
	last                    *api.Status
	requests, tokens, queue []float64 // requests and tokens per second, queued items; the newest last
	batch, busy             float64
}

// add takes a frame and computes the rates since the last one. It drops a frame that comes less
// than a tenth of a second later.
func (b *board) add(f *api.Status) {
	old := b.last
	if old == nil {
		b.last = f
		return
	}
	seconds := f.Timestamp - old.Timestamp
	if seconds < 0.1 {
		return
	}
	b.last = f
	a, o := &f.Activity, &old.Activity
	b.requests = push(b.requests, float64(a.Requests-o.Requests)/seconds)
	b.tokens = push(b.tokens, float64(a.Tokens-o.Tokens)/seconds)
	waiting := 0
	for _, m := range f.Models {
		waiting += m.QueuePendingItems
	}
	b.queue = push(b.queue, float64(waiting))
	b.batch, b.busy = 0, (a.BusySeconds-o.BusySeconds)/seconds/float64(max(len(f.GPUs), 1))
	if n := a.Batches - o.Batches; n > 0 {
		b.batch = float64(a.BatchItems-o.BatchItems) / float64(n)
	}
}

func push(line []float64, v float64) []float64 {
	if len(line) == historyLength {
		line = line[1:]
	}
	return append(line, v)
}

// render returns at most height lines of at most width columns, separated by line breaks.
func (b *board) render(width, height int, colour bool) string {
	f := b.last
	if f == nil {
		return "waiting for the server"
	}
	paint := func(code, s string) string {
		if !colour {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	state := paint("32", "ready")
	if f.Saturated {
		state = paint("31", "full")
	} else if !f.Ready {
		state = paint("31", "not ready")
	}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	add("%s %s  %s  %s  up %s",
		paint("1", "SIE"), f.Server.Version, state, printable(f.Name), uptime(f.Server.UptimeSeconds))
	for _, g := range f.GPUs {
		add("%s %s  %d %%  %s of %s",
			g.Device, printable(g.Name), g.UtilizationPct, size(g.MemoryUsedBytes), size(g.MemoryTotalBytes))
	}
	add("memory %s of %s  running %d  failed %d", size(f.Activity.MemoryUsedBytes),
		size(f.Activity.MemoryTotalBytes), f.Activity.Running, f.Activity.Failed)
	add("device busy %3.0f %%  items a batch %.1f", 100*min(b.busy, 1), b.batch)
	add("")
	for _, l := range []struct {
		name string
		line []float64
	}{{"requests/s", b.requests}, {"tokens/s", b.tokens}, {"queued", b.queue}} {
		now := 0.0
		if len(l.line) > 0 {
			now = l.line[len(l.line)-1]
		}
		add("%-11s %9s %s",
			l.name, count(now), paint("36", spark(l.line, max(min(width-23, historyLength), 0))))
	}
	add("")
	add("%s", paint("1", fmt.Sprintf("%-50s %-10s %10s %7s %9s %9s",
		"model", "state", "memory", "queued", "p50 ms", "wait ms")))
	models := slices.Clone(f.Models)
	slices.SortStableFunc(models,
		func(x, y api.ModelStatus) int { return cmp.Compare(rank(x.State), rank(y.State)) })
	for i, m := range models {
		if left := height - len(lines); left <= 1 && i < len(models)-1 {
			add("… %d more", len(models)-i)
			break
		}
		memory, p50, wait := "", "", ""
		if m.MemoryBytes > 0 {
			memory = size(m.MemoryBytes)
		}
		if m.AdaptiveBatching != nil {
			p50, wait = fmt.Sprintf("%.1f", m.AdaptiveBatching.P50MS), fmt.Sprintf("%.1f",
				m.AdaptiveBatching.WaitMS)
		}
		add("%-50s %-10s %10s %7d %9s %9s",
			fit(printable(m.Name), 50), m.State, memory, m.QueuePendingItems, p50, wait)
	}
	if len(lines) > height {
		lines = lines[:height]
	}
	for i := range lines {
		lines[i] = fit(lines[i], width)
	}
	return strings.Join(lines, "\n")
}

// rank sorts models that are changing state, or failed, before loaded ones, and those before
// others.
func rank(state string) int {
	states := []string{"loading", "unloading", "failed", "loaded"}
	if i := slices.Index(states, state); i >= 0 {
		return i
	}
	return len(states)
}

// spark draws the last n values in eighths of a block. The largest value is a whole block.
func spark(values []float64, n int) string {
	values = values[max(len(values)-n, 0):]
	high := 0.0
	for _, v := range values {
		high = max(high, v)
	}
	var s strings.Builder
	for _, v := range values {
		level := 0
		if high > 0 {
			level = int(min(max(v/high, 0), 1)*7 + 0.5)
		}
		s.WriteRune([]rune("▁▂▃▄▅▆▇█")[level])
	}
	return s.String()
}

// fit cuts s to n columns. Colour codes take no columns, and a cut ends the colour.
func fit(s string, n int) string {
	columns, escape, coloured := 0, false, false
	for i, r := range s {
		switch {
		case r == '\x1b':
			escape, coloured = true, true
		case escape:
			escape = r != 'm'
		case columns == n:
			if coloured {
				return s[:i] + "\x1b[0m"
			}
			return s[:i]
		default:
			columns++
		}
	}
	return s
}

// printable replaces control characters, so that a server's text cannot move the cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

func count(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1f k", v/1e3)
	}
	return fmt.Sprintf("%.1f", v)
}

func uptime(seconds int) string {
	switch {
	case seconds >= 86400:
		return fmt.Sprintf("%d d %d h", seconds/86400, seconds%86400/3600)
	case seconds >= 3600:
		return fmt.Sprintf("%d h %d min", seconds/3600, seconds%3600/60)
	}
	return fmt.Sprintf("%d min %d s", seconds/60, seconds%60)
}
