package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/screen"
)

// Board is the content of the screen: what the gateway said last, and the rates of the last polls.
type Board struct {
	last                         *Frame
	problem                      error     // of the last poll, nil when it succeeded
	requests, untaken, published []float64 // the newest last; published: slices again a second
}

// Add takes what was polled, or why nothing was. It drops a frame that comes less than a tenth of a
// second after the one before. After a gateway's restart the rates begin anew.
func (b *Board) Add(f *Frame, err error) {
	b.problem = err
	if err != nil {
		return
	}
	old := b.last
	if old == nil || f.requests < old.requests {
		b.last = f
		return
	}
	seconds := f.Timestamp - old.Timestamp
	if seconds < 0.1 {
		return
	}
	b.last = f
	waiting := 0.0
	for _, w := range f.queues {
		waiting += w.untaken
	}
	b.requests = screen.Push(b.requests, (f.requests-old.requests)/seconds)
	b.untaken = screen.Push(b.untaken, waiting)
	b.published = screen.Push(b.published, max(sum(f.republished)-sum(old.republished), 0)/seconds)
}

func sum(m map[string]float64) (total float64) {
	for _, v := range m {
		total += v
	}
	return total
}

// Render returns at most height lines of at most width columns, separated by line breaks.
func (b *Board) Render(width, height int, colour bool) string {
	p := &page{width: width, height: height, colour: colour}
	f := b.last
	switch {
	case f == nil && b.problem != nil:
		p.add("%s", screen.Printable(b.problem.Error()))
	case f == nil:
		p.add("waiting for the gateway")
	default:
		b.head(p, f)
		p.lanes(f)
		p.models(f)
		p.workers(f)
	}
	return p.String()
}

// head adds the state of the cluster and the rates.
func (b *Board) head(p *page, f *Frame) {
	state := p.paint("32", "ready")
	if !f.Ready {
		state = p.paint("31", "not ready")
	}
	broker := "NATS connected"
	if !f.connected {
		broker = p.paint("31", "NATS away")
	}
	p.add("%s  %s  %s  %d workers  %d models loaded",
		p.paint("1", "SIE cluster"), state, broker, f.Cluster.WorkerCount, f.Cluster.ModelsLoaded)
	if b.problem != nil {
		p.add("%s", p.paint("31", "this is from before: "+screen.Printable(b.problem.Error())))
	}
	var causes []string
	for _, cause := range slices.Sorted(maps.Keys(f.republished)) {
		if n := f.republished[cause]; n > 0 {
			causes = append(causes, fmt.Sprintf("%s %.0f", screen.Printable(cause), n))
		}
	}
	again := ""
	if len(causes) > 0 {
		again = " (" + strings.Join(causes, ", ") + ")"
	}
	p.add("requests %.0f, with a result %.0f, refused by the queue %.0f  dead letters %.0f",
		f.requests, f.answered, f.refused, f.dead)
	p.add("published again %.0f%s", sum(f.republished), again)
	p.add("")
	for _, l := range []struct {
		name string
		line []float64
	}{{"requests/s", b.requests}, {"untaken", b.untaken}, {"again/s", b.published}} {
		now := 0.0
		if len(l.line) > 0 {
			now = l.line[len(l.line)-1]
		}
		columns := max(min(p.width-23, screen.History), 0)
		p.add("%-11s %9s %s", l.name, screen.Count(now), p.paint("36", screen.Spark(l.line, columns)))
	}
}

// page collects lines.
type page struct {
	width, height int
	colour        bool
	lines         []string
}

func (p *page) paint(code, s string) string {
	if !p.colour {
		return s
	}
	return screen.Paint(code, s)
}

func (p *page) add(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// table adds a heading and rows, of which it leaves out those for which there is no room beside
// what else is to come.
func (p *page) table(rest int, heading string, rows []string) {
	p.add("")
	p.add("%s", p.paint("1", heading))
	room := max(p.height-len(p.lines)-rest, 1)
	if len(rows) > room {
		p.lines = append(p.lines, rows[:room-1]...)
		p.add("… %d more", len(rows)-room+1)
		return
	}
	p.lines = append(p.lines, rows...)
}

func (p *page) lanes(f *Frame) {
	var rows []string
	for _, l := range f.Lanes {
		rows = append(rows, fmt.Sprintf("%-50s %5d/%-5d %9d %13d",
			screen.Fit(screen.Printable(l.Pool+"/"+l.Profile+"/"+l.Bundle), 50), l.Ready, l.Workers, l.Items,
			l.FreeCredit))
	}
	p.table(8, fmt.Sprintf("%-50s %-11s %9s %13s", "lane", "ready/all", "pulled", "credit"), rows)
}

// models adds the models that are loaded or have work, those with the most untaken work first.
func (p *page) models(f *Frame) {
	type row struct {
		loaded
		waiting
	}
	all := map[string]*row{}
	for _, m := range f.Models {
		all[m.Name] = &row{loaded: m}
	}
	for key, w := range f.queues {
		r := all[key[3]]
		if r == nil {
			r = &row{loaded: loaded{Name: key[3], State: "not loaded"}}
			all[key[3]] = r
		}
		r.untaken, r.unanswered, r.rate = r.untaken+w.untaken, r.unanswered+w.unanswered, r.rate+w.rate
	}
	var rows []string
	for _, r := range slices.SortedFunc(maps.Values(all), func(x, y *row) int {
		return cmp.Or(cmp.Compare(y.untaken, x.untaken), cmp.Compare(x.Name, y.Name))
	}) {
		rows = append(rows, fmt.Sprintf("%-50s %-10s %7d %9.0f %10.0f %8d %9s",
			screen.Fit(screen.Printable(r.Name), 50), screen.Fit(screen.Printable(r.State), 10),
			r.Workers, r.untaken, r.unanswered, r.Depth, screen.Count(r.rate)))
	}
	p.table(4+min(len(f.Workers), 4), fmt.Sprintf("%-50s %-10s %7s %9s %10s %8s %9s",
		"model", "state", "workers", "untaken", "unanswered", "pulled", "items/s"), rows)
}

func (p *page) workers(f *Frame) {
	var rows []string
	for _, w := range f.Workers {
		state := "away"
		switch {
		case w.Saturated:
			state = "full"
		case w.Healthy:
			state = "ready"
		}
		memory := ""
		if w.MemoryTotal > 0 {
			memory = screen.Size(w.MemoryUsed)
		}
		rows = append(rows, fmt.Sprintf("%-30s %-26s %-6s %6d %7d %7d %9d %11d %10s",
			screen.Fit(screen.Printable(w.Name), 30),
			screen.Fit(screen.Printable(w.Pool+"/"+w.Profile+"/"+w.Bundle), 26), state, len(w.Loaded),
			len(w.Loading), w.QueueDepth, w.PendingCost, w.FreeCredit, memory))
	}
	p.table(0, fmt.Sprintf("%-30s %-26s %-6s %6s %7s %7s %9s %11s %10s",
		"worker", "lane", "state", "loaded", "loading", "pulled", "tokens", "credit", "memory"), rows)
}

// String returns the lines, cut to the page.
func (p *page) String() string {
	lines := p.lines
	if len(lines) > p.height {
		lines = lines[:p.height]
	}
	for i := range lines {
		lines[i] = screen.Fit(lines[i], p.width)
	}
	return strings.Join(lines, "\n")
}
