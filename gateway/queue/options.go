package queue

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/gateway/alias"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/weights/payload"
)

// Options configures a Queue. Zero fields take the defaults in brackets.
type Options struct {
	Router  string // this gateway's id, one token of a subject
	URL     string // told in heartbeats, "" for none
	Streams bus.Streams
	Store   payload.Store         // nil: larger items are refused
	Metrics prometheus.Registerer // nil: none
	Tracer  trace.Tracer          // nil: none
	Log     *slog.Logger

	Timeout time.Duration // for an answer [140 s: below the SDKs' 150 s]
	// MaxWait is the wait in the queue from which on requests are refused; negative: they are
	// refused by the stream's bound alone [5 s]
	MaxWait time.Duration
	// Fair has tenants take turns: little work is in the stream at once, and the rest waits here.
	Fair bool
	// Aliases are model names that stand for others.
	Aliases      alias.Table
	MaxHolds     int   // requests that are held at once until there is capacity [256]
	MaxHoldBytes int64 // of their bodies [64 MiB]
	// MaxSlices bounds the slices of one request that are on their way at once [256]
	MaxSlices int
}

func (o *Options) setDefaults() {
	o.Timeout = cmp.Or(o.Timeout, 140*time.Second)
	o.MaxWait = cmp.Or(o.MaxWait, 5*time.Second)
	o.MaxHolds, o.MaxHoldBytes = cmp.Or(o.MaxHolds, 256), cmp.Or(o.MaxHoldBytes, 64<<20)
	o.MaxSlices = cmp.Or(o.MaxSlices, 256)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Validate returns what is wrong with o, nil for nothing.
func (o *Options) Validate() error {
	if err := bus.CheckToken("router id", o.Router); err != nil {
		return err
	}
	if o.Timeout < 0 || o.MaxSlices < 0 {
		return fmt.Errorf("Timeout is %v and MaxSlices %d; neither may be negative", o.Timeout, o.MaxSlices)
	}
	return o.Streams.Validate()
}

// The times of the queue that internal/work does not have.
const (
	tickEvery = 250 * time.Millisecond // between two looks at everything that is pending
	minPass   = 5 * time.Millisecond   // between two such looks when something asks for one

	firstBackoff = 50 * time.Millisecond // of publishes whose outcome is unknown, doubled up to
	lastBackoff  = time.Second
	fullBackoff  = 250 * time.Millisecond // of a stream that is full

	firstAck = 2 * time.Second // for the broker's acknowledgement, doubled at each try up to
	lastAck  = 8 * time.Second

	untakenAfter = 2 * time.Second // in the stream: is the consumer there?
	// of a slice that the broker has delivered and that nobody marks: whoever got it is gone or
	// stopped. Marks come after 50 ms.
	unmarkedAfter = 2 * time.Second
	// untakenAfter, unmarkedAfter and pollEvery in a lane of which a worker was lost a moment ago
	hurryAfter   = time.Second
	hurryEvery   = 500 * time.Millisecond
	announceFrom = time.Second     // in the stream: the heartbeat names the subject
	pollEvery    = 2 * time.Second // of streams and consumers that hold pending work
	apiTimeout   = 5 * time.Second // of a call of the broker's API
	heartbeatGap = 5 * time.Second // of one's own: results may have been dropped
	settle       = time.Second     // after such a gap: what waits in the socket is read first

	lineIdle  = 10 * time.Minute // without work: the line is forgotten
	storeTime = 30 * time.Second // of a call of the payload store
	fetchWait = 200 * time.Millisecond
	closeTime = 5 * time.Second // to delete payloads when the queue is closed

	expireFirst = time.Minute // from the start until the store is searched for what others left
	expireEvery = time.Hour
	expireTime  = 10 * time.Minute
	buryTimeout = 10 * time.Second // to store a dead letter
	// an SDK waits this much longer than we work for it
	patienceRoom = 3 * time.Second
)

// The bounds of the queue that internal/work does not have.
const (
	maxUnacked      = 256      // publishes of a line that the keeper has on their way
	maxUnackedBytes = 16 << 20 // of them
	maxTransfers    = 2        // of one slice at once
	maxFetches      = 8        // of results from the payload store at once
	fetchTries      = 3        // of one of them
	maxDeletes      = 4096     // of payloads that wait to be deleted
	maxRemoves      = 1024     // of messages that wait to be removed
	maxHeadroom     = 8 << 10  // of a message beside its items
)

// A slice that was alone in aloneDeaths servers when they ended is a dead letter: nothing else can
// have ended both. It gets no server any more after maxDeaths, however they ended.
const (
	aloneDeaths = 2
	maxDeaths   = 3
)
