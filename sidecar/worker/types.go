package worker

import (
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/obs"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/control"
	"github.com/sie-engine/sie/sidecar/results"
)

// The bounds of what a sidecar holds.
const (
	maxInHand       = 4096               // slices, from the pull to the receipt; then no pulls
	maxInHandBytes  = 64 << 20           // of their messages; then no pulls
	maxKeptBytes    = 64 << 20           // of results without a receipt; then no pulls, and nothing is sent
	hardKeptBytes   = 256 << 20          // of results; one that goes above is given back to the queue
	maxStoringBytes = 512 << 20          // of results on their way to the store; the same, unless alone
	maxPayloadBytes = work.MaxWholeBytes // of payloads in hand; the next one waits, unless it is alone
	maxQueues       = 1024               // models that are followed; demand for more is ignored
	maxModels       = 2048               // states of models by id; work for more is refused
	maxBatchSlices  = 64                 // of one RunBatch
	maxBatchBytes   = 8 << 20            // of one RunBatch, unless its only slice has more
	maxDeliveries   = 8                  // of one slice that are held; older ones are acknowledged
	maxIDBytes      = 256                // of a work item's and a request's id
	maxGiveBacks    = 8                  // of one slice, to workers that have not died with it
	maxLate         = 2 * maxInHand
	sliceBatchFirst = 8    // slices of the first pull of a model, whose size is not known
	bytesPerToken   = 4.0  // until counts came back
	learning        = 0.05 // share of a new observation
)

// The times of a sidecar; internal/work has those of the protocol.
const (
	tickEvery     = 50 * time.Millisecond
	firstMark     = 50 * time.Millisecond // most slices are answered by then, and need no mark
	maxPause      = 3 * time.Second       // between two ticks: more means that this process was stopped
	decideEvery   = time.Second           // at least; at once after a change
	serverSilence = 6 * time.Second
	nakServer     = 100 * time.Millisecond // the server is away, or this sidecar ends
	nakOther      = 250 * time.Millisecond // another worker is to have it
	nakBase       = 5 * time.Second        // of work that cannot be read
	nakFull       = time.Second            // a result that does not fit
	demandAge     = 30 * time.Second
	discoverFor   = 500 * time.Millisecond // after the first connect
	forgetAge     = 15 * time.Minute       // of a queue without demand, whose model no worker has
	askFirst      = 50 * time.Millisecond
	askLast       = time.Second
	failedFor     = 30 * time.Second
	failedForEver = 5 * time.Minute   // of a failure that an operator must mend
	longest       = 305 * time.Second // a message's stay in the stream, and work.ClockTolerance
	reconcileMin  = 100 * time.Millisecond
	reconcileMax  = 2 * time.Second
)

// delivery is a message of the broker that is not acknowledged.
type delivery struct {
	reply string // subject of acknowledgements
	gen   uint64 // of the stream; another one has other sequences
}

// state of a slice.
type state int

const (
	fetching state = iota // its payload
	held                  // waits for its model's configuration
	queued                // waits for its model or for credit
	sent                  // to the server
	storing               // its result goes to the payload store
	keeping               // its result or server_died mark waits for a receipt
)

// slice is a work item in hand.
type slice struct {
	item       work.Item // without the items
	data       []byte    // its message, whole; nil when it is kept
	router     string
	request    string // router and request, as in the subject of a cancellation
	deliveries []delivery
	state      state
	queue      *queue
	model      *model
	group      group
	bytes      int // of its texts
	tokens     int64
	taken      time.Time
	fetchMS    float64
	queueMS    float64
	mark       time.Time // of the next mark
	until      time.Time // then it is dropped
	heldUntil  time.Time // held: then it goes back
	call       string    // of the RunBatch that holds it
	dropped    bool      // while sent: its outcome is of no use
	entry      *results.Entry
	storing    int       // bytes of its result, while it is storing
	key        string    // of its stored result, unless the gateway took it; "": none
	payload    int       // bytes of its payload that are counted
	span       *obs.Span // from taken until it is forgotten; nil: not traced
	callSpan   *obs.Span // while sent
}

// deadlineOf returns when a slice that was taken now is dropped, tolerance included. One without a
// deadline, or with a later one, is dropped when the stream has certainly removed its message.
func deadlineOf(it *work.Item, taken time.Time) time.Time {
	last := taken.Add(longest)
	left := it.Deadline - float64(taken.UnixMicro())/1e6
	if !(it.Deadline > 0 && left < longest.Seconds()) {
		return last
	}
	return taken.Add(time.Duration(max(left, -longest.Seconds()) * 1e9)).Add(work.ClockTolerance)
}

// group is what slices of one RunBatch have in common.
type group struct {
	model, operation, lora string
}

// effects is what the core does. Every function returns at once; what comes of it reaches the core
// by its methods. Errors of messages to the broker need no answer: a message that was not sent is
// sent again by the protocol's retries.
type effects interface {
	publish(subject string, data []byte)         // a mark
	request(subject, number string, data []byte) // its reply comes to receipt
	ack(d delivery)                              // acknowledge
	nak(d delivery, after time.Duration)         // give back
	term(d delivery)                             // never again
	progress(d delivery)                         // still at work

	openQueue(q *queue) error // subscribes: sets q.pulls
	closeQueue(q *queue)
	pull(q *queue, batch, maxBytes int)
	watch(q *queue, threshold int)
	reconcile(q *queue, create bool) // makes sure of stream and consumer, or only looks
	list()
	moved() // the lane is another one

	ensure(model string)
	run(r *ipc.RunBatchRequest) (call string, err error)
	cancel(ids []string)
	capabilities()
	fetch(s *slice)
	store(s *slice, key string, data []byte) // its end comes to stored
	discard(key string)                      // deletes a stored result
	give(e *control.Export)                  // to the server; its end comes to gave
	askConfig()                              // sie-config, soon; its answer comes to read
	pin(models []string)                     // tells the server; its end comes to pinned
	heartbeat(h *bus.WorkerHeartbeat)
	drained()
	log(level, text string, s *slice, err error)
	count(what, label string)
}

// refusal returns the serialised result of a slice that was not run.
func (s *slice) refusal(worker string, e *errs.Error) []byte {
	r := work.Result{
		WorkItemID: s.item.WorkItemID, RequestID: s.item.RequestID, Index: s.item.Index,
		Attempt: s.item.Attempt, Error: e.Message, ErrorCode: string(e.Code), Err: e.AppendMsgpack(nil),
		WorkerID: worker, ModelID: s.item.ModelID, QueueMS: s.queueMS, RetryAfterS: e.RetryAfter.Seconds(),
	}
	data, err := r.MarshalMsg(nil)
	if err != nil {
		panic("worker: internal error: " + err.Error()) // strings and numbers always have a form
	}
	return data
}
