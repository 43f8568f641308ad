package queue

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/gateway/models"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/inference"
	"github.com/sie-engine/sie/internal/tenant"
	"github.com/sie-engine/sie/internal/work"
)

// Workers is what a Backend needs of the fleet.
type Workers interface{ Snapshot() *fleet.Snapshot }

// Backend answers the inference routes with a Queue. It is an inference.Backend.
type Backend struct {
	queue    *Queue
	registry *models.Registry
	workers  Workers
	demand   Demand
	holds    holds
	ask      time.Duration // holdAsk, but in tests
	requests *requestMetrics

	mu       sync.Mutex
	capacity map[string]*inference.Refusal // at most one for each machine profile
}

// Demand is told of requests that found no worker: a demand.Tracker.
type Demand interface {
	// Note notes that a request wanted a worker of a lane that has none.
	Note(l bus.Lane)
	// Home returns the lane whose workers serve a lane, which may be of a client's pool.
	Home(l bus.Lane) bus.Lane
	// Told returns what was noted and lasts, for the heartbeats of this gateway.
	Told() []bus.LaneDemand
}

// NewBackend returns a backend over a queue, the models of the cluster and its workers.
func NewBackend(q *Queue, r *models.Registry, w Workers, d Demand) *Backend {
	b := &Backend{queue: q, registry: r, workers: w, requests: newRequestMetrics(q.opt.Metrics),
		capacity: map[string]*inference.Refusal{}, demand: d, ask: holdAsk}
	q.demand.Store(&d)
	b.holds.observe(q.opt.Metrics)
	known := func(worker string) presence {
		x := w.Snapshot().Worker(worker)
		if x == nil || !x.Live {
			return presence{}
		}
		return presence{live: true, epoch: x.Epoch(), at: x.Came}
	}
	q.workers.Store(&known)
	lost := func(l bus.Lane) bool { return w.Snapshot().Lost(l, time.Now()) }
	q.losses.Store(&lost)
	return b
}

// Begin implements inference.Backend.
func (b *Backend) Begin(h inference.Head) inference.Session {
	s := &session{backend: b, head: h, began: time.Now()}
	if s.head.Pool == "" && !strings.Contains(h.MachineProfile, "/") {
		s.head.Pool = h.Tenant.Pool()
	}
	s.hold, s.badHead = holdOf(h)
	var ok bool
	if s.priority, ok = h.Tenant.PriorityOf(h.Priority); !ok {
		s.badHead = errs.Invalidf("X-SIE-Priority", "X-SIE-Priority is %s; use high, normal or low",
			errs.Quote(files.Clip(h.Priority, 32)))
	}
	return s
}

// at notes the lane of a request, for its series: that of the workers, because clients choose the
// names of their pools.
func (s *session) at(l bus.Lane) { s.lane = s.backend.demand.Home(l) }

// asker returns who asks.
func (s *session) asker() asker { return asker{s.head.Tenant.Key(), s.priority} }

// route returns the route of a model to a pool that the tenant may use: by the name that the
// request gives, which may be that of a client's pool, or else by that of its lane.
func (s *session) route(m models.Model) (models.Route, error) {
	r, err := m.Route(s.head.MachineProfile, s.head.Pool)
	pool := s.head.Pool
	if asked, _, both := strings.Cut(s.head.MachineProfile, "/"); both && asked != "" {
		pool = asked
	}
	pool = cmp.Or(pool, r.Lane.Pool)
	if err != nil {
		return r, err
	}
	if e := s.head.Tenant.CheckPool(pool); e != nil {
		return models.Route{}, e
	}
	if s.head.Pool == "" && !strings.Contains(s.head.MachineProfile, "/") {
		r = m.Share(r, s.head.RequestID)
	}
	return r, nil
}

// Models implements inference.Backend. A name that stands for others is described as the heaviest
// of them.
func (b *Backend) Models() []api.ModelInfo {
	list, aliases := b.registry.List(), b.queue.opt.Aliases
	names := aliases.Names()
	for i := range list {
		list[i].Aliases = names[list[i].Name]
	}
	for _, name := range slices.Sorted(maps.Keys(aliases)) {
		info, err := b.registry.Info(aliases.Heaviest(name))
		if err != nil {
			continue // no catalog has it, and a request is told so
		}
		info.Name, info.Aliases = name, nil
		if i := slices.IndexFunc(list, func(m api.ModelInfo) bool { return m.Name == name }); i >= 0 {
			list[i] = *info
		} else {
			list = append(list, *info)
		}
	}
	return list
}

