package row

import (
	"context"
	"time"
)

// clockTime is how long the load runs against workers with another clock.
const clockTime = 8 * time.Second

// clockOff lets the load run against workers whose clocks the topology has set.
func clockOff(ctx context.Context, e *Env) error {
	e.hit("the workers' clocks are %s off", clockOffset[e.Topology])
	return wait(ctx, clockTime)
}
