package worker

import (
	"slices"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/sidecar/control"
)

// The times of configurations.
const (
	holdFor    = 5 * time.Second // a slice of another configuration, until it goes back
	nakBehind  = time.Second     // then another worker, or this one, has it
	giveFirst  = 250 * time.Millisecond
	giveLast   = 5 * time.Second
	staleRetry = time.Second // of a caller whose request is of a configuration that is gone
)

// config is what is known of the models' configuration.
type config struct {
	follows bool            // there is a sie-config
	wanted  *control.Export // that was read last; nil: none was
	asked   time.Time       // when the question began whose answer was wanted
	given   *control.Export // that the server has; nil: what its own files say
	giving  bool            // a call that gives wanted runs
	giveAt  time.Time       // the next
	backoff time.Duration
	refused string // why the server did not take wanted
	// unsupported holds the models of given that the server can never run, sorted, at most
	// bus.MaxHeartbeatModels: of more the server itself says so when it is asked to load one
	unsupported []string
	held        []*slice // whose configuration this worker does not have; at most maxInHand
}

// read is told what sie-config has and when the question began.
func (c *core) read(e *control.Export, asked time.Time) {
	f := &c.config
	if f.wanted != e {
		f.giveAt, f.backoff, f.refused = c.now, giveFirst, ""
	}
	f.wanted, f.asked, c.scan = e, asked, true
}

// give gives the server what it shall have, unless it has it.
func (c *core) give() {
	f := &c.config
	if f.wanted == nil || f.wanted == f.given || f.giving || !c.responsive() || f.giveAt.After(c.now) {
		return
	}
	f.giving = true
	c.do.give(f.wanted)
}

// gave is told what the server made of an export.
func (c *core) gave(e *control.Export, r *ipc.ConfigResponse, err error) {
	f := &c.config
	f.giving, c.scan = false, true
	if err != nil {
		f.giveAt = c.now.Add(f.backoff)
		f.backoff = min(2*f.backoff, giveLast)
		if text := err.Error(); text != f.refused {
			f.refused = text
			c.do.log("warn", "the server did not take the models of sie-config", nil, err)
		}
		return
	}
	old := f.given
	f.given = e
	// of its own files: a model that is configured as before stays loaded
	same := old == nil && r.BundleConfigHash != "" && r.BundleConfigHash == c.server.last.BundleConfigHash
	if e.Hash != "" && r.BundleConfigHash != e.Hash {
		c.do.log("warn", "the server's models hash differently from those of sie-config: "+
			"is it of another version?", nil, nil)
	}
	c.server.last.BundleConfigHash = r.BundleConfigHash
	c.server.last.BundleDocumentsHash = r.BundleDocumentsHash
	f.unsupported = slices.Sorted(slices.Values(r.UnsupportedModels))
	f.unsupported = slices.Compact(f.unsupported[:min(len(f.unsupported), bus.MaxHeartbeatModels)])
	c.beat.soon = true
	for id, m := range c.models {
		m.missed = time.Time{}
		changed := old == nil || !e.Gated() || old.ModelHash(id) != e.ModelHash(id) ||
			old.DocumentHash(id) != e.DocumentHash(id)
		if m.state == failed || m.state != cold && changed && !same {
			m.asking = false
			c.become(m, cold) // the server may load it again
		}
	}
	for _, s := range c.slices { // they were of the configuration before
		if s.state == queued && c.other(s) {
			s.model.remove(s)
			c.alone = without(c.alone, s)
			c.hold(s)
		}
	}
	c.do.capabilities()
}

// forgotten is called when the server is another process: it has what its own files say.
func (c *core) forgotten() {
	f := &c.config
	f.given, f.giving, f.giveAt, f.backoff, f.unsupported = nil, false, c.now, giveFirst, nil
}

// leaves reports whether a model that the server can never run is left to workers that may run it.
// Where there are none, it is tried, and what waits is answered with what the server says of it.
func (c *core) leaves(model string) bool {
	_, unsupported := slices.BinarySearch(c.config.unsupported, model)
	return unsupported && c.peers.Able(model)
}

// current reports whether the server has what sie-config had at a time or later.
func (c *core) current(since time.Time) bool {
	f := &c.config
	return f.wanted != nil && f.given == f.wanted && f.asked.After(since)
}

// other reports whether a slice is of another configuration of its model than the server has. The
// server compares them too; this comparison is what holds a slice until the server has caught up.
//
// The config hash leaves out most of a model's document, so all that it says is compared too, where
// the gateway and sie-config tell it. A server that was not given yet what was read from sie-config
// says nothing of its own files' documents.
func (c *core) other(s *slice) bool {
	it, e := &s.item, c.config.given
	document := it.ModelDocumentHash
	if e == nil {
		return document != "" && c.config.wanted != nil && c.config.wanted.Documents != nil
	}
	return e.Gated() && it.ModelConfigHash != "" && e.ModelHash(it.ModelID) != it.ModelConfigHash ||
		e.Documents != nil && document != "" && e.DocumentHash(it.ModelID) != document
}

// hold keeps a slice until this worker has its configuration, or holdFor has passed.
func (c *core) hold(s *slice) {
	s.state, s.heldUntil = held, c.now.Add(holdFor)
	c.config.held = append(c.config.held, s)
	c.do.askConfig()
}

// release looks at the slices that are held.
func (c *core) release() {
	all := c.config.held
	c.config.held = nil
	for _, s := range all {
		switch {
		case c.slices[s.item.WorkItemID] != s || s.state != held: // it was forgotten
		case !c.other(s):
			c.enqueue(s)
		case c.current(s.taken):
			// Its gateway did not know of the change yet. Its other slices may run under the
			// configuration before, so it must not run under this one.
			c.do.count("config_stale", "")
			c.keep(s, s.refusal(c.self, errs.NotStarted("The configuration of model '"+s.item.ModelID+
				"' was changed before the request ran", staleRetry)))
		case c.now.After(s.heldUntil):
			c.giveBack(s, nakBehind, "config_behind")
		default:
			c.config.held = append(c.config.held, s)
		}
	}
}

// unknown handles the server's answer that it has no model of an id. It reports whether that is
// final: while sie-config has not been asked since, or the server does not have its answer, the
// model may be a new one.
func (c *core) unknown(m *model, later time.Duration) (final bool) {
	if !c.config.follows || !m.missed.IsZero() && c.current(m.missed) {
		return true
	}
	if m.missed.IsZero() {
		m.missed = c.now
		c.do.askConfig()
	}
	m.askAt = c.now.Add(later)
	if c.now.Sub(m.missed) > holdFor { // another worker may have it
		m.missed = time.Time{}
		c.fail(m, errs.NotStarted("This worker does not know the model '"+m.id+"' yet", nakBehind))
		m.until = c.now.Add(nakBehind)
	}
	return false
}
