package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/sidecar/control"
	"github.com/sie-engine/sie/sidecar/pull"
)

// natsTimeout bounds a request to JetStream.
const natsTimeout = 5 * time.Second

// publish sends a message and counts it when that failed.
func (w *Worker) publish(subject string, data []byte) {
	w.send(&nats.Msg{Subject: subject, Data: data})
}

func (w *Worker) request(subject, number string, data []byte) {
	w.send(&nats.Msg{Subject: subject, Reply: w.inbox + ".r." + number, Data: data})
}

func (w *Worker) send(m *nats.Msg) {
	if err := w.out.Publish(m); err != nil {
		w.unsent(err)
	}
}

// unsent counts a message that was not sent.
func (w *Worker) unsent(error) { w.c.Metrics.Count("publish_errors", "") }

// ack acknowledges a message that nobody waits for any more: with the next result.
func (w *Worker) ack(d delivery) {
	w.c.Metrics.Count("acked", "")
	w.out.PublishSoon(&nats.Msg{Subject: d.reply, Data: ackBody})
}

var ackBody = []byte("+ACK")

func (w *Worker) nak(d delivery, after time.Duration) {
	w.c.Metrics.Count("naked", "")
	w.publish(d.reply, fmt.Appendf(nil, `-NAK {"delay": %d}`, after.Nanoseconds()))
}

func (w *Worker) term(d delivery) {
	w.c.Metrics.Count("acked", "")
	w.publish(d.reply, []byte("+TERM"))
}

func (w *Worker) progress(d delivery) { w.publish(d.reply, []byte("+WPI")) }

func (w *Worker) openQueue(q *queue) error {
	w.queues++
	inbox := w.inbox + ".q" + strconv.FormatUint(w.queues, 36)
	var p *pull.Queue
	p, err := pull.New(w.nc, bus.StreamName(w.core.lane.Pool), bus.ConsumerName(q.subject), inbox,
		func(m *nats.Msg) {
			w.post(func() {
				kind := p.Heard(w.core.now, m)
				switch open := q.pulls == puller(p); {
				case kind == pull.Work:
					w.core.arrived(q, m, open)
				case open:
					w.core.heard(q, kind)
				}
			})
		})
	if err != nil {
		return err
	}
	q.pulls = p
	return nil
}

// closeQueue ends the pulls of a queue as soon as that loses nothing.
func (w *Worker) closeQueue(q *queue) {
	w.closing = append(w.closing, q.pulls.(*pull.Queue))
}

// endQuiet ends the queues that are to be closed and are quiet.
func (w *Worker) endQuiet() {
	w.closing = slices.DeleteFunc(w.closing, func(p *pull.Queue) bool {
		if !w.core.connected {
			p.Reset()
		}
		quiet := p.Quiet(w.core.now)
		if quiet {
			p.Close(func() { go w.post(w.core.closed) })
		}
		return quiet
	})
}

func (w *Worker) pull(q *queue, batch, maxBytes int) {
	if q.pulls.(*pull.Queue).Pull(w.core.now, batch, maxBytes) != nil {
		w.c.Metrics.Count("publish_errors", "")
	}
}

func (w *Worker) watch(q *queue, threshold int) {
	if q.pulls.(*pull.Queue).Watch(w.core.now, threshold) != nil {
		w.c.Metrics.Count("publish_errors", "")
	}
}

// job runs f on a goroutine of its own, at most maxJobs at once.
func (w *Worker) job(f func(ctx context.Context)) {
	w.background.Go(func() {
		select {
		case w.jobs <- struct{}{}:
			defer func() { <-w.jobs }()
			f(w.ctx)
		case <-w.ctx.Done():
		}
	})
}

// reconcile makes sure of the stream and of a queue's consumer.
func (w *Worker) reconcile(q *queue, create bool) {
	pool, subject := w.core.lane.Pool, q.subject
	w.job(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, natsTimeout)
		defer cancel()
		created, err := w.ensureConsumer(ctx, pool, subject, create)
		w.post(func() { w.core.reconciled(q, created, err) })
	})
}

