package batch

import (
	"fmt"
	"slices"
	"time"
)

// plain is a model of a device and its queues made of lists. It decides no times: the test reports
// each event to it and asks which states are allowed.
type plain struct {
	devices, slots int
	lost           map[int]bool
	running        map[*plainBatch]bool
	lanes          []*plainLane
}

type plainLane struct {
	kind     laneKind
	opt      Options
	maxItems int
	maxBytes int64
	items    []*plainItem
	waiting  [][]*plainItem // chunks
	arrived  time.Time
	owed     bool               // was due at the last call of look
	passed   map[*plainLane]int // batches that have left since, in slots that this lane could have used
}

type plainItem struct {
	id     int32
	tokens int
	at     time.Time
	group  *Group
	ran    int
}

type plainBatch struct {
	lane   *plainLane
	device int
	ids    []int32
	items  []*plainItem // once taken
}

// gone reports that no caller waits for the item any more.
func (it *plainItem) gone() bool { return it.group.gone(time.Now()) }

func (l *plainLane) tokens() (n int) {
	for _, it := range l.items {
		n += it.tokens
	}
	return n
}

func (l *plainLane) fits(chunk []*plainItem) bool {
	n := l.tokens()
	for _, it := range chunk {
		n += it.tokens
	}
	return len(l.items) == 0 || len(l.items)+len(chunk) <= l.maxItems && 4*int64(n) <= l.maxBytes
}

func (l *plainLane) join(chunk []*plainItem) {
	for _, it := range chunk {
		it.at = time.Now()
	}
	l.items, l.arrived = append(l.items, chunk...), time.Now()
}

// admit moves waiting chunks into the lane, in order.
func (l *plainLane) admit() {
	for len(l.waiting) > 0 && l.fits(l.waiting[0]) {
		l.join(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}

// take removes a batch: the first items that are not gone, in order.
func (l *plainLane) take(ids []int32) ([]*plainItem, error) {
	var out []*plainItem
	for len(out) < len(ids) {
		if len(l.items) == 0 {
			l.admit() // all before it were gone
		}
		if len(l.items) == 0 {
			return nil, fmt.Errorf("items %v left, which are not in the lane", ids)
		}
		it := l.items[0]
		l.items = l.items[1:]
		if it.id == ids[len(out)] {
			out = append(out, it)
		} else if !it.gone() {
			return nil, fmt.Errorf("item %d was overtaken by %d of its own lane", it.id, ids[len(out)])
		}
	}
	return out, nil
}

// eligible reports whether a device has a free slot for a batch of the kind. idle: one such device
// has no batch of the kind in flight.
func (p *plain) eligible(c laneKind) (free, idle bool) {
	for device := range p.devices {
		busy, of := 0, 0
		for b := range p.running {
			if b.device == device {
				busy++
				if b.lane.kind == c {
					of++
				}
			}
		}
		if !p.lost[device] && busy < p.slots && (c == short || of == 0) {
			free, idle = true, idle || of == 0
		}
	}
	return free, idle
}

// mayHave reports whether the lane's kind may use a slot of the device if one is free.
func (p *plain) mayHave(l *plainLane, device int) bool {
	for b := range p.running {
		if b.device == device && b.lane.kind == long && l.kind == long {
			return false
		}
	}
	return !p.lost[device]
}

// due reports whether a batch should have left if a slot was free.
func (l *plainLane) due(idle bool) bool {
	now := time.Now()
	if len(l.items) == 0 || !slices.ContainsFunc(l.items, func(it *plainItem) bool { return !it.gone() }) {
		return false
	}
	return idle || l.tokens() >= l.opt.MaxCost || len(l.items) >= l.opt.MaxRequests ||
		now.Sub(l.items[0].at) > l.opt.MaxWait || now.Sub(l.arrived) > min(l.opt.Coalesce, l.opt.MaxWait/2)
}