// session is one request. It belongs to one goroutine.
type session struct {
	backend *Backend
	head    inference.Head
	began   time.Time
	model   models.Model // the last that was found
	found   bool
	alias   bool     // its name in the request stands for it
	lane    bus.Lane // whose workers the request went to

	priority tenant.Priority
	hold     time.Duration // for which it may wait for capacity
	badHead  error         // of a header that says nothing
}

// Model implements compat.Backend.
func (s *session) Model(id string) (compat.Model, error) {
	return s.named(id, s.backend.registry.Find)
}

// OpenAIModel implements compat.Backend.
func (s *session) OpenAIModel(id string) (compat.Model, error) {
	return s.named(id, s.backend.registry.FindOpenAI)
}

// named finds the model of a name, which may stand for others. The answer has the name.
func (s *session) named(id string, find func(string) (models.Model, error)) (compat.Model, error) {
	target, stands := s.backend.queue.opt.Aliases.Target(id, s.head.RequestID)
	if !stands {
		return s.find(find(id))
	}
	m, err := find(target)
	m.Name = id
	s.alias = err == nil && m.Entry.ID != id
	return s.find(m, err)
}

func (s *session) find(m models.Model, err error) (compat.Model, error) {
	if err != nil {
		return compat.Model{}, err
	}
	s.model, s.found = m, true
	return m.About(), nil
}

// Info implements compat.Backend.
func (s *session) Info(id string) (*api.ModelInfo, error) {
	target := s.backend.queue.opt.Aliases.Heaviest(id)
	if target == "" {
		info, err := s.backend.registry.Info(id)
		if err == nil {
			info.Aliases = s.backend.queue.opt.Aliases.Names()[info.Name]
		}
		return info, err
	}
	info, err := s.backend.registry.Info(target)
	if err == nil {
		info.Name = id
	}
	return info, err
}

// Check implements inference.Session. Without a model nothing can be said of the lane.
func (s *session) Check() error {
	if s.badHead != nil {
		return s.badHead
	}
	if !s.found || s.head.MachineProfile == "" && s.head.Pool == "" || s.model.Entry.Usable() != nil {
		return nil
	}
	_, err := s.route(s.model)
	if e := errs.As(err); e != nil &&
		(e.Status == 400 || e.Status == 403 || e.Code == errs.PoolNotFound) {
		return e
	}
	return nil
}

// Refusal implements inference.Session: there is no worker for the model, or too much waits for it.
func (s *session) Refusal(id string) *inference.Refusal {
	m := s.model
	if !s.found || m.Entry.ID != id {
		var err error
		if m, err = s.backend.registry.Find(id); err != nil {
			return nil
		}
	}
	route, err := s.route(m)
	if err != nil {
		return nil // the request itself is told
	}
	s.at(route.Lane)
	q := s.backend.queue
	if empty(s.backend.workers.Snapshot(), route) {
		if s.hold > 0 {
			return nil // it waits, if there is room for it
		}
		q.metrics.refused.WithLabelValues("capacity").Inc()
		return s.backend.noCapacity(route.Lane)
	}
	l := q.peek(route.Lane.WorkSubject(route.ModelID))
	if l == nil {
		return nil
	}
	r := l.refusal(s.asker(), q.opt.MaxWait, !s.head.Caller.RetriesQueueFull(), time.Now())
	if r != nil {
		q.metrics.refused.WithLabelValues("queue").Inc()
	}
	return r
}

// capacityRetry is the Retry-After while a lane has no worker.
const capacityRetry = 5 * time.Second

// noCapacity returns the refusal for a lane without ready workers, and notes the demand.
func (b *Backend) noCapacity(l bus.Lane) *inference.Refusal {
	b.demand.Note(l)
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.capacity[l.Profile]
	if r == nil {
		r = inference.Refuse(errs.Capacity(l.Profile, capacityRetry))
		b.capacity[l.Profile] = r
	}
	return r
}

// End implements inference.Session.
func (s *session) End(_ string, _ *api.Outcome, err error) {
	s.backend.requests.count(s.head.Endpoint, s.lane, time.Since(s.began), err)
}

// task is what one operation asks of the queue.
type task struct {
	item   work.Item // the operation and what its slices have in common
	n      int       // items
	append func(dst []byte, i int) []byte
	field  string          // the client's name for the items
	result func(i int) int // expected bytes of an item's result; nil: little
}

// do sends a task through the queue and returns the pending request that has the results.
func (s *session) do(w *admit.Work, m models.Model, t task) (*request, error) {
	r, err := s.prepare(w, m, t)
	if err == nil {
		trace := s.backend.queue.trace(s.head, r)
		r.line.weigh(r.bytes)
		err = s.backend.queue.run(r)
		r.line.weigh(-r.bytes)
		trace(r, err)
		r.line.release(time.Now())
		s.backend.queue.count(r, t.n)
	}
	if err != nil {
		return nil, s.translate(err)
	}
	return r, nil
}

