package lease

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
)

const (
	sweepTime = 5 * time.Second
	sweepAge  = time.Minute // a stream is younger while its first work is on its way
	maxSweep  = 4096        // streams that are looked at
)

// Sweep removes the work streams of pools that are not in used and have no work, and returns the
// names of those pools. Whoever needs such a stream makes it again.
func (s *Store) Sweep(ctx context.Context, used map[string]bool) (pools []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	var all []error
	list, seen := s.js.ListStreams(ctx, jetstream.WithStreamListSubject(bus.WorkSubjects)), 0
	for i := range list.Info() {
		pool, work := strings.CutPrefix(i.Config.Name, bus.StreamName(""))
		if seen++; seen > maxSweep {
			break
		}
		if work && !used[pool] && i.TimeStamp.Sub(i.Created) > sweepAge && i.State.Msgs == 0 {
			all = append(all, s.js.DeleteStream(ctx, i.Config.Name))
			pools = append(pools, pool)
		}
	}
	return pools, errors.Join(append(all, list.Err())...)
}
