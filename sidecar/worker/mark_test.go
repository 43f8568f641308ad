package worker

import (
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/work"
)

// A slice that is answered within firstMark has no mark; one in hand for longer has its first then,
// and further ones MarkInterval apart.
func TestTheFirstMarkWaits(t *testing.T) {
	c := newCore(lane, "w", 30*time.Second, newSim(t, 1))
	c.now = time.Unix(1_700_000_000, 0)
	c.server.up, c.server.heard = true, c.now
	quick := &slice{item: work.Item{WorkItemID: "quick"}, state: queued}
	slow := &slice{item: work.Item{WorkItemID: "slow"}, state: queued}
	for _, s := range []*slice{quick, slow} {
		c.slices[s.item.WorkItemID] = s
		s.mark = c.now.Add(firstMark)
		c.fresh = append(c.fresh, s)
	}
	c.forget(quick)
	c.now = c.now.Add(firstMark - time.Nanosecond)
	c.visit()
	if len(c.fresh) != 2 || len(c.marks) != 0 {
		t.Errorf("early: %d fresh, %d marked", len(c.fresh), len(c.marks))
	}
	c.now = c.now.Add(time.Nanosecond)
	c.visit()
	if len(c.fresh) != 0 || len(c.marks) != 1 || c.marks[0] != slow {
		t.Errorf("then: %d fresh, marked %v", len(c.fresh), c.marks)
	}
	if want := c.now.Add(work.MarkInterval); !slow.mark.Equal(want) {
		t.Errorf("the next mark is due at %v, not %v", slow.mark, want)
	}
	if quick.data != nil || quick.entry != nil {
		t.Error("what was forgotten is kept")
	}
}
