package task

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/batch"
	"github.com/sie-engine/sie/runtime/tokenizer"
)

// The family of decoders that are asked whether a text answers a query. judgeprompt.go has the
// prompts.
func init() {
	families[catalog.FamilyCausalReranker] = &family{task: arch.Judge, score: scoreJudged}
}

// scoreJudged asks the model about each text. A score is made of the logits of one or two tokens
// that may come next.
func scoreJudged(r *run) error {
	how := r.model.Judging()
	p, err := r.judgePrompt(how)
	if err != nil {
		return err
	}
	v, err := r.variantFor(arch.Want{Give: arch.Give(arch.OutAnswers)})
	if err != nil {
		return err
	}
	sizes := newSizes(v, forms{})
	activation := arch.Identity
	if how.Format == "" {
		activation = r.use.Weights().Activation
	}
	return r.job(v, len(r.req.Inputs), false, func(first, end int) ([]batch.Item, error) {
		items, err := r.judged(p, r.texts(first, end), first, &sizes)
		if n := v.MaxPrefixTokens(); n > 0 {
			r.share(items, n)
		}
		return items, err
	}, func(i int, out *batch.Result) error {
		r.result.Scores[i] = judgement(floats(out[0]), how.Probability, activation)
		return nil
	})
}

// judgement makes a score of the logits of yes and, if there is one, of no.
func judgement(logits []float32, probability bool, a arch.Activation) float64 {
	z := float64(logits[0])
	if len(logits) > 1 {
		z -= float64(logits[1])
	}
	if probability { // the softmax of two logits is the sigmoid of their difference
		return 1 / (1 + math.Exp(-z))
	}
	return activate(a, z)
}

// prompt is what a decoder reads for a query and a text, but for the text.
type prompt struct {
	// before and after are the ids around the text. Where joined is set, the tokenizer reads the
	// text and what is around it as one string, and only after is known apart.
	before, after []int32
	// write returns the string that is tokenised for a text: the text with its label, or all.
	write  func(text string) string
	joined bool
	// fixed is how many tokens of an item are of no text of the request.
	fixed int
}

// judged tokenises texts into items with results of those sizes. first is the number of the first
// text in the request. Only the text is cut where an item is too long.
func (r *run) judged(p *prompt, texts []string, first int, results *sizes) ([]batch.Item, error) {
	start, limit := time.Now(), r.reader.limit
	room := limit - len(p.before) - len(p.after)
	if room < 1 {
		return nil, r.noRoom(len(p.before)+len(p.after), limit-1)
	}
	written := make([]string, len(texts))
	for i, text := range texts {
		written[i] = p.write(text)
	}
	o := tokenizer.Options{MaxTokens: room, NoSpecial: true, Left: r.reader.left}
	if p.joined {
		o.MaxTokens = limit
	}
	var b tokenizer.Batch
	if err := r.use.Tokenizer().EncodeParallel(r.ctx, &b, written, o); err != nil {
		return nil, r.reader.textError(err, first)
	}
	items := make([]batch.Item, len(texts))
	for i := range items {
		ids := p.assemble(b.Text(i), b.Truncated[i])
		r.reader.tokens += len(ids)
		items[i] = batch.Item{
			Inputs: batch.Inputs{IDs: ids}, Specs: results.of(len(ids), 0), Index: i,
		}
		if err := r.reader.refuseCut(b.Truncated[i], first+i); err != nil {
			return nil, err
		}
	}
	r.special += p.fixed * len(items)
	r.reader.took += time.Since(start)
	return items, nil
}

// assemble puts the ids of a text into the prompt.
func (p *prompt) assemble(text []int32, cut bool) []int32 {
	if p.joined {
		if !cut {
			return text
		}
		text = text[:len(text)-len(p.after)]
	}
	ids := make([]int32, 0, len(p.before)+len(text)+len(p.after))
	if !p.joined {
		ids = append(ids, p.before...)
	}
	return append(append(ids, text...), p.after...)
}

// noRoom refuses a query that leaves no room for a text.
func (r *run) noRoom(tokens, limit int) error {
	return errs.TooLong(queryField, fmt.Sprintf(
		"Field 'query': with the instruction and the prompt of model '%s' it has %d tokens, and %d are possible with a document; shorten the query",
		r.model.ID, tokens, limit))
}

// The prompts of rerankers, as their authors publish them. The pieces are tokenised one by one.
const (
	qwen3Task = "Judge whether the Document meets the requirements based on the Query and the Instruct " +
		"provided. Note that the answer can only be \"yes\" or \"no\"."
	qwen3Instruction = "Given a web search query, retrieve relevant passages that answer the query"
	qwen3End         = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

	mxbaiSystem = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
	mxbaiTask   = "You are a search relevance expert who evaluates how well documents match search queries. " +
		"For each query-document pair, carefully analyze the semantic relationship between them, then " +
		"provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
	mxbaiEnd = "<|im_end|>\n<|im_start|>assistant\n"
)

func system(text string) string {
	return "<|im_start|>system\n" + text + "<|im_end|>\n<|im_start|>user\n"
}

// judgePrompt returns the prompt for the request's query.
func (r *run) judgePrompt(how catalog.Judging) (*prompt, error) {
	query, instruction := r.req.Query.Text, r.instructionText()
	switch how.Format {
	case catalog.FormatQwen3:
		if def := r.model.Loadtime.DefaultInstruction; instruction == "" && def != nil {
			instruction = *def
		}
		asked := "<Instruct>: " + cmp.Or(instruction, qwen3Instruction) +
			"\n<Query>: " + query + "\n<Document>: "
		return r.pieces(query, func(text string) string { return text },
			[]string{system(qwen3Task), asked}, []string{qwen3End})
	case catalog.FormatMxbai: // takes no instruction
		return r.pieces(query, func(text string) string { return "document: " + text },
			[]string{system(mxbaiSystem), "query: " + query, "\n"}, []string{"\n", mxbaiTask, mxbaiEnd})
	}
	if instruction != "" {
		return nil, errs.Invalidf("instruction",
			"Model '%s' takes no instruction: its prompt has a query and a document; put conditions into the query",
			r.model.ID)
	}
	if r.reader.left {
		return nil, errs.Invalidf("truncation_direction",
			"Model '%s' cannot cut texts at the start: its prompt is tokenised with them", r.model.ID)
	}
	return r.chatPrompt(query)
}

// pieces tokenises a prompt piece by piece.
func (r *run) pieces(
	query string, write func(string) string, before, after []string,
) (*prompt, error) {
	var b tokenizer.Batch
	all := append(append([]string{query}, before...), after...)
	o := tokenizer.Options{NoSpecial: true}
	if err := r.use.Tokenizer().EncodeParallel(r.ctx, &b, all, o); err != nil {
		return nil, r.reader.textError(err, 0)
	}
	p := &prompt{write: write}
	for i := range all {
		switch ids := b.Text(i); {
		case i == 0:
			p.fixed -= len(ids)
		case i <= len(before):
			p.before = append(p.before, ids...)
		default:
			p.after = append(p.after, ids...)
		}
	}
	p.fixed += len(p.before) + len(p.after)
	return p, nil
}
