package server

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
)

// Requests are counted as they end, failures by codes that this release knows.
func TestActivity(t *testing.T) {
	var a activity
	if v := a.now(); v.Failed == nil || v.Requests != 0 {
		t.Errorf("%+v", v)
	}
	a.ended(&api.Outcome{Items: 3, Tokens: 40}, nil)
	a.ended(nil, nil)
	a.ended(nil, admit.ErrClientGone)
	a.ended(nil, errs.UnknownModel("m"))
	a.ended(nil, errs.UnknownModel("n"))
	a.ended(nil, errors.New("a bug"))
	a.ended(nil, &errs.Error{Code: "MADE_UP_BY_A_WORKER", Status: 503})
	v := a.now()
	want := map[string]uint64{"model_not_found": 2, "internal_error": 1, "other": 1}
	if v.Requests != 7 || v.Answered != 2 || v.Items != 3 || v.Tokens != 40 || !maps.Equal(v.Failed, want) {
		t.Errorf("%+v", v)
	}
	v.Failed["x"] = 1
	if a.now().Failed["x"] != 0 {
		t.Error("what was given out is changed")
	}
}

// The frame adds up what waits in the lanes of one pool's workers, the longest queue first, and has
// not more queues than it may.
func TestQueuesOfAFrame(t *testing.T) {
	var all []Waiting
	r := start(t, func(o *Options) { o.Queues = func() []Waiting { return all } })
	if got := r.view().Queues; got == nil || len(got) != 0 {
		t.Errorf("%v", got)
	}
	all = []Waiting{{testLanes[0], "org/a", 1, 2, 3}, {testLanes[1], "org/a", 0, 9, 0},
		{testLanes[0], "org/a", 10, 20, 30}, {testLanes[0], "org/b", 0, 22, 0}}
	want := []queueView{{"default", "l4", "default", "org/a", 11, 22, 33},
		{"default", "l4", "default", "org/b", 0, 22, 0}, {"team", "h100", "fast", "org/a", 0, 9, 0}}
	if got := r.view().Queues; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i := range 2 * maxQueues {
		all = append(all, Waiting{Lane: bus.Lane{Pool: string(rune('a' + i%26)), Profile: "p", Bundle: "b"},
			Model: string(rune('a' + i)), Unanswered: i})
	}
	if got := r.view().Queues; len(got) != maxQueues || got[0].Unanswered != 2*maxQueues-1 {
		t.Errorf("%d queues, the first %+v", len(got), got[0])
	}
}
