package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sie-engine/sie/weights/bucket"
)

// leaseKey is the object that names the writer of a bucket. The writer replaces it every beatEvery;
// one that does not change for leaseTime is of a process that ended.
const (
	leaseKey  = "writer.json"
	maxLease  = 4 << 10
	beatEvery = 5 * time.Second
	leaseTime = 15 * time.Second
	beatTime  = 4 * time.Second // for one request
)

// lease is the content of the object. Beat differs in each replacement.
type lease struct {
	Writer
	Beat uint64 `json:"beat"`
}

// Claimer holds the lease of a bucket for its writer. A directory needs none: its lock ends with
// the process.
type Claimer struct {
	place   Place
	me      Writer
	version string
	beat    uint64
	every   time.Duration                   // beatEvery
	pause   func(ctx context.Context) error // for leaseTime
}

// NewClaimer returns the Claimer of a writer, nil for a place that needs none.
func NewClaimer(place Place, me Writer) *Claimer {
	if _, shared := place.(objects); !shared {
		return nil
	}
	return &Claimer{place: place, me: me, every: beatEvery, pause: pauseLease}
}

func pauseLease(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(leaseTime):
		return nil
	}
}

// Claim takes the lease. While another process may be alive it waits until that has not renewed its
// lease for leaseTime; once it sees a renewal, the error is a *TakenError.
func (c *Claimer) Claim(ctx context.Context) error {
	other, version, err := c.read(ctx)
	if err != nil {
		return err
	}
	if version != "" && other.ID != c.me.ID {
		if err := c.pause(ctx); err != nil {
			return err
		}
		again, now, err := c.read(ctx)
		if err != nil {
			return err
		}
		if now != "" && now != version {
			return &TakenError{c.place.String(), again.Writer}
		}
		version = now
	}
	c.version = version
	return c.renew(ctx)
}

func (c *Claimer) read(ctx context.Context) (l lease, version string, err error) {
	data, version, err := c.place.Get(ctx, leaseKey, maxLease)
	if errors.Is(err, bucket.ErrNotFound) {
		return l, "", nil
	}
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	if err != nil {
		return l, version, fmt.Errorf("%s%s: %w", c.place, leaseKey, err)
	}
	return l, version, nil
}

// renew replaces the lease. The error is a *TakenError if another process has it.
func (c *Claimer) renew(ctx context.Context) error {
	c.beat++
	data, err := json.Marshal(lease{c.me, c.beat})
	if err != nil {
		return err
	}
	when := bucket.Condition{Version: c.version, Absent: c.version == ""}
	version, err := c.place.Put(ctx, leaseKey, data, when)
	if err == nil {
		c.version = version
		return nil
	}
	found, version, readErr := c.read(ctx)
	switch {
	case readErr != nil:
		return errors.Join(err, readErr)
	case version == "": // somebody removed it
		c.version = ""
	case found.ID == c.me.ID: // an earlier renewal arrived
		c.version = version
	default:
		return &TakenError{c.place.String(), found.Writer}
	}
	return err
}

// Hold renews the lease until ctx ends, and then gives it back. The error is a *TakenError. A
// bucket that does not answer is no error: without it nobody writes.
func (c *Claimer) Hold(ctx context.Context) error {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatTime)
			defer cancel()
			return c.release(end)
		case <-tick.C:
		}
		beat, cancel := context.WithTimeout(ctx, beatTime)
		err := c.renew(beat)
		cancel()
		var taken *TakenError
		if errors.As(err, &taken) {
			return err
		}
	}
}

// release removes the lease if it is this writer's.
func (c *Claimer) release(ctx context.Context) error {
	found, _, err := c.read(ctx)
	if err != nil || found.ID != c.me.ID {
		return nil // it becomes stale
	}
	_ = c.place.Delete(ctx, leaseKey)
	return nil
}
