package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/screen"
)

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
	b.requests = screen.Push(b.requests, float64(a.Requests-o.Requests)/seconds)
	b.tokens = screen.Push(b.tokens, float64(a.Tokens-o.Tokens)/seconds)
	waiting := 0
	for _, m := range f.Models {
		waiting += m.QueuePendingItems
	}
	b.queue = screen.Push(b.queue, float64(waiting))
	b.batch, b.busy = 0, (a.BusySeconds-o.BusySeconds)/seconds/float64(max(len(f.GPUs), 1))
	if n := a.Batches - o.Batches; n > 0 {
		b.batch = float64(a.BatchItems-o.BatchItems) / float64(n)
	}
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
		return screen.Paint(code, s)
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
		paint("1", "SIE"), f.Server.Version, state, screen.Printable(f.Name),
		screen.Uptime(f.Server.UptimeSeconds))
	for _, g := range f.GPUs {
		add("%s %s  %d %%  %s of %s",
			g.Device, screen.Printable(g.Name), g.UtilizationPct,
			screen.Size(g.MemoryUsedBytes), screen.Size(g.MemoryTotalBytes))
	}
	add("memory %s of %s  running %d  failed %d", screen.Size(f.Activity.MemoryUsedBytes),
		screen.Size(f.Activity.MemoryTotalBytes), f.Activity.Running, f.Activity.Failed)
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
		columns := max(min(width-23, screen.History), 0)
		add("%-11s %9s %s", l.name, screen.Count(now), paint("36", screen.Spark(l.line, columns)))
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
			memory = screen.Size(m.MemoryBytes)
		}
		if m.AdaptiveBatching != nil {
			p50, wait = fmt.Sprintf("%.1f", m.AdaptiveBatching.P50MS), fmt.Sprintf("%.1f",
				m.AdaptiveBatching.WaitMS)
		}
		add("%-50s %-10s %10s %7d %9s %9s",
			screen.Fit(screen.Printable(m.Name), 50), m.State, memory, m.QueuePendingItems, p50, wait)
	}
	if len(lines) > height {
		lines = lines[:height]
	}
	for i := range lines {
		lines[i] = screen.Fit(lines[i], width)
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
