package worker

import (
	"slices"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
)

// batches is a sim that keeps what is sent to the server.
type batches struct {
	*sim
	sent []*ipc.RunBatchRequest
}

func (b *batches) run(r *ipc.RunBatchRequest) (string, error) {
	b.sent = append(b.sent, r)
	return "call", nil
}

// Slices of one model are in one batch when they want the same operation and the same adapter, in
// the order in which they came, and the batch names the adapter.
func TestABatchHasOneOperationAndOneAdapter(t *testing.T) {
	b := &batches{sim: connected(t)}
	b.c.do = b
	options := func(key, id string) []byte {
		return msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), key), id)
	}
	ids := map[string][]string{}
	for _, x := range []struct{ operation, key, adapter string }{
		{work.Encode, "lora_id", "a"}, {work.Encode, "lora_id", "b"}, {work.Score, "lora_id", "a"},
		{work.Encode, "lora", "a"}, {work.Encode, "other", ""}, {work.Encode, "lora_id", "b"},
	} {
		m := b.delivers(simModels[0], true, func(it *work.Item) {
			it.Operation, it.Options = x.operation, options(x.key, x.adapter)
		})
		group := x.operation + " " + x.adapter
		ids[group] = append(ids[group], m.id)
	}
	m := b.c.models[simModels[0]]
	m.state, m.full, m.window = loaded, 1000, 1000
	b.c.dispatch()
	for _, r := range b.sent {
		group, got := r.Items[0].Op+" "+r.LoraKey, []string(nil)
		for _, i := range r.Items {
			got = append(got, i.WorkItemID)
		}
		if !slices.Equal(got, ids[group]) {
			t.Errorf("the batch of %q has %v, want %v", group, got, ids[group])
		}
	}
	if len(b.sent) != len(ids) {
		t.Errorf("%d batches of %d groups", len(b.sent), len(ids))
	}
}
