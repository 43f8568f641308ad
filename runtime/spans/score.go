package spans

import (
	"math"

	"github.com/sie-engine/sie/runtime/words"
)

// Span is a found entity of a window: words Start to End, both inside.
type Span struct {
	Start, End int
	Label      int
	Score      float32
}

// Entity is a found entity of an item: code points Start to End, without End.
type Entity struct {
	Start, End int
	Label      int
	Score      float32
}

// Decoding says how scores become spans.
type Decoding struct {
	Threshold  float64 // a score must be above
	FlatNER    bool    // spans may not overlap; otherwise one may lie inside another
	MultiLabel bool    // a span may have several labels
}

// Score returns the sigmoid of a logit in float32 operations, as the reference computes it: logits
// that are far from 0 have equal scores, and order and ties depend on which.
func Score(logit float32) float32 {
	return 1 / (1 + float32(math.Exp(float64(-logit))))
}

// LogitFloor returns a logit below which no score reaches the threshold. It lies a little lower
// than the threshold's own logit, so that the decoder alone decides about scores at the threshold.
// It is −Inf for a threshold that every score may reach.
func LogitFloor(threshold float64) float32 {
	const (
		margin = 1e-3    // of a logit
		close  = 2.4e-07 // of a score near 1, which has 24 bits
	)
	if !(threshold > 0) {
		return float32(math.Inf(-1))
	}
	if threshold > 0.5 {
		threshold = min(threshold, 1) - close
	}
	return float32(math.Log(threshold) - math.Log1p(-threshold) - margin)
}

// Entities gives the spans of a window their places in the text that its words have places in.
func Entities(found []Span, in []words.Word) []Entity {
	out := make([]Entity, len(found))
	for i, s := range found {
		out[i] = Entity{in[s.Start].Start, in[s.End].End, s.Label, s.Score}
	}
	return out
}
