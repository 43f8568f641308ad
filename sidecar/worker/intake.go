package worker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/work"
)

var operations = []string{
	work.Encode, work.Score, work.Extract, work.Classify, work.Tokenize, work.Detokenize,
}

// arrived handles a message of work. open says whether the queue it came from still takes work.
func (c *core) arrived(q *queue, m *nats.Msg, open bool) {
	d := delivery{m.Reply, c.gen}
	if q.left {
		d.gen = q.gen
	}
	c.do.count("received", "")
	if m.Reply == "" {
		c.do.count("bad_messages", "no_ack_subject")
		return
	}
	if !open || c.draining || !c.responsive() {
		c.do.count("given_back", "late")
		c.settleOne(d, func(d delivery) { c.do.nak(d, nakServer) })
		return
	}
	bad := func(why string, settle func(delivery)) {
		c.do.count("bad_messages", why)
		c.settleOne(d, settle)
	}
	later := func(d delivery) { c.do.nak(d, nakBase) }
	if reservedHeader(m.Header) {
		bad("header", c.do.ack)
		return
	}
	lane, token, err := bus.ParseWork(m.Subject)
	if err != nil || lane != c.lane || token != q.token {
		bad("subject", later)
		return
	}
	s := &slice{data: m.Data, queue: q, taken: c.now}
	if rest, err := s.item.UnmarshalMsg(m.Data); err != nil || len(rest) > 0 {
		bad("msgpack", later)
		return
	}
	it := &s.item
	s.until = deadlineOf(it, c.now)
	if !usable(it.WorkItemID) || !usable(it.RequestID) {
		bad("id", c.do.ack)
		return
	}
	if it.ReplySubject != "" {
		router, request, err := bus.ParseInbox(it.ReplySubject)
		if err != nil {
			bad("reply_subject", c.do.ack)
			return
		}
		s.router, s.request = router, router+"."+request
	} else {
		s.router, s.request = it.RouterID, it.RouterID+"."+it.RequestID
	}
	if c.useless(s) {
		c.settleOne(d, c.do.ack)
		return
	}
	if old := c.slices[it.WorkItemID]; old != nil {
		if c.join(old, it, d) {
			return
		}
	}
	if c.done.Has(it.WorkItemID, it.Attempt) {
		c.do.count("redelivered", "done")
		c.settleOne(d, c.do.ack)
		return
	}
	if c.preferOther(it) {
		c.do.count("given_back", "died_here")
		c.settleOne(d, func(d delivery) { c.do.nak(d, nakOther) })
		return
	}
	s.deliveries = []delivery{d}
	c.take(s)
}

// usable reports whether an id of a work item can be used.
func usable(id string) bool { return id != "" && len(id) <= maxIDBytes }

// reservedHeader reports whether a message has a header of the broker that work never has.
func reservedHeader(h nats.Header) bool {
	for name := range h {
		if len(name) >= len(bus.HeaderReserved) && name[:len(bus.HeaderReserved)] == bus.HeaderReserved &&
			name != bus.HeaderMsgID && name != bus.HeaderTTL {
			return true
		}
	}
	return false
}

// useless reports whether nobody waits for a slice any more.
func (c *core) useless(s *slice) bool {
	why, it := "", &s.item
	switch {
	case c.expired(s):
		why = "deadline"
	case c.tombs.has(c.now, s.request, it.Index):
		why = "cancelled"
	case s.router != "" && c.knownGateway(s.router).gone:
		why = "gateway_silent"
	default:
		return false
	}
	c.do.count("dropped", why)
	return true
}

// join adds another message of a slice in hand. It reports false when the message takes the place
// of the slice, which is forgotten then.
func (c *core) join(s *slice, it *work.Item, d delivery) bool {
	c.do.count("redelivered", "in_hand")
	if s.dropped {
		c.settleOne(d, c.do.ack)
		return true
	}
	newer := it.Attempt > s.item.Attempt
	// The gateway must count the death of an attempt before the next one begins. One that must run
	// alone waits for a copy that runs beside others.
	died := s.entry != nil && s.entry.Died
	if newer && (died || it.Alone && !s.item.Alone && s.state == sent) {
		c.settleOne(d, func(d delivery) { c.do.nak(d, nakOther) })
		return true
	}
	if newer && it.Alone && (s.state == fetching || s.state == queued || s.state == held) {
		c.settle(s, c.do.ack) // the newer message stands for them
		c.forget(s)
		return false
	}
	s.item.Attempt = max(s.item.Attempt, it.Attempt)
	if s.state != keeping {
		c.sendMark(s, work.Taken)
	}
	for _, old := range s.deliveries {
		if old == d {
			return true
		}
	}
	s.deliveries = append(s.deliveries, d)
	if len(s.deliveries) > maxDeliveries {
		c.settleOne(s.deliveries[0], c.do.ack)
		s.deliveries = slices.Delete(s.deliveries, 0, 1)
	}
	return true
}

// preferOther reports whether a slice whose server died here is to run on another worker: one that
// has the model. One that has not does not pull, and the slice would come back here.
func (c *core) preferOther(it *work.Item) bool {
	n := c.giveBacks[it.WorkItemID]
	if n >= maxGiveBacks || !slices.Contains(it.DiedOn, c.self) || !c.peers.Other(it.ModelID, it.DiedOn) {
		delete(c.giveBacks, it.WorkItemID) // nobody took it in time, or nobody can
		return false
	}
	if n == 0 && len(c.giveBacks) >= maxInHand {
		clear(c.giveBacks) // forgetting counts only gives back more often
	}
	c.giveBacks[it.WorkItemID] = n + 1
	return true
}

