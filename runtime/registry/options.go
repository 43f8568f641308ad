package registry

import (
	"errors"
	"fmt"
	"time"
)

// Validate returns all errors in the options joined, or nil. Zero fields mean defaults and are
// valid. New does not call it.
func (o *Options) Validate() error {
	var all []error
	check := func(name string, value int64) {
		if value < 0 {
			all = append(all, fmt.Errorf("%s must not be negative; got %d", name, value))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Idle", o.Idle}, {"Timeout", o.Timeout}, {"Patience", o.Patience}, {"Drain", o.Drain},
		{"Cooldown", o.Cooldown}, {"MaxCooldown", o.MaxCooldown}} {
		check(d.name, int64(d.value))
	}
	for class, d := range o.Cooldowns {
		check("Cooldowns["+class+"]", int64(d))
	}
	check("Fetches", int64(o.Fetches))
	check("MaxAttempts", int64(o.MaxAttempts))
	return errors.Join(all...)
}
