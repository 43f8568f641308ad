package pools

import (
	"context"
	"time"
)

// sweepEvery is the time between two looks at the streams of pools that are gone.
const sweepEvery = 30 * time.Second

// sweep removes the empty work streams of pools that are gone.
func (k *Keeper) sweep(ctx context.Context) {
	f := k.opt.Fleet()
	if !f.Settled || !f.Connected || k.view.Load().Epoch.IsZero() {
		return
	}
	used := map[string]bool{DefaultPool: true}
	for _, l := range k.opt.Lanes {
		used[l.Pool] = true
	}
	for _, w := range f.Workers {
		used[w.Home.Pool], used[w.Lane.Pool] = true, true
	}
	for _, p := range k.Pools() {
		used[p.Spec.Name] = true
	}
	gone, err := k.store.Sweep(ctx, used)
	if len(gone) > 0 || err != nil {
		k.opt.Log.Info("the streams of pools that are gone were removed", "pools", gone, "error", err)
	}
}
