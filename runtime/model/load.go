package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/guard"
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/registry"
	"github.com/sie-engine/sie/runtime/tokenizer"
	"github.com/sie-engine/sie/weights/hub"
)

// Model is one loaded model: its packed weights on every device, its tokenizer, programs and
// adapters. All ids and profiles with the same weights key share it. It implements registry.Model.
type Model struct {
	host      *Host
	key       string
	name      string        // model id in metrics
	replicas  []*arch.Model // one replica for each device
	weights   *arch.Model   // the first replica, for properties that all share
	tokenizer *tokenizer.Tokenizer
	labels    *tokenizer.Tokenizer // of the label tower; nil without one
	maxTokens int                  // of one text, special tokens included
	vocab     int
	options   batch.Options
	files     parts // held until Close, so that they are not removed from the disk

	idf       []float32    // SPLADE: the weight of each token id in queries; nil: queries run like documents
	kept      sync.Map     // the values of Keep
	keptBytes atomic.Int64 // see CountKept

	adapters *adapterCache

	null *batch.Queue // of the null device, which has nothing of the above; nil on a real device

	variants atomic.Pointer[variants] // replaced when a variant is added

	mu     lockorder.Mutex[lockorder.Model] // guards the fields below, and the replacement of variants
	making map[arch.Want]*making
	// maximum over the variants of short texts, and over all outputs of the model's task
	scratch engine.Footprint

	long longClass // the variants of long texts
}

// loader returns the functions that load the weights of m. The loaded Model depends only on m's
// weights key, not on which id with that key is requested first: pooling, lengths and prompts are
// applied per request.
func (h *Host) loader(m *catalog.Resolved) registry.Load[*Model] {
	key := h.key(m)
	shared, ok := h.snapshot.Load().shared[key]
	if !ok { // the entry was just removed from the catalog
		shared = sharedWeights{first: m, maxTokens: m.MaxSequenceLength}
	}
	if h.opt.Null != nil {
		return h.nullLoader(key, shared)
	}
	id := shared.first.HFID
	if shared.first.WeightsPath != "" {
		id = shared.first.WeightsPath
	}
	start := time.Now()
	var found parts
	adapters := adapterKeysOf(shared.users)
	need := needed{id: id, revision: shared.first.Revision,
		lenders:  shared.first.Model.HFTokenizerDependencies,
		adapters: adapters[:min(len(adapters), h.opt.MaxLoRAs)]}
	return registry.Load[*Model]{
		Find: func(ctx context.Context) (ok bool, err error) {
			return found.find(ctx, h.opt.Hub, need)
		},
		Fetch: func(ctx context.Context) (err error) {
			found.release() // what Find found, where a part was missing
			return found.fetch(ctx, h.opt.Hub, shared.first.ID, need)
		},
		Pack: func(ctx context.Context) (*Model, error) {
			l, err := h.load(ctx, key, shared, found)
			if err == nil {
				h.opt.Log.Info("model ready", "model", shared.first.ID, "weights", string(found.model.Source),
					"device", h.DeviceName(), "precision", l.weights.Compute.String(), "dim", l.weights.Dim,
					"max_tokens", l.maxTokens, "packed_mib", l.Bytes()>>20, "weights_on", l.weightsOn(),
					"took", time.Since(start).Round(time.Millisecond))
				if n := l.weights.Denormals(); n > 0 {
					h.opt.Log.Info(
						"weights too small for a normal float32 became 0: each would slow its products down",
						"model", shared.first.ID, "values", n)
				}
			}
			return l, err
		},
		Drop: func() { found.release() },
	}
}

