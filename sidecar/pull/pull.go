package pull

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
)

// The times of pulls, and their bounds.
const (
	Expires   = 8 * time.Second
	Heartbeat = 2 * time.Second
	// Silence is how long a queue with an open pull may hear nothing: two heartbeats and a half.
	Silence = 5 * time.Second
	// QuietFor is how long a queue with an open pull hears of no work until it asks the broker
	// whether there is any. It is shorter than the delay with which late work is given back, which
	// may come again.
	QuietFor = 40 * time.Millisecond
	// MaxOpen bounds the pulls of a queue that are open at once.
	MaxOpen = 4
	// MaxBatch bounds the slices of one pull.
	MaxBatch = 256
)

// request is the body of a pull.
type request struct {
	Expires    time.Duration `json:"expires,omitempty"`
	Batch      int           `json:"batch"`
	MaxBytes   int           `json:"max_bytes"`
	NoWait     bool          `json:"no_wait,omitempty"`
	Heartbeat  time.Duration `json:"idle_heartbeat,omitempty"`
	Group      string        `json:"group"`
	MinPending int64         `json:"min_pending,omitempty"`
}

// Kind says what a message of a queue is.
type Kind int

// The kinds.
const (
	// Work is a slice.
	Work Kind = iota
	// Alive is a heartbeat of a pull, or an end of it that means nothing more.
	Alive
	// Backlog ends a Watch: at least its threshold of slices waits.
	Backlog
	// Absent says that there is no consumer, no stream or no JetStream: make sure of them.
	Absent
)

// Queue pulls from one consumer.
type Queue struct {
	nc       *nats.Conn
	next     string // subject of pulls
	inbox    string // of replies, without the pull's number
	sub      *nats.Subscription
	open     map[string]opened // by the reply subject; at most MaxOpen
	waiting  int               // slices that open pulls may still bring
	heard    time.Time
	worked   time.Time // of the last slice, or of the last pull
	last     uint64
	watching bool
	asked    time.Time // when the broker was last asked whether work waits
	question string    // reply subject of that, until it is answered or slices come
	dry      bool      // the answer was no, and no slice has come since
}

type opened struct {
	batch   int
	watch   bool
	expires time.Time
}

// New subscribes to the replies of a consumer's pulls. inbox is a subject prefix of this queue
// alone. Each message is handed to on.
//
// What waits for on is not bounded by the subscription but by the pulls: MaxOpen of at most
// MaxBatch slices.
func New(nc *nats.Conn, stream, consumer, inbox string, on func(*nats.Msg)) (*Queue, error) {
	sub, err := nc.Subscribe(inbox+".*", on)
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err != nil {
		return nil, fmt.Errorf("pull: subscribe to replies: %w", err)
	}
	return &Queue{
		nc: nc, next: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer, inbox: inbox + ".", sub: sub,
		open: map[string]opened{},
	}, nil
}

// Waiting returns how many slices open pulls may still bring.
func (q *Queue) Waiting() int { return q.waiting }

// Open returns the number of open pulls.
func (q *Queue) Open() int { return len(q.open) }

// Watching reports whether a Watch is open.
func (q *Queue) Watching() bool { return q.watching }

// Pull asks for at most batch slices of at most maxBytes together.
func (q *Queue) Pull(now time.Time, batch, maxBytes int) error {
	if len(q.open) >= MaxOpen || batch < 1 {
		return nil
	}
	return q.send(now, request{Batch: min(batch, MaxBatch), MaxBytes: maxBytes}, false)
}

// Watch asks to be told, by Backlog, when at least threshold slices wait. It takes none of them: a
// pull of one byte is refused by the first message that it might get.
func (q *Queue) Watch(now time.Time, threshold int) error {
	if q.watching || len(q.open) >= MaxOpen {
		return nil
	}
	return q.send(now, request{Batch: 1, MaxBytes: 1, MinPending: int64(threshold)}, true)
}

func (q *Queue) send(now time.Time, r request, watch bool) error {
	r.Expires, r.Heartbeat = Expires, Heartbeat
	reply, err := q.publish(r)
	if err != nil {
		return err
	}
	if len(q.open) == 0 {
		q.heard = now
	}
	o := opened{watch: watch, expires: now.Add(Expires)}
	if watch {
		q.watching = true
	} else {
		o.batch, q.worked, q.dry = r.Batch, now, false
		q.waiting += r.Batch
	}
	q.open[reply] = o
	return nil
}

