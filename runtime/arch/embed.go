package arch

import "io/fs"

// OutDense is rows [B, Dim]: pooled, through the module chain.
const OutDense Output = "dense"

// Embed is the task of models that give one vector for a text, by the chain of their modules.
var Embed = Task{&head{
	name:    "embed",
	outputs: []Output{OutDense},
	read: func(dir fs.FS) (chain, loader, error) {
		c, err := readChain(dir)
		return c, func(l *loading) error {
			l.givesDense()
			return nil
		}, err
	},
}}

// givesDense makes the row of the module chain an output.
func (l *loading) givesDense() {
	l.gives(OutDense, given{record: func(r *recording) {
		r.OutputRows(applyAll(r.Recorder, r.pool(), r.model.dense))
	}})
}

// encoderAlone is the chain of a model whose head is in the encoder's checkpoint or beside it. Its
// rows are those of a plain encoder.
func encoderAlone(task string) chain {
	return chain{pooling: meanPooling, normalize: true, task: task}
}
