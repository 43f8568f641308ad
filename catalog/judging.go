package catalog

// Judging says how a decoder that reranks is asked and how its answer is read. It comes from the
// load-time options input_format, yes_token, no_token and score_mode.
type Judging struct {
	// Format names the prompt: "qwen3" or "mxbai". "" is the model's own chat template, and the
	// tokens of its LogitScore module.
	Format string
	// Yes and No are texts; the first token of each is an answer.
	Yes, No string
	// Probability: the score is the share of yes in a softmax over both, not the difference of
	// their logits.
	Probability bool
}

// The prompts of rerankers that are decoders.
const (
	FormatQwen3 = "qwen3"
	FormatMxbai = "mxbai"
)

// nativeJudge is the reference's adapter for models that bring their prompt and their tokens.
const nativeJudge = "native_causal_cross_encoder"

// Judging returns how a decoder that reranks is asked. Options that are not set have the
// reference's defaults, which are those of mxbai-rerank v2. It is zero for other models.
func (r *Resolved) Judging() Judging {
	if info := r.Family.info(); info == nil || !info.judges || r.Adapter.name() == nativeJudge {
		return Judging{}
	}
	o := r.Loadtime
	j := Judging{Format: FormatMxbai, Yes: "1", No: "0", Probability: o.ScoreMode == "log_softmax"}
	for _, x := range []struct {
		to   *string
		from string
	}{{&j.Format, o.InputFormat}, {&j.Yes, o.YesToken}, {&j.No, o.NoToken}} {
		if x.from != "" {
			*x.to = x.from
		}
	}
	return j
}