// take takes a slice in hand.
func (c *core) take(s *slice) {
	it := &s.item
	c.slices[it.WorkItemID] = s
	c.bytes += int64(len(s.data))
	if c.requests[s.request] == nil {
		c.requests[s.request] = map[*slice]bool{}
	}
	c.requests[s.request][s] = true
	s.mark = c.now.Add(firstMark)
	c.fresh = append(c.fresh, s)
	c.beginSpan(s)
	if e := c.check(s); e != nil {
		c.do.log("warn", "a slice was refused", s, e)
		c.keep(s, s.refusal(c.self, e))
		return
	}
	s.group = group{it.ModelID, it.Operation, lora(it.Options)}
	if it.PayloadRef != "" {
		s.state = fetching
		c.toFetch = append(c.toFetch, s)
		return
	}
	c.enqueue(s)
}

// fetchNext fetches the payloads for which there is room.
func (c *core) fetchNext() {
	for len(c.toFetch) > 0 {
		s := c.toFetch[0]
		// without a size it is that of what a message holds; more than the most is not read
		n := int64(min(max(s.item.PayloadBytes, uint64(c.maxPayload)), maxPayloadBytes))
		if c.slices[s.item.WorkItemID] == s {
			if c.payloads > 0 && c.payloads+n > maxPayloadBytes {
				return
			}
			s.payload = int(n)
			c.payloads += n
			c.do.fetch(s)
		}
		c.toFetch = c.toFetch[1:]
	}
}

// fetchedNoMore frees the room for the payload of a slice.
func (c *core) fetchedNoMore(s *slice) {
	c.payloads -= int64(s.payload)
	s.payload = 0
}

// check returns why a slice cannot run, nil for nothing, and finds its model.
func (c *core) check(s *slice) *errs.Error {
	it := &s.item
	if bus.Token(it.ModelID) != s.queue.token {
		return errs.Invalidf("model_id", "the work's model %.100q does not belong to its subject", it.ModelID)
	}
	if !slices.Contains(operations, it.Operation) {
		return errs.Invalidf("operation", "the operation %.40q is unknown; this worker runs %v",
			it.Operation, operations)
	}
	if len(it.Items) > work.MaxItems {
		return tooMany(len(it.Items))
	}
	if s.model = c.model(it.ModelID); s.model == nil {
		return errs.FullQueue(maxModels, 1, maxModels)
	}
	if s.queue.primary == "" {
		s.queue.primary = it.ModelID
	}
	return nil
}

func tooMany(n int) *errs.Error {
	return errs.Invalidf("items", "a slice of %d items; at most %d are allowed", n, work.MaxItems)
}

// lora returns the id of the adapter in a slice's options, "" for none.
func lora(options msgp.Raw) string {
	for _, key := range []string{"lora_id", "lora"} {
		if raw := msgp.Locate(key, options); len(raw) > 0 {
			if id, _, err := msgp.ReadStringBytes(raw); err == nil {
				return id
			}
		}
	}
	return ""
}

// enqueue puts a slice whose texts are here into its model's queue, once the server has the
// configuration of its model that the gateway had.
func (c *core) enqueue(s *slice) {
	if c.other(s) {
		c.hold(s)
		return
	}
	it := &s.item
	if s.bytes == 0 { // else it was here before, was held, and its texts are gone
		n := len(it.Single)
		for _, list := range [][]msgp.Raw{it.Items, it.ScoreItems} {
			for _, x := range list {
				n += len(x) + len(it.Query)
			}
		}
		s.bytes = max(n, 1)
		s.tokens = s.model.estimate(s.bytes)
		it.Items, it.ScoreItems, it.Single, it.Query, it.OutputSchema = nil, nil, nil, nil, nil
	}
	s.state = queued
	c.hot[s.model] = true
	if it.Alone {
		c.alone = append(c.alone, s)
		s.model.solo++
		return
	}
	s.model.push(s)
}

// fetched handles the end of a payload's fetch. data is the message with the payload in it.
func (c *core) fetched(s *slice, data []byte, ms float64, err error) {
	if c.slices[s.item.WorkItemID] != s || s.state != fetching {
		return
	}
	s.fetchMS = ms
	if err != nil {
		c.do.count("payload_errors", "")
		c.do.log("warn", "a payload could not be read", s, err)
		e := errs.NotStarted("The payload store did not give the request's items", storeRetry)
		if errors.Is(err, errPayload) {
			e = errs.Internal(err)
		}
		c.keep(s, s.refusal(c.self, e))
		return
	}
	var it work.Item
	if _, err := it.UnmarshalMsg(data); err != nil {
		c.keep(s, s.refusal(c.self, errs.Internal(fmt.Errorf("payload: %w", err))))
		return
	}
	if len(it.Items) > work.MaxItems {
		c.keep(s, s.refusal(c.self, tooMany(len(it.Items))))
		return
	}
	it.Attempt = max(it.Attempt, s.item.Attempt)
	c.bytes += int64(len(data)) - int64(len(s.data))
	s.data, s.item = data, it
	s.group = group{it.ModelID, it.Operation, lora(it.Options)}
	c.enqueue(s)
}
