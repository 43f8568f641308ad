package worker

import (
	"slices"
	"time"
)

// pinRetry is the time until a server that did not take the pinned models is asked again.
const pinRetry = time.Second

// pins is what is known of the models that a client's pool pins. All its workers have them loaded,
// and their servers unload none of them while the pool has the worker.
type pins struct {
	wanted  []string // models of the pool that this worker serves
	has     []string // that the server was told
	telling bool     // a call that tells it runs
	at      time.Time
}

// pin takes the models that are pinned from now on, in place of those before.
func (c *core) pin(models []string) {
	if !slices.Equal(c.pins.wanted, models) {
		c.pins.wanted, c.pins.at = models, c.now
		c.dirty, c.scan = true, true
	}
}

// tellPins tells the server which models are pinned, unless it knows.
func (c *core) tellPins() {
	p := &c.pins
	if p.telling || p.at.After(c.now) || !c.responsive() || slices.Equal(p.wanted, p.has) {
		return
	}
	p.telling = true
	c.do.pin(p.wanted)
}

// pinned is told whether the server has taken them.
func (c *core) pinned(models []string, err error) {
	p := &c.pins
	if !p.telling {
		return // by a process that has ended
	}
	p.telling, c.scan = false, true
	if err != nil {
		p.at = c.now.Add(pinRetry)
		c.do.log("warn", "the server did not take the models that the pool pins", nil, err)
		return
	}
	p.has = models
}

// unpinned is called when the server is another process, which pins none of a pool's models.
func (c *core) unpinned() { c.pins.has, c.pins.telling = nil, false }

// loadPinned has the pinned models loaded.
func (c *core) loadPinned() {
	for _, id := range c.pins.wanted {
		if m := c.model(id); m != nil {
			c.want(m)
		}
	}
}