// load packs and records the model in found. On success the Model takes over found; on an error the
// caller releases it. The registry calls load for one model at a time. ctx bounds its waits for
// memory.
func (h *Host) load(
	ctx context.Context, key string, shared sharedWeights, found parts,
) (*Model, error) {
	m := shared.first
	compute, err := h.compute(m)
	if err != nil {
		return nil, err
	}
	task, ok := h.opt.Tasks[m.Family]
	if !ok {
		return nil, &arch.ModelError{Reason: fmt.Sprintf("models of the family %q are not served", m.Family)}
	}
	if m.Model.File == "" { // a hub id without a model file, whose task was detected
		if is, _, err := arch.Detect(found.model.Dir); err == nil && is != task {
			return nil, &arch.ModelError{File: "config.json", Field: "architectures", Reason: fmt.Sprintf(
				"the model is made for the task %s and was taken for one of %s when it could not be seen; start again, or send SIGHUP",
				is, task)}
		}
	}
	folder, err := found.tokenizerFolder()
	if err != nil {
		return nil, err
	}
	added, err := task.AddedTokens(found.model.Dir)
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.LoadExtra(folder, added)
	if err != nil {
		return nil, tokenizerError{err}
	}
	labels, err := found.labelTokenizer()
	closeTokenizers := func() {
		tok.Close()
		if labels != nil {
			labels.Close()
		}
	}
	if err != nil {
		closeTokenizers()
		return nil, err
	}
	tokens := arch.TokensFor(h.devices[0].about, m.MaxBatchTokens)
	if h.opt.MaxBatchTokens > 0 {
		tokens = h.opt.MaxBatchTokens
	}
	answers, err := answersOf(m, tok)
	if err != nil {
		closeTokenizers()
		return nil, err
	}
	replicas, need, err := h.pack(ctx, found.model.Dir, arch.Options{Task: task, Compute: compute,
		MaxSeqLen: shared.maxTokens, ShortLen: h.opt.ShortTokens, MaxTokens: tokens, Answers: answers,
		Dense: m.Loadtime.DenseProjectionPath})
	if err != nil {
		h.Fatal(err)
		closeTokenizers()
		return nil, err
	}
	a := replicas[0]
	l := &Model{
		host: h, key: key, name: m.ID, replicas: replicas, weights: a, tokenizer: tok, labels: labels,
		maxTokens: a.MaxSeqLen, vocab: a.Vocab, scratch: need, files: found,
		options: h.queueOptions(m, int(a.Caps(false).MaxTokens), int(a.Caps(false).MaxSeqs)),
	}
	l.options.Work = batch.Work(a.Cost())
	l.variants.Store(&variants{})
	if a.Gives(arch.OutSparse) {
		if l.idf, err = readIDF(found.model.Dir, tok, h.opt.Log); err == nil && l.idf == nil {
			l.idf, err = l.queryWeights()
		}
	}
	if err := cmp.Or(err, l.check()); err != nil {
		closeTokenizers()
		closeReplicas(replicas)
		return nil, err
	}
	l.adapters = newAdapterCache(l, h.opt.MaxLoRAs)
	l.adapters.preload(adapterKeysOf(shared.users))
	if l.RoomForKept() < l.Bytes() { // requests to other models took the room that makeRoom found
		h.dropKept()
	}
	h.loaded.Store(key, l)
	h.sizes.Store(key, l.Bytes()/int64(len(h.devices)))
	h.seen.Store(m.ID, nil)
	return l, nil
}

// answersOf returns the tokens whose logits a reranker's score is made of: the first token of its
// yes, then that of its no. It returns nil where the model's files name them, and for other models.
func answersOf(m *catalog.Resolved, tok *tokenizer.Tokenizer) ([]int32, error) {
	j := m.Judging()
	if j.Format == "" {
		return nil, nil
	}
	var b tokenizer.Batch
	words := []string{j.Yes, j.No}
	if err := tok.Encode(&b, words, tokenizer.Options{NoSpecial: true}); err != nil {
		return nil, tokenizerError{err}
	}
	out := make([]int32, len(words))
	for i, word := range words {
		ids := b.Text(i)
		if len(ids) == 0 {
			return nil, &arch.ModelError{File: "tokenizer.json", Reason: fmt.Sprintf(
				"has no token for %q, an answer of the reranker; set the options yes_token and no_token", word)}
		}
		out[i] = ids[0]
	}
	if out[0] == out[1] {
		return nil, &arch.ModelError{File: "tokenizer.json", Reason: fmt.Sprintf(
			"%q and %q begin with the same token %d; the reranker's answers must differ", j.Yes, j.No, out[0])}
	}
	return out, nil
}

