package model

import (
	"errors"
	"fmt"
)

// maxLoRAs is the most adapters that a model may have at a time.
const maxLoRAs = 64

// Validate returns everything that is wrong with the options, those of devices and queues included;
// nil for none. Zero fields are defaults and never wrong. Whether a device has the precision is
// found when it is open.
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
	}{{"LoadTimeout", int64(o.LoadTimeout)}, {"IdleEvict", int64(o.IdleEvict)}, {"EvictWait", int64(o.EvictWait)}, {"MemoryBudget", o.MemoryBudget},
		{"LoadWait", int64(o.LoadWait)}, {"MaxBatchTokens", int64(o.MaxBatchTokens)}, {"MaxQueueItems", int64(o.MaxQueueItems)}} {
		if x.value < 0 {
			all = append(all, fmt.Errorf("%s must not be negative; got %d", x.name, x.value))
		}
	}
	if o.MaxLoRAs < 0 || o.MaxLoRAs > maxLoRAs {
		all = append(all, fmt.Errorf("MaxLoRAs must be between 0 and %d; got %d", maxLoRAs, o.MaxLoRAs))
	}
	if !(o.MemoryThreshold >= 0) { // NaN is not; from 1 on no memory is too full
		all = append(all, fmt.Errorf("MemoryThreshold must not be negative; got %v", o.MemoryThreshold))
	}
	for i := range o.Devices {
		if err := o.Devices[i].Validate(); err != nil {
			all = append(all, fmt.Errorf("Devices[%d]: %w", i, err))
		}
	}
	if err := o.Batch.Validate(); err != nil {
		all = append(all, fmt.Errorf("Batch: %w", err))
	}
	return errors.Join(all...)
}
