package configd

import (
	"fmt"
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd/ledger"
)

// A change reads one document and makes one entry, however many models there are; the hashes of a
// bundle that carries neither the model before nor after it stay computed.
func TestAChangeIsOneEntry(t *testing.T) {
	base, err := catalog.LoadDir("testdata/models")
	if err != nil {
		t.Fatal(err)
	}
	bundles, err := catalog.LoadBundlesDir("testdata/bundles")
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBuiltin(base, bundles)
	if err != nil {
		t.Fatal(err)
	}
	state := &ledger.State{}
	text := func(id string, tokens int) string {
		return fmt.Sprintf("sie_id: %s\nhf_id: org/x\ninputs: {text: true}\n"+
			"tasks: {encode: {dense: {dim: 8}}}\nprofiles:\n"+
			"  default: {adapter_path: 'sie_server.adapters.bert_flash:X', max_batch_tokens: %d}\n", id, tokens)
	}
	for i := range 40 {
		id := fmt.Sprintf("new/m%02d", i)
		state = state.Set(id, ledger.Entry{Document: text(id, 8)})
	}
	before, err := b.with(state, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, others := range map[string]int{"new/m07": 44, "new/new": 45, "org/plain": 44} {
		after, err := before.changed(id, state.Set(id, ledger.Entry{Document: text(id, 9), Whole: true}))
		if err != nil {
			t.Fatal(err)
		}
		same := 0
		for _, e := range after.entries {
			if search(before.entries, e.id) == e {
				same++
			}
		}
		if same != others || len(after.entries) != others+1 {
			t.Errorf("%s: %d of %d entries are those of before, want %d", id, same, len(after.entries),
				others)
		}
		kept := 0
		for i := range after.sums {
			if after.sums[i] == before.sums[i] {
				kept++
			}
		}
		want := len(bundles) - len(after.bundlesOf(id))
		if id == "org/plain" { // which was in others
			want = 0
		}
		if kept != want {
			t.Errorf("%s: the hashes of %d bundles are kept, want %d", id, kept, want)
		}
		again, err := b.with(after.added, after)
		if err != nil || search(again.entries, id) != search(after.entries, id) {
			t.Errorf("%s is read again: %v", id, err)
		}
		if again, err := b.with(after.added, nil); err != nil || again.size != after.size {
			t.Errorf("%s: the size is %d, want %d", id, after.size, again.size)
		}
	}
}
