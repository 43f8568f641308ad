package model

//lint:file-ignore ST1005 The errors begin with the name of a field.

import (
	"errors"
	"fmt"
	"time"

	"github.com/sie-engine/sie/runtime/registry"
)

// maxAdapters bounds Options.MaxLoRAs, the number of adapters of one model at a time.
const maxAdapters = 64

// Validate returns all errors in the options joined, including those of devices and queues, or nil.
// Zero fields mean defaults and are valid, except for required ones. New checks whether the devices
// have the precision.
func (o *Options) Validate() error {
	var all []error
	if o.Catalog == nil {
		all = append(all, errors.New("Catalog is required"))
	}
	if o.Hub == nil {
		all = append(all, errors.New("Hub is required"))
	}
	if o.Metrics == nil {
		all = append(all, errors.New("Metrics is required"))
	}
	for _, x := range []struct {
		name  string
		value int64
	}{{"MemoryBudget", o.MemoryBudget}, {"LoadWait", int64(o.LoadWait)},
		{"MaxBatchTokens", int64(o.MaxBatchTokens)}, {"ShortTokens", int64(o.ShortTokens)},
		{"LongIdle", int64(o.LongIdle)}, {"MaxQueueItems", int64(o.MaxQueueItems)},
		{"LabelCacheBytes", o.LabelCacheBytes}} {
		if x.value < 0 {
			all = append(all, fmt.Errorf("%s must not be negative; got %d", x.name, x.value))
		}
	}
	if o.MaxLoRAs < 0 || o.MaxLoRAs > maxAdapters {
		all = append(all, fmt.Errorf("MaxLoRAs must be between 0 and %d; got %d", maxAdapters, o.MaxLoRAs))
	}
	if !(o.MemoryThreshold >= 0) { // also catches NaN; with 1 or more, memory is never too full
		all = append(all, fmt.Errorf("MemoryThreshold must not be negative; got %v", o.MemoryThreshold))
	}
	all = append(all, o.checkPlacement())
	for i := range o.Devices {
		if err := o.Devices[i].Validate(); err != nil {
			all = append(all, fmt.Errorf("Devices[%d]: %w", i, err))
		}
	}
	r := o.registry()
	if err := r.Validate(); err != nil { // IdleEvict, LoadTimeout and EvictWait by the registry's names
		all = append(all, fmt.Errorf("Registry: %w", err))
	}
	if o.Null != nil {
		if err := o.Null.Validate(); err != nil {
			all = append(all, fmt.Errorf("Null: %w", err))
		}
	}
	if err := o.Batch.Validate(); err != nil {
		all = append(all, fmt.Errorf("Batch: %w", err))
	}
	return errors.Join(all...)
}

// registry returns the part of the options that is the registry's.
func (o *Options) registry() registry.Options {
	return registry.Options{
		Idle:    o.IdleEvict,
		Timeout: o.LoadTimeout,
		Drain:   o.EvictWait,
		Cooldowns: map[string]time.Duration{
			"OOM":       time.Minute,
			"TIMEOUT":   time.Minute,
			"ENGINE":    time.Minute,
			"UNKNOWN":   time.Minute,
			"STORAGE":   2 * time.Minute,
			"PLACEMENT": 10 * time.Minute,
		},
	}
}
