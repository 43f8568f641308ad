package arch

import (
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
)

// OutTokenLogits is values [R, labels]: the logits of each token's classes.
const OutTokenLogits Output = "token_logits"

// Tag is the task of models with a token classification head.
var Tag = Task{&head{
	name:    "tag",
	outputs: []Output{OutTokenLogits},
	made:    func(s *saved) bool { return strings.HasSuffix(s.class, "ForTokenClassification") },
	read:    readClassified(loadTagger),
	linears: func(n headNames) []string { return []string{n.tag} },
}}

// loadTagger packs the layer that classifies each token.
func loadTagger(l *loading) error {
	if err := l.readLabels(); err != nil {
		return err
	}
	p, labels := l.p.head("", l.p.compute), int64(len(l.m.Labels))
	tagger := p.layer(labels, l.shape.columns, l.names.tag, engine.NoAct)
	l.p.join(p)
	l.adapts(tagger.weight, l.names.tag, labels, l.shape.columns)
	l.gives(OutTokenLogits,
		given{rows: engine.PoolMean, record: func(r *recording) { r.OutputValues(r.layer(r.x, tagger)) }})
	return l.p.err
}
