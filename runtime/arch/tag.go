package arch

import (
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
)

// OutTokenLogits is values [R, labels]: the logits of each token's classes.
const OutTokenLogits Output = "token_logits"

// Tag is the task of models with a token classification head.
var Tag = Task{&head{
	name:     "tag",
	loadedBy: "AutoModelForTokenClassification",
	outputs:  []Output{OutTokenLogits},
	made:     func(s *saved) bool { return strings.HasSuffix(s.class, "ForTokenClassification") },
	read:     readClassified(loadTagger),
	linears: func(n headNames) []string {
		if n.tagger.dense == "" {
			return []string{n.tag}
		}
		return []string{n.tagger.dense, n.tag}
	},
}}

// loadTagger packs the layer that classifies each token.
func loadTagger(l *loading) error {
	if err := l.needs(l.names.tag); err != nil {
		return err
	}
	if err := l.readLabels(); err != nil {
		return err
	}
	p, columns, labels := l.p.head("", l.p.compute), l.shape.columns, int64(len(l.m.Labels))
	before := p.transform(l.names.tagger, columns, columns)
	tagger := p.layer(labels, columns, l.names.tag, engine.NoAct)
	l.p.join(p)
	if before.weight != nil {
		l.adapts(before.weight, l.names.tagger.dense, columns, columns)
	}
	l.adapts(tagger.weight, l.names.tag, labels, columns)
	l.gives(OutTokenLogits, given{rows: engine.PoolMean, record: func(r *recording) {
		r.OutputValues(r.layer(before.record(r.Recorder, r.pass, r.x), tagger))
	}})
	return l.p.err
}