// pack packs the weights in dir on all devices in parallel, and returns one replica for each and
// the scratch memory of their largest batch. First it makes room for the weights and for the host
// memory that packing takes temporarily; after packing, for the largest batch.
func (h *Host) pack(
	ctx context.Context, dir string, o arch.Options,
) ([]*arch.Model, engine.Footprint, error) {
	var s engine.Footprint
	size, err := arch.SizeOf(dir, h.devices[0].engine, o)
	if err != nil {
		return nil, s, err
	}
	o.Placement = h.placement(size)
	packed := size.On(h.nodes(), o.Placement)
	if err := h.makeRoom(ctx, need{
		weights: packed, passing: size.Passing, whole: packed, what: "its weights need",
	}); err != nil {
		return nil, s, err
	}
	replicas := make([]*arch.Model, len(h.devices))
	failures := make([]error, len(h.devices))
	var all sync.WaitGroup
	for i, d := range h.devices {
		all.Go(func() {
			failures[i] = guard.Run(func() (err error) {
				replicas[i], err = arch.Load(dir, d.engine, o)
				return err
			})
		})
	}
	all.Wait()
	for i, err := range failures {
		if err != nil {
			closeReplicas(replicas)
			return nil, s, h.devices[i].explain(err, packed)
		}
	}
	if s, err = scratchOf(replicas[0]); err != nil {
		closeReplicas(replicas)
		return nil, s, err
	}
	arena, slots := s.Bytes()
	if err := h.makeRoom(ctx, need{
		packed:  replicas[0].Bytes(),
		scratch: s,
		whole:   replicas[0].Bytes() + arena + slots,
		what:    "its weights and its largest batch need",
	}); err != nil {
		closeReplicas(replicas)
		return nil, s, err
	}
	return replicas, s, nil
}

func closeReplicas(replicas []*arch.Model) {
	for _, c := range replicas {
		if c != nil {
			c.Close()
		}
	}
}

// tokenizerError wraps any error of loading a tokenizer, so that classify knows that the model's
// files are wrong.
type tokenizerError struct{ error }

func (e tokenizerError) Unwrap() error { return e.error }

// check reports whether tokenizer and weights fit together: vocabulary size, maximum length and
// markers.
func (l *Model) check() error {
	if have := l.tokenizer.VocabSize(); have > l.vocab {
		return &arch.ModelError{File: "tokenizer.json", Reason: fmt.Sprintf(
			"has ids up to %d; the model's vocabulary has %d entries", have-1, l.vocab)}
	}
	if l.labels != nil {
		tower := l.weights.GLiNER.Tower
		if have := l.labels.VocabSize(); have > tower.Vocab {
			return &arch.ModelError{File: "tokenizer.json", Reason: fmt.Sprintf(
				"of the labels has ids up to %d; the label tower's vocabulary has %d entries", have-1, tower.Vocab)}
		}
	}
	if n := l.tokenizer.CountSpecial(false); n > l.maxTokens {
		return &arch.ModelError{File: "tokenizer.json", Reason: fmt.Sprintf(
			"adds %d special tokens to a text; the model takes %d in all", n, l.maxTokens)}
	}
	return l.weights.GLiNER.CheckTokens(l.tokenizer.TokenToID)
}

// compute returns the precision that the operator chose, or 0 for the device's default. If the
// operator leaves it open, a profile that asks for float32 gets it on devices that have it.
func (h *Host) compute(m *catalog.Resolved) (engine.Compute, error) {
	want := h.opt.Precision
	switch {
	case h.runsInFloat32(m):
		return engine.ComputeF32, nil
	case want == "" || want == "auto":
		return 0, nil
	}
	c, ok := engine.ParseCompute(want)
	if !ok {
		return 0, fmt.Errorf("model: unknown precision %q", want)
	}
	return c, nil
}

// queueOptions returns the host's batch options with the model's limits and its adaptive batching.
// tokens and seqs bound a batch; 0: see batch.Options.
func (h *Host) queueOptions(m *catalog.Resolved, tokens, seqs int) batch.Options {
	o := h.opt.Batch
	o.MaxCost, o.MaxSeqs = tokens, seqs
	o.MaxItems = h.opt.MaxQueueItems
	o.Fatal = h.Fatal
	name := m.ID
	o.NoMemory, o.MakeRoom, o.Recovered = noMemory, h.models.EvictOne, h.recovered(name)
	o.NonFinite = func(items int) { h.opt.Metrics.NonFinite(name, items) }
	o.BatchDone = func(items, tokens int, run time.Duration) {
		h.batchDone()
		h.opt.Metrics.Batch(name, items, tokens, run)
	}
	ad, from := &o.Adaptive, m.AdaptiveBatching
	if from.Enabled != nil {
		ad.Disabled = !*from.Enabled
	}
	for _, x := range []struct {
		to   *time.Duration
		from *float64
	}{
		{&ad.TargetP50, from.TargetP50MS}, {&ad.MinTargetP50, from.MinTargetP50MS},
		{&ad.MaxTargetP50, from.MaxTargetP50MS}, {&ad.MinWait, from.MinWaitMS}, {&ad.MaxWait, from.MaxWaitMS},
	} {
		if x.from != nil {
			*x.to = time.Duration(*x.from * float64(time.Millisecond))
		}
	}
	for _, x := range []struct{ to, from *float64 }{{&ad.CalibrationMultiplier, from.CalibrationMultiplier},
		{&ad.Gain, from.Gain}, {&ad.IntegralGain, from.IntegralGain}} {
		if x.from != nil {
			*x.to = *x.from
		}
	}
	return o
}