func (w *Worker) ensureConsumer(
	ctx context.Context, pool, subject string, create bool,
) (created time.Time, err error) {
	name := bus.StreamName(pool)
	s, err := w.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if !create {
			return created, errNoConsumer
		}
		s, err = w.js.CreateStream(ctx, w.c.Streams.Work(pool))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another made it meanwhile
			s, err = w.js.Stream(ctx, name)
		}
	}
	if err != nil {
		return created, err
	}
	created = s.CachedInfo().Created
	if _, err = s.Consumer(ctx, bus.ConsumerName(subject)); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return created, err
	}
	if !create {
		return created, errNoConsumer
	}
	_, err = s.CreateConsumer(ctx, w.c.Streams.Consumer(subject))
	if errors.Is(err, jetstream.ErrConsumerExists) {
		return created, nil
	}
	if api := new(jetstream.APIError); errors.As(err, &api) && api.ErrorCode == overlap {
		return created, errors.Join(err, w.removeLeftovers(ctx, s, subject))
	}
	return created, err
}

// overlap is the broker's error code of a consumer whose filter meets another's.
const overlap = 10100

// removeLeftovers removes idle consumers of another layout whose filter meets subject. Ours filter
// the subject of one model and are named by it.
func (w *Worker) removeLeftovers(ctx context.Context, s jetstream.Stream, subject string) error {
	var removed []error
	list := s.ListConsumers(ctx)
	for i := range list.Info() {
		filter := i.Config.FilterSubject
		_, _, err := bus.ParseWork(filter)
		ours := err == nil && i.Name == bus.ConsumerName(filter)
		if !ours && i.NumWaiting == 0 && i.NumAckPending == 0 && !i.PushBound && meets(filter, subject) {
			w.c.Log.Warn("removing a consumer of another layout", "consumer", i.Name, "filter", filter)
			removed = append(removed, s.DeleteConsumer(ctx, i.Name))
		}
	}
	return errors.Join(append(removed, list.Err())...)
}

// meets reports whether a filter, with wildcards or empty for all, covers a subject.
func meets(filter, subject string) bool {
	if filter == "" {
		return true
	}
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, token := range f {
		if token == ">" {
			return len(s) > i
		}
		if i >= len(s) || token != "*" && token != s[i] {
			return false
		}
	}
	return len(f) == len(s)
}

// list reads the lane's consumers.
func (w *Worker) list() {
	of := w.core.lane
	w.job(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, natsTimeout)
		defer cancel()
		created, all, err := w.consumers(ctx, of)
		w.post(func() {
			if of == w.core.lane { // else it was left meanwhile
				w.core.listedAll(created, all, err)
			}
		})
	})
}

func (w *Worker) consumers(ctx context.Context, of bus.Lane) (created time.Time, all []found, err error) {
	s, err := w.js.Stream(ctx, bus.StreamName(of.Pool))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return created, nil, nil
	}
	if err != nil {
		return created, nil, err
	}
	list := s.ListConsumers(ctx)
	for i := range list.Info() {
		lane, _, err := bus.ParseWork(i.Config.FilterSubject)
		if err == nil && lane == of && len(all) < maxQueues {
			all = append(all, found{i.Config.FilterSubject, i.NumPending > 0 || i.NumAckPending > 0})
		}
	}
	return s.CachedInfo().Created, all, list.Err()
}

func (w *Worker) ensure(model string) {
	_, err := w.client.Go(ipc.MethodEnsureModelReady, &ipc.ModelRequest{ModelID: model}, nil,
		func(r *ipc.Response, err error) {
			var ready ipc.ReadyResponse
			if err == nil {
				_, err = ready.UnmarshalMsg(r.Body)
			}
			w.post(func() { w.core.ensured(model, &ready, err) })
		})
	if err != nil {
		w.post2(func() { w.core.ensured(model, nil, err) })
	}
}

