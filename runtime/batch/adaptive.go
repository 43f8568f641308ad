package batch

import (
	"math"
	"slices"
	"time"
)

// AdaptiveOptions are the constants of the latency controller. Zero fields take the defaults, which
// are those of the reference server 0.10.
type AdaptiveOptions struct {
	Disabled              bool
	TargetP50             time.Duration // 0: calibrated from the first inference times
	CalibrationMultiplier float64       // 1.5
	MinTargetP50          time.Duration // 5 ms
	MaxTargetP50          time.Duration // 500 ms
	MinWait               time.Duration // 15 ms
	MaxWait               time.Duration // 50 ms
	Gain                  float64       // 0.3
	IntegralGain          float64       // 0.05
	Window                int           // 200 request totals
	UpdateInterval        int           // every 10 batches
}

func (o *AdaptiveOptions) setDefaults() {
	def := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	deff := func(p *float64, v float64) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.MinTargetP50, 5*time.Millisecond)
	def(&o.MaxTargetP50, 500*time.Millisecond)
	def(&o.MinWait, 15*time.Millisecond)
	def(&o.MaxWait, 50*time.Millisecond)
	deff(&o.CalibrationMultiplier, 1.5)
	deff(&o.Gain, 0.3)
	deff(&o.IntegralGain, 0.05)
	if o.Window == 0 {
		o.Window = 200
	}
	if o.UpdateInterval == 0 {
		o.UpdateInterval = 10
	}
}

const (
	calibrationWindow = 50  // inference times kept for calibration, and batches in the mean fill
	minSamples        = 10  // with fewer samples the controller does nothing
	fillForCost       = 0.7 // the batch cost changes only if batches are at least this full on average
	// consecutive one-item batches, with wait and cost at their minimum, after which both are
	// raised
	starvationRounds    = 20
	integralLimit       = 20.0
	integralHalfLifeAge = 2.0 // the integral decays when two steps are more seconds apart than this
)

// controller sets the batch wait and the batch cost so that the median request time stays near a
// target: a proportional-integral step every UpdateInterval batches. Not safe for concurrent use.
type controller struct {
	opt       AdaptiveOptions
	tokens    int // the profile's bound on a batch's tokens, which is the largest cost
	startWait time.Duration

	wait       time.Duration
	cost       int
	target     float64 // ms; 0 before calibration
	integral   float64
	lastStep   time.Time
	rounds     int
	lone       int
	inference  ring
	totals     ring
	fill       ring
	p50        float64
	headroom   float64
	calibrated bool
}

func newController(o AdaptiveOptions, wait time.Duration, tokens int) *controller {
	o.setDefaults()
	c := &controller{opt: o, tokens: tokens, startWait: wait, wait: wait, cost: tokens,
		inference: newRing(calibrationWindow), totals: newRing(o.Window), fill: newRing(calibrationWindow)}
	if o.TargetP50 > 0 {
		c.target, c.calibrated = ms(o.TargetP50), true
	}
	return c
}

func (c *controller) costFloor() int { return min(c.tokens, max(256, c.tokens/4)) }

// batchDone records the run time, cost and number of items of one batch. Every UpdateInterval
// batches it takes a step.
func (c *controller) batchDone(run time.Duration, cost, items int, now time.Time) {
	if c.opt.Disabled {
		return
	}
	c.inference.add(ms(run))
	c.fill.add(float64(cost) / float64(max(1, c.cost)))
	if items <= 1 && c.wait <= c.opt.MinWait && c.cost <= c.costFloor() {
		c.lone++
	} else {
		c.lone = 0
	}
	if c.lone >= starvationRounds {
		c.wait += (c.startWait - c.wait) / 2
		c.cost += (c.tokens - c.cost) / 2
		c.integral, c.lone = 0, 0
	}
	if c.rounds++; c.rounds%c.opt.UpdateInterval == 0 {
		c.step(now)
	}
}

// requestDone records the total time of one finished request.
func (c *controller) requestDone(total time.Duration) {
	if !c.opt.Disabled {
		c.totals.add(ms(total))
	}
}

func (c *controller) step(now time.Time) {
	if !c.calibrated {
		if c.inference.len() >= minSamples {
			c.target = clamp(c.inference.p50()*c.opt.CalibrationMultiplier, ms(c.opt.MinTargetP50),
				ms(c.opt.MaxTargetP50))
			c.calibrated = true
		}
		return
	}
	if c.totals.len() < minSamples {
		return
	}
	dt := 0.0
	if !c.lastStep.IsZero() {
		dt = min(now.Sub(c.lastStep).Seconds(), 5)
	}
	c.lastStep = now
	c.p50 = c.totals.p50()
	c.headroom = c.target - c.p50
	if dt > integralHalfLifeAge {
		c.integral *= math.Pow(0.5, dt-integralHalfLifeAge)
	}
	atMax, atMin := c.wait >= c.opt.MaxWait, c.wait <= c.opt.MinWait
	if !(atMax && c.headroom > 0) && !(atMin && c.headroom < 0) {
		c.integral = clamp(c.integral+c.headroom*dt, -integralLimit, integralLimit)
	}
	w := clamp(ms(c.wait)+c.opt.Gain*c.headroom+c.opt.IntegralGain*c.integral, ms(c.opt.MinWait),
		ms(c.opt.MaxWait))
	c.wait = time.Duration(w * float64(time.Millisecond))
	if c.fill.mean() >= fillForCost {
		cost := float64(c.cost)
		cost += cost * (c.headroom / c.target) * c.opt.Gain / 2
		c.cost = int(clamp(cost, float64(c.costFloor()), float64(c.tokens)))
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func clamp(v, lo, hi float64) float64 { return min(max(v, lo), hi) }

// ring keeps the last n samples.
type ring struct {
	v    []float64
	next int
	n    int
}

func newRing(n int) ring { return ring{v: make([]float64, n)} }

func (r *ring) add(x float64) {
	r.v[r.next] = x
	r.next = (r.next + 1) % len(r.v)
	r.n = min(r.n+1, len(r.v))
}

func (r *ring) len() int { return r.n }

func (r *ring) p50() float64 {
	s := slices.Sorted(slices.Values(r.v[:r.n]))
	return s[int(0.5*float64(len(s)-1))]
}

func (r *ring) mean() float64 {
	if r.n == 0 {
		return 0
	}
	t := 0.0
	for _, x := range r.v[:r.n] {
		t += x
	}
	return t / float64(r.n)
}