// publish sends a request and returns the subject that answers come to.
func (q *Queue) publish(r request) (string, error) {
	r.Group = bus.PriorityGroup
	body, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	q.last++
	reply := q.inbox + strconv.FormatUint(q.last, 36)
	return reply, q.nc.PublishRequest(q.next, reply, body)
}

// ask asks the broker whether work waits. As for a Watch, none is taken.
func (q *Queue) ask(now time.Time) {
	if q.question != "" || now.Sub(q.asked) < QuietFor {
		return
	}
	if reply, err := q.publish(request{Batch: 1, MaxBytes: 1, NoWait: true}); err == nil {
		q.question, q.asked = reply, now
	}
}

// Heard reads a message that came and tells what it is.
func (q *Queue) Heard(now time.Time, m *nats.Msg) Kind {
	q.heard = now
	if !strings.HasPrefix(m.Subject, q.inbox) {
		q.waiting, q.worked = max(q.waiting-1, 0), now
		q.question, q.dry = "", false
		return Work
	}
	status, text := m.Header.Get("Status"), m.Header.Get("Description")
	if m.Subject == q.question { // 404: no messages; 503: no consumer, so nothing that may deliver
		q.question, q.dry = "", status == "404" || status == "503"
		return Alive
	}
	if status == "100" {
		return Alive
	}
	o, ok := q.open[m.Subject]
	if !ok {
		return Alive // of a pull that was given up
	}
	delete(q.open, m.Subject)
	if o.watch {
		q.watching = false
	}
	left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if err != nil || left < 0 || left > o.batch {
		left = o.batch
	}
	q.waiting = max(q.waiting-left, 0)
	if len(q.open) == 0 || len(q.open) == 1 && q.watching {
		q.waiting = 0
	}
	switch {
	case status == "408", status == "409" && strings.Contains(text, "Batch Completed"):
		return Alive
	case status == "409" && strings.Contains(text, "Exceeds MaxBytes"):
		if o.watch {
			return Backlog
		}
		return Alive
	}
	return Absent
}

// Silent reports whether an open pull should have been heard of.
func (q *Queue) Silent(now time.Time) bool {
	return len(q.open) > 0 && now.Sub(q.heard) > Silence
}

// Quiet reports whether Close loses nothing; while it does not know, it asks the broker, and the
// answer is heard later. The broker decides to deliver and then looks for the subscription again,
// so a slice that comes while the subscription ends is hidden until its ack wait is over. That
// cannot be when no pull is open. Else the queue is quiet when no slice came for QuietFor, and the
// broker, asked then, had none: what it delivered before came before its answer. Only a slice that
// it delivers between that answer and the end may be hidden; to wait until the pulls are over would
// take up to Expires. A broker of which nothing is heard for Silence knows the pulls no more.
func (q *Queue) Quiet(now time.Time) bool {
	switch {
	case len(q.open) == 0, len(q.open) == 1 && q.watching, q.Silent(now):
		return true
	case now.Sub(q.worked) < QuietFor:
		return false
	}
	if !q.dry {
		q.ask(now)
	}
	return q.dry
}

// Close ends the pulls. Messages that were on their way still come, and then closed is called: the
// broker has taken the subscription back by then and sends no more. Without a connection what was
// on its way is lost, and the slices come again.
//
// The client library subscribes again, after a reconnect, to what was drained while there was no
// connection, and then forgets it. The broker would take such a subscription for interest in the
// pulls that were open, and hand them slices that nobody reads, until they expire. So only what the
// broker was told to end is drained; else the subscription ends at once.
func (q *Queue) Close(closed func()) {
	var once sync.Once
	q.sub.SetClosedHandler(func(string) { once.Do(closed) })
	made := q.nc.Stats().Reconnects
	if q.nc.IsConnected() && q.sub.Drain() == nil && q.nc.IsConnected() &&
		q.nc.Stats().Reconnects == made {
		return
	}
	if q.sub.Unsubscribe() != nil {
		once.Do(closed)
	}
}

// Reset forgets the pulls that were open: the connection was lost, and they with it.
func (q *Queue) Reset() {
	clear(q.open)
	q.waiting, q.watching, q.question, q.dry = 0, false, "", false
}
