package compat

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// teiRerank answers POST /rerank. A cross-encoder's score is the sigmoid of its logit, whatever its
// own activation is, or the logit itself with raw_scores. A model without such a head scores as on
// /v1/score.
func (c *call) teiRerank() error {
	req, err := api.DecodeTEIRerank(c.body, c.Limits)
	if err != nil {
		return err
	}
	options := teiOptions(&req.TEIOptions)
	if _, named := options["prompt_name"]; named {
		return errs.UnsupportedField("prompt_name",
			"`prompt_name` must be query, document or passage, got "+
				errs.Quote(req.PromptName[:min(len(req.PromptName), 100)]))
	}
	if !c.model.has("score") {
		return noReranker(c.model.ID)
	}
	scores, tokens, took, err := c.teiScores(req, options)
	if err != nil {
		return err
	}
	ranks := make([]api.TEIRank, len(scores))
	for rank, s := range scores {
		ranks[rank] = api.TEIRank{Index: s.Index, Score: s.Score}
		if req.ReturnText {
			ranks[rank].Text = &req.Texts[s.Index]
		}
	}
	characters := chars(req.Texts...) + len(req.Texts)*chars(req.Query)
	return c.teiDone(characters, len(ranks), tokens, took,
		func(dst []byte, to *api.Sink) []byte { return api.AppendTEIRanks(dst, to, ranks) })
}

// noReranker returns TEI's error for a model that does not rerank.
func noReranker(model string) error {
	e := errs.NoScoring(model)
	e.Message, e.Status = "model is not a re-ranker model", http.StatusFailedDependency
	return e
}

// teiScores returns one score for each text, best first.
func (c *call) teiScores(
	req *api.TEIRerankRequest, options api.Options,
) (scores []api.Score, tokens int, t api.Timings, err error) {
	if !c.model.CrossEncoder {
		res, err := c.Backend.Score(c.work, c.model, &api.ScoreRequest{
			Query:          api.Item{Text: req.Query, HasText: true},
			Items:          items(req.Texts, nil),
			Options:        options,
			ForeignOptions: c.foreignOptions(req.Left),
		})
		if err != nil {
			return nil, 0, t, err
		}
		c.via(&res.Outcome)
		return res.Scores, res.Usage.InputTokens, res.Timings, nil
	}
	pairs := make([]pair, len(req.Texts))
	for i, text := range req.Texts {
		pairs[i] = pair{req.Query, text}
	}
	res, err := c.Backend.Classify(c.work, c.model, &api.ClassifyRequest{
		Items:          paired(pairs),
		RawScores:      req.RawScores,
		Options:        options,
		ForeignOptions: c.foreignOptions(req.Left),
	})
	if err != nil {
		return nil, 0, t, err
	}
	c.via(&res.Outcome)
	values := make([]float64, len(pairs))
	for i, row := range res.Scores {
		if len(row) != 1 {
			return nil, 0, t, noReranker(c.model.ID)
		}
		values[i] = row[0]
	}
	order, finite := api.Rank(values)
	if !finite {
		return nil, 0, t, errs.NonFinite(c.model.ID, "scores")
	}
	scores = make([]api.Score, len(order))
	for rank, i := range order {
		scores[rank] = api.Score{Index: i, Score: values[i], Rank: rank}
	}
	return scores, res.Usage.InputTokens, res.Timings, nil
}

// pair is two texts that a cross-encoder reads together.
type pair struct{ first, second string }

// paired returns the items of pairs.
func paired(pairs []pair) []api.Item {
	out, extras := make([]api.Item, len(pairs)), make([]api.ItemExtra, len(pairs))
	for i := range pairs {
		extras[i].Second = &pairs[i].second
		out[i] = api.Item{Text: pairs[i].first, HasText: true, Extra: &extras[i]}
	}
	return out
}

// teiPredict answers POST /predict: the scores of all labels for each sequence, best first.
func (c *call) teiPredict() error {
	req, err := api.DecodeTEIPredict(c.body, c.Limits)
	if err != nil {
		return err
	}
	options := teiOptions(&req.TEIOptions)
	if req.PromptName != "" {
		return errs.UnsupportedField("prompt_name", "`prompt_name` is not supported by /predict")
	}
	out := make([][]api.TEIPrediction, len(req.Inputs))
	var tokens, characters int
	var sum api.Timings
	for _, pairs := range []bool{false, true} {
		n, t, err := c.predictSome(req, options, pairs, out)
		if err != nil {
			return err
		}
		tokens += n
		sum.Tokenize, sum.BatchWait, sum.Inference = sum.Tokenize+t.Tokenize, sum.BatchWait+
			t.BatchWait, sum.Inference+t.Inference
	}
	for _, q := range req.Inputs {
		characters += chars(q.Text, q.Second)
	}
	batch := req.Batch
	return c.teiDone(characters, len(req.Inputs), tokens, sum,
		func(dst []byte, to *api.Sink) []byte { return api.AppendTEIPredictions(dst, to, batch, out) })
}

// predictSome fills out for the inputs that are pairs, or for those that are not.
func (c *call) predictSome(
	req *api.TEIPredictRequest, options api.Options, isPair bool, out [][]api.TEIPrediction,
) (tokens int, t api.Timings, err error) {
	var texts []string
	var pairs []pair
	var at []int
	for i, q := range req.Inputs {
		switch {
		case q.Pair != isPair:
			continue
		case isPair:
			pairs = append(pairs, pair{q.Text, q.Second})
		default:
			texts = append(texts, q.Text)
		}
		at = append(at, i)
	}
	if len(at) == 0 {
		return 0, t, nil
	}
	list := items(texts, nil)
	if isPair {
		list = paired(pairs)
	}
	res, err := c.Backend.Classify(c.work, c.model, &api.ClassifyRequest{
		Items: list, RawScores: req.RawScores, Options: options, ForeignOptions: c.foreignOptions(req.Left),
	})
	if err != nil {
		return 0, t, c.placed(err, func(i int) string { return fmt.Sprintf("inputs[%d]", at[i]) })
	}
	c.via(&res.Outcome)
	for k, row := range res.Scores {
		if _, finite := api.Rank(row); !finite {
			return 0, t, errs.NonFinite(c.model.ID, "scores")
		}
		list := make([]api.TEIPrediction, len(row))
		for i, score := range row {
			list[i] = api.TEIPrediction{Score: score, Label: res.Labels[i]}
		}
		slices.SortStableFunc(list, func(a, b api.TEIPrediction) int { return cmp.Compare(b.Score, a.Score) })
		out[at[k]] = list
	}
	return res.Usage.InputTokens, res.Timings, nil
}