// prepare finds the lane of a task and cuts it into slices. The line of the request that it returns
// has to be released.
func (s *session) prepare(w *admit.Work, m models.Model, t task) (*request, error) {
	b, q := s.backend, s.backend.queue
	route, err := s.await(w, m)
	if err != nil {
		return nil, err
	}
	now, lane := time.Now(), b.workers.Snapshot().Lane(route.Lane)
	id, err := uuid.NewV7()
	if err != nil {
		return nil, errs.Internal(err)
	}
	items, bytes := encodeItems(t)
	if err := w.Hold(bytes, t.n); err != nil {
		return nil, err
	}
	limit := int(q.broker.MaxPayload())
	if limit == 0 {
		limit = work.ChunkBytes // of a broker that has not been reached yet
	}
	extra := len(t.item.Query) + len(t.item.Options) + len(t.item.OutputSchema) + textBytes(&t.item)
	free := q.peek(route.Lane.WorkSubject(route.ModelID)).free(len(lane.Able(route.ModelID)))
	cuts := cut(items, free, extra, limit, t.result)
	for i := range cuts {
		if cuts[i].offload && q.opt.Store == nil {
			return nil, errs.NoPayloadStore(cmp.Or(t.field, "items"), cuts[i].bytes, limit)
		}
		if cuts[i].bytes > work.MaxWholeBytes {
			return nil, errs.WorkTooLarge(cmp.Or(t.field, "items"), cuts[i].bytes, work.MaxWholeBytes)
		}
	}
	l := q.line(route.Lane, route.ModelID)
	if e := l.refuse(s.asker(), q.opt.MaxWait, now); e != nil {
		l.release(now)
		q.metrics.refused.WithLabelValues("queue").Inc()
		return nil, e
	}
	item := t.item
	item.RequestID, item.Total, item.ModelID = id.String(), uint32(len(cuts)), route.ModelID
	item.ProfileID, item.PoolName, item.MachineProfile = "default", route.Lane.Pool, route.Lane.Profile
	item.Engine, item.BundleConfigHash, item.ModelConfigHash = route.Engine, route.BundleConfigHash,
		route.ModelConfigHash
	item.ModelDocumentHash = route.ModelDocumentHash
	item.RouterID, item.ReplySubject = q.opt.Router, bus.Inbox(q.opt.Router, item.RequestID)
	item.AcceptsChunks, item.CallerID = true, s.head.RequestID
	item.AcceptsRef = q.opt.Store != nil
	item.TraceParent, item.TraceState = s.head.TraceParent, s.head.TraceState
	r := newRequest(item.RequestID, l, w, item, items, cuts)
	for _, raw := range items {
		r.bytes += len(raw)
	}
	r.who, r.alias = s.asker(), s.alias
	r.began, r.limit = now, limitFor(q.opt.Timeout, s.head.Caller)
	r.late = w.Began().Add(r.limit)
	return r, nil
}

// limitFor returns how long a caller's request may take.
func limitFor(timeout time.Duration, c dialect.Caller) time.Duration {
	return min(timeout, c.Patience()-patienceRoom)
}

// translate gives an error the code that the caller retries: SDKs that fail on QUEUE_FULL wait on
// PROVISIONING.
func (s *session) translate(err error) error {
	e := errs.As(err)
	own := e != nil && e.Code == errs.QueueFull
	if own && !s.head.Caller.RetriesQueueFull() {
		return provisioning(e)
	}
	return err
}

// itemBytes is what an item of a short text takes in a message, about.
const itemBytes = 128

// encodeItems returns the items of a task in msgpack, and their bytes.
func encodeItems(t task) ([]rawItem, int64) {
	ends := make([]int, t.n)
	all := make([]byte, 0, min(itemBytes*t.n, 64<<10)) // more items make it grow
	for i := range ends {
		all = t.append(all, i)
		ends[i] = len(all)
	}
	items := make([]rawItem, t.n)
	from := 0
	for i, end := range ends {
		items[i] = rawItem(all[from:end:end])
		from = end
	}
	return items, int64(cap(all))
}

// textBytes returns what the texts of an item take that all slices have in common.
func textBytes(item *work.Item) (n int) {
	for _, list := range [][]string{item.Labels, item.OutputTypes} {
		for _, s := range list {
			n += len(s) + 8
		}
	}
	if item.Instruction != nil {
		n += len(*item.Instruction)
	}
	return n + len(item.CallerID) + len(item.TraceState)
}