// give gives the server all models of sie-config.
func (w *Worker) give(e *control.Export) {
	r := &ipc.ReplaceRequest{BundleID: e.Bundle, Epoch: int64(min(e.Epoch, math.MaxInt64)),
		BundleConfigHash: e.Hash, BundleAdapters: e.Adapters,
		Models: make([]ipc.ModelConfig, len(e.Models))}
	for i, m := range e.Models {
		r.Models[i] = ipc.ModelConfig{ModelID: m.ID, ModelConfig: m.YAML,
			ModelDocumentHash: e.DocumentHash(m.ID)}
	}
	_, err := w.client.Go(ipc.MethodReplaceModelConfigs, r, nil, func(r *ipc.Response, err error) {
		var did ipc.ConfigResponse
		if err == nil {
			_, err = did.UnmarshalMsg(r.Body)
		}
		w.post(func() { w.core.gave(e, &did, err) })
	})
	if err != nil {
		w.post2(func() { w.core.gave(e, nil, err) })
	}
}

// pin tells the server which models are pinned, in place of those before.
func (w *Worker) pin(models []string) {
	_, err := w.client.Go(ipc.MethodSetPinnedModels, &ipc.PinRequest{Models: models}, nil,
		func(_ *ipc.Response, err error) { w.post(func() { w.core.pinned(models, err) }) })
	if err != nil {
		w.post2(func() { w.core.pinned(models, err) })
	}
}

func (w *Worker) askConfig() {
	if w.control != nil {
		w.control.Ask()
	}
}

// post2 posts an event from the goroutine of Run itself.
func (w *Worker) post2(f func()) { w.background.Go(func() { w.post(f) }) }

func (w *Worker) capabilities() {
	_, err := w.client.Go(ipc.MethodWorkerCapabilities, empty{}, nil, func(r *ipc.Response, err error) {
		var known ipc.CapabilitiesResponse
		if err == nil {
			_, err = known.UnmarshalMsg(r.Body)
		}
		if err != nil {
			w.c.Log.Warn("the server does not tell its models", "error", err)
			return
		}
		w.post(func() { w.core.known(&known) })
	})
	if err != nil {
		w.c.Log.Warn("the server does not tell its models", "error", err)
	}
}

// empty is a body without fields.
type empty struct{}

// MarshalMsg appends an empty map.
func (empty) MarshalMsg(b []byte) ([]byte, error) { return append(b, 0x80), nil }

func (w *Worker) run(r *ipc.RunBatchRequest) (call string, err error) {
	call, err = w.client.Go(ipc.MethodRunBatch, r,
		func(o ipc.Outcome) { w.post(func() { w.core.outcome(call, &o) }) },
		func(r *ipc.Response, err error) {
			rest := &ipc.BatchOutcome{}
			if err == nil {
				if rest, err = ipc.ReadBatchOutcome(r.Body); err != nil {
					rest = &ipc.BatchOutcome{}
				}
			}
			w.post(func() { w.ranOut(call, rest, err) })
		})
	return call, err
}

func (w *Worker) cancel(ids []string) {
	_, _ = w.client.Go(ipc.MethodCancelItems, &ipc.CancelRequest{WorkItemIDs: ids}, nil,
		func(*ipc.Response, error) {}) // without a connection there is nothing to cancel
}

func (w *Worker) heartbeat(h *bus.WorkerHeartbeat) {
	data, err := json.Marshal(h)
	if err != nil {
		panic("worker: internal error: " + err.Error()) // strings and numbers always have a form
	}
	w.publish(bus.HealthPrefix+w.c.ID, data)
	w.c.Metrics.Gauges(h.QueueDepth, h.InflightBatches, w.core.kept.Bytes())
}

func (w *Worker) drained() { w.over = true }

func (w *Worker) count(what, label string) { w.c.Metrics.Count(what, label) }

// log writes a line, with the ids of a slice's request.
func (w *Worker) log(level, text string, s *slice, err error) {
	at := map[string]slog.Level{"warn": slog.LevelWarn, "error": slog.LevelError}[level]
	var args []any
	if s != nil {
		args = append(args, "request_id", s.item.CallerID, "work_item_id", s.item.WorkItemID,
			"model", s.item.ModelID, "attempt", s.item.Attempt)
	}
	if err != nil {
		args = append(args, "error", err)
	}
	w.c.Log.Log(context.Background(), at, text, args...)
}
