package arch

import (
	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/engine"
)

// A judge reads the same instruction and query before each text of a request. Under a causal mask
// their states do not depend on what follows, so a batch computes their keys and values once, in a
// program of its own, and the texts attend to these as their first keys (docs/adr/0034).

// prefixed is an encoder whose texts may begin with tokens that a batch computes once.
type prefixed interface {
	encoder
	// recordPrefix records the keys and values of each block into a segment of the state, as
	// forward reads them with pass.behind.
	recordPrefix(r *engine.Recorder, p pass)
	// sharesPrefixes reports whether a token's states depend on no token behind it, and the state
	// has room for all blocks.
	sharesPrefixes() bool
}

// maxPrefixTokens bounds the tokens of all prefixes of a batch, and so the memory of their keys and
// values: 1,024 tokens of Qwen3-0.6B take 112 MiB in bf16.
const maxPrefixTokens = 1024

// MaxPrefixes is the largest number of prefixes of a batch.
const MaxPrefixes = 64

// SharesPrefixes reports whether items of batches of the program that Record makes of want may
// share prefixes, which RecordPrefixes' program computes.
func (m *Model) SharesPrefixes(want Want) bool {
	e, ok := m.encoder.(prefixed)
	return ok && !m.noPrefixes && !want.Long && want.Give == Give(OutAnswers) && e.sharesPrefixes()
}

// RecordPrefixes records the program whose batches are the prefixes of other batches
// (engine.Batch.Prefix). Each sequence of them may name one of the adapters. The caller closes it
// before the model.
func (m *Model) RecordPrefixes(adapters []*Adapter) (*engine.Program, error) {
	lockorder.AssertNoneHeld("recording a program")
	rows := m.stateRows()
	r := m.device.Record(engine.Caps{MaxTokens: rows, MaxSeqs: MaxPrefixes, MaxLen: rows,
		MaxStateRows: rows})
	m.encoder.(prefixed).recordPrefix(r, pass{keep: engine.PoolMean, adapters: adapters})
	return r.End()
}

// stateRows returns the tokens that all prefixes of a batch may have together.
func (m *Model) stateRows() int64 { return min(maxPrefixTokens, m.caps.MaxLen) }