// Limit returns the maximum number of tokens of one text for m.
func (l *Model) Limit(m *catalog.Resolved) int {
	if n := m.MaxSequenceLength; n > 0 {
		return min(n, l.maxTokens)
	}
	return l.maxTokens
}

// Bytes returns the size of the packed weights and adapters on all devices, and where they lie in
// the host's memory, of what the model keeps there (CountKept).
func (l *Model) Bytes() int64 {
	var n int64
	if l.host.inHostMemory() {
		n = l.keptBytes.Load()
	}
	for _, c := range l.replicas {
		n += c.Bytes()
	}
	if l.adapters != nil {
		n += l.adapters.bytes.Load()
	}
	return n
}

// Idle reports whether no item is queued and no batch is in flight.
func (l *Model) Idle() bool {
	all := *l.variants.Load()
	for _, v := range all {
		if !v.Queue.Idle() {
			return false
		}
	}
	return true
}

// Close fails queued items, waits for running batches and adapter loads, and frees the weights.
func (l *Model) Close() {
	l.host.loaded.Delete(l.key)
	if l.long.any() {
		l.host.shrinks.Store(true)
	}
	if l.null != nil {
		l.null.Close(batch.ErrClosed)
		return
	}
	for _, v := range l.recorded() { // the model has no reference, so no variant is added any more
		v.Queue.Close(batch.ErrClosed)
		v.closePrograms()
	}
	l.adapters.close()
	l.tokenizer.Close()
	if l.labels != nil {
		l.labels.Close()
	}
	closeReplicas(l.replicas)
	l.files.release()
}

// full returns why no queue has room for one more item, or nil if one has room or there is no
// queue. Of several reasons it returns the one with the shortest RetryAfter.
func (l *Model) full() *batch.FullError {
	var first *batch.FullError
	for _, v := range *l.variants.Load() {
		if v.Want.Long { // short items, which Room is about, never go there
			continue
		}
		e := v.Queue.Room(1)
		if e == nil {
			return nil
		}
		if first == nil || e.RetryAfter < first.RetryAfter {
			first = e
		}
	}
	return first
}

// Queued returns the number of items that wait in the model's queues.
func (l *Model) Queued() int {
	return l.stats().Items
}

// stats adds up the items and tokens of the queues; the other fields are those of the queue with
// the most items.
func (l *Model) stats() batch.Stats {
	all := *l.variants.Load()
	var out batch.Stats
	for _, v := range all {
		s := v.Queue.Stats()
		items, tokens := out.Items+s.Items, out.Tokens+s.Tokens
		if s.Items >= out.Items {
			out = s
		}
		out.Items, out.Tokens = items, tokens
	}
	return out
}

// publicCause returns the text of a load error without this machine's paths, so that clients may
// see it.
func publicCause(err error) string {
	var h *hub.Error
	var p *guard.Panic
	switch {
	case errors.As(err, &p):
		return "a fault of the server, which its log has"
	case errors.As(err, &h):
		return withoutPaths(h.Message)
	case errors.Is(err, fs.ErrNotExist):
		var pe *fs.PathError
		if errors.As(err, &pe) {
			return "the file " + pe.Path[strings.LastIndexByte(pe.Path, '/')+1:] +
				" is missing from the model directory"
		}
	}
	return withoutPaths(err.Error())
}

// withoutPaths shortens paths in s to their last element.
func withoutPaths(s string) string {
	words := strings.Fields(s)
	for i, w := range words {
		if at := strings.Index(w, "/"); at >= 0 && strings.Count(w[at:], "/") > 1 &&
			!strings.Contains(w, "://") {
			words[i] = w[:at] + w[strings.LastIndexByte(strings.TrimRight(w, "/:,;"), '/')+1:]
		}
	}
	return strings.Join(words, " ")
}
