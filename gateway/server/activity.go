package server

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

// activityView is what this gateway has done since it started. Its rates are those of two frames.
type activityView struct {
	Requests uint64 `json:"requests"` // that have ended
	Answered uint64 `json:"answered"` // of them with a result
	Items    uint64 `json:"items"`    // of those
	Tokens   uint64 `json:"tokens"`
	// Failed holds the requests without a result, by the code of their error in lower case.
	Failed map[string]uint64 `json:"failed"`
}

// activity counts requests as they end. Its methods are safe for concurrent use.
type activity struct {
	mu   sync.Mutex
	done activityView
}

// otherReason stands for codes that this release does not know: a worker must not make up names.
const otherReason = "other"

// ended counts a request. o is nil unless it has a result.
func (a *activity) ended(o *api.Outcome, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := &a.done
	d.Requests++
	switch e := errs.As(err); {
	case e == nil:
		d.Answered++
		if o != nil {
			d.Items, d.Tokens = d.Items+uint64(max(o.Items, 0)), d.Tokens+uint64(max(o.Tokens, 0))
		}
	case errors.Is(err, admit.ErrClientGone):
	default:
		reason := otherReason
		if errs.Lookup(e.Code).Code == e.Code {
			reason = strings.ToLower(string(e.Code))
		}
		if d.Failed == nil {
			d.Failed = map[string]uint64{}
		}
		d.Failed[reason]++
	}
}

// now returns what was counted. Failed is never nil.
func (a *activity) now() activityView {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.done
	v.Failed = make(map[string]uint64, len(a.done.Failed))
	for reason, n := range a.done.Failed {
		v.Failed[reason] = n
	}
	return v
}

// Waiting is this gateway's work for one model in one lane.
type Waiting struct {
	Lane                bus.Lane // the operator's, whose workers do it
	Model               string
	Untaken, Unanswered int     // items
	Rate                float64 // items answered in a second while others wait; 0: not known
}

// queueView is a Waiting as frames show it.
type queueView struct {
	Pool       string  `json:"pool"`
	Profile    string  `json:"machine_profile"`
	Bundle     string  `json:"bundle"`
	Model      string  `json:"model"`
	Untaken    int     `json:"untaken_items"`
	Unanswered int     `json:"unanswered_items"`
	Rate       float64 `json:"items_per_second"`
}

// maxQueues bounds the queues of a frame, the longest first.
const maxQueues = 256

// queues returns this gateway's work by lane and model.
func (s *Server) queues() []queueView {
	out := []queueView{}
	if s.opt.Queues == nil {
		return out
	}
	at := map[queueView]int{} // by what names it
	for _, w := range s.opt.Queues() {
		key := queueView{Pool: w.Lane.Pool, Profile: w.Lane.Profile, Bundle: w.Lane.Bundle, Model: w.Model}
		i, known := at[key]
		if !known {
			i = len(out)
			at[key] = i
			out = append(out, key)
		}
		v := &out[i]
		v.Untaken, v.Unanswered, v.Rate = v.Untaken+w.Untaken, v.Unanswered+w.Unanswered, v.Rate+w.Rate
	}
	slices.SortFunc(out, func(a, b queueView) int {
		return cmp.Or(cmp.Compare(b.Unanswered, a.Unanswered), strings.Compare(a.Model, b.Model),
			strings.Compare(a.Pool, b.Pool), strings.Compare(a.Profile, b.Profile),
			strings.Compare(a.Bundle, b.Bundle))
	})
	return out[:min(len(out), maxQueues)]
}

// usage answers GET /v1/usage with what the caller may see of the tenants.
func (s *Server) usage(r *httpd.Request, _ string) {
	answer(r, map[string]any{"tenants": s.opt.Keys.Usage(r.Tenant())})
}
