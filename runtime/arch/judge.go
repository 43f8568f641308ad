package arch

import (
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/runtime/chat"
	"github.com/sie-engine/sie/runtime/engine"
)

// OutAnswers is values [B, answers]: what the model, at the last token of a text, gives for each of
// Model.Answers to come next, before any activation.
const OutAnswers Output = "answers"

// Judge is the task of decoders that score a text by the logits of a few words that may follow it,
// such as yes and no. The prompt that asks them is made by the caller.
var Judge = Task{&head{
	name:    "judge",
	outputs: []Output{OutAnswers},
	made:    func(s *saved) bool { return s.has("LogitScore") },
	read:    readJudge,
}}

// The value of transformer_task for models that give the logits of the next token.
const taskGenerate = "text-generation"

// templateFile holds a chat template where tokenizer_config.json does not.
const templateFile = "chat_template.jinja"

// judging holds what the modules of a judge say.
type judging struct {
	answers []int32 // the tokens of LogitScore: the positive one, then the negative one if it has one
}

// readJudge reads the modules of a judge: a Transformer, and perhaps a LogitScore. Without the
// latter Options.Answers says which tokens are read.
func readJudge(dir fs.FS) (chain, loader, error) {
	c := encoderAlone(taskGenerate)
	var j judging
	modules, err := readModules(dir)
	if err != nil {
		return c, nil, err
	}
	for i, m := range modules {
		switch {
		case i == 0 && m.kind == "Transformer":
			c.encoderDir = m.path
		case i == 1 && m.kind == "LogitScore" && len(modules) == 2:
			j.answers, err = readLogitScore(dir, m.path)
		default:
			err = refuse(modulesFile, "type",
				"%.80q is not supported for a reranker that is a decoder; a Transformer and a LogitScore are",
				m.class)
		}
		if err != nil {
			return c, nil, err
		}
	}
	return c, j.load, nil
}

// readLogitScore reads the tokens whose logits make the score.
func readLogitScore(dir fs.FS, module string) ([]int32, error) {
	c := struct {
		True  *int32 `json:"true_token_id"`
		False *int32 `json:"false_token_id"`
		Input string `json:"module_input_name"`
	}{Input: "causal_logits"}
	name := path.Join(module, configFile)
	if err := needJSON(dir, name, &c); err != nil {
		return nil, err
	}
	switch {
	case c.True == nil:
		return nil, refuse(name, "true_token_id", "is missing; it is the token whose logit is the score")
	case c.Input != "causal_logits":
		return nil, refuse(name, "module_input_name", "is %.60q; only causal_logits is supported", c.Input)
	case c.False == nil:
		return []int32{*c.True}, nil
	}
	return []int32{*c.True, *c.False}, nil
}

// maxAnswers bounds the tokens whose logits are read.
const maxAnswers = 16

// load packs the rows of the vocabulary's matrix that belong to the answers, in float32. The rest
// of the matrix is not read.
func (j judging) load(l *loading) error {
	m, n := l.m, l.names
	m.Answers = slices.Clone(l.answers)
	if m.Answers == nil {
		m.Answers = j.answers
	}
	if n.words == "" {
		return refuse(configFile, "model_type",
			"%.60q is no decoder; a reranker of this kind needs one", m.Arch)
	}
	if len(m.Answers) == 0 || len(m.Answers) > maxAnswers {
		return refuse(modulesFile, "", "%d answers to read the logits of; 1 to %d are possible, of a LogitScore "+
			"module or of the options yes_token and no_token of a model file", len(m.Answers), maxAnswers)
	}
	if m.Prompts[m.DefaultPrompt] != "" {
		return refuse(promptsFile, "default_prompt_name",
			"is %.60q; a prompt before the messages of a reranker is not supported", m.DefaultPrompt)
	}
	var err error
	if l.answers == nil {
		if m.Chat, err = readChat(files.Dir(l.folder()), l.transformer); err != nil {
			return err
		}
	}
	if m.Activation, err = readActivation(files.Dir(l.dir), path.Join(l.encoderDir, configFile)); err != nil {
		return err
	}
	q, name := l.p.head("", engine.ComputeF32), n.words+".weight"
	if _, own := l.p.from.Tensor(name); !own && n.tied {
		name = l.p.prefix + n.table
	}
	rows := q.someRows(l.shape.vocab, l.shape.columns, name, m.Answers)
	l.p.join(q)
	l.fixes(n.words,
		"the answers' logits are computed without adapters; train one for the linears before them")
	l.gives(OutAnswers, given{rows: engine.PoolLast, record: func(r *recording) {
		r.OutputValues(r.Linear(r.Pool(r.x, engine.PoolLast), rows, nil, engine.NoAct, engine.NoValue))
	}})
	return l.p.err
}

// readChat reads the chat template of the tokenizer in dir, from its own file or from
// tokenizer_config.json, and returns what it puts around a query and a document.
func readChat(dir fs.FS, t transformerConfig) (*chat.Pair, error) {
	var config map[string]json.RawMessage
	if _, err := optional(readJSON(dir, tokenizerFile, &config)); err != nil {
		return nil, err
	}
	name, source := templateFile, ""
	data, err := readFile(dir, templateFile)
	found, err := optional(err)
	switch {
	case err != nil:
		return nil, err
	case found:
		source = string(data)
	default:
		name, source = tokenizerFile, namedTemplate(config["chat_template"])
	}
	if source == "" {
		return nil, refuse(templateFile, "",
			"is missing, and tokenizer_config.json has no chat_template; a reranker with a LogitScore is asked with one")
	}
	template, err := chat.Parse(source)
	if err != nil {
		return nil, refuse(name, "chat_template", "%v", err)
	}
	pair, err := template.Pair(chat.Input{
		Structured: t.structured, Begin: t.generationPrompt, Tokens: specialTokens(config),
	})
	if err != nil {
		return nil, refuse(name, "chat_template", "%v", err)
	}
	return &pair, nil
}

// namedTemplate returns the template of tokenizer_config.json: a text, or the one with the name
// default of a list.
func namedTemplate(raw json.RawMessage) (source string) {
	if json.Unmarshal(raw, &source) == nil {
		return source
	}
	var named []struct{ Name, Template string }
	_ = json.Unmarshal(raw, &named) // another form is no template
	for _, n := range named {
		if n.Name == "default" {
			return n.Template
		}
	}
	return ""
}

// specialTokens returns the special tokens that templates may name, such as eos_token.
func specialTokens(config map[string]json.RawMessage) map[string]string {
	out := make(map[string]string)
	for key, raw := range config {
		var token struct{ Content string }
		if !strings.HasSuffix(key, "_token") {
			continue
		}
		if json.Unmarshal(raw, &token.Content) == nil || json.Unmarshal(raw, &token) == nil {
			out[key] = token.Content
		}
	}
	return out
}

// readActivation reads the activation of a score, as sentence-transformers writes it beside its
// modules or into the encoder's configuration. Without one the score goes through a sigmoid.
func readActivation(dir fs.FS, config string) (Activation, error) {
	declared, err := declaredActivation(dir, config)
	if err != nil || declared == nil {
		return Sigmoid, err
	}
	return *declared, nil
}

// someRows packs rows of the matrix n × k with that name, in their order. It reads no others.
func (p *packer) someRows(n, k int64, name string, rows []int32) *engine.Weight {
	if p.err != nil {
		return nil
	}
	t, dtype, err := p.find(p.prefix+name, []int64{n, k})
	for _, row := range rows {
		if err == nil && (row < 0 || int64(row) >= n) {
			err = refuse(p.file, p.prefix+name, "has %d rows; row %d is wanted", n, row)
		}
	}
	if err != nil {
		p.fail(err)
		return nil
	}
	spec := engine.WeightSpec{Kind: engine.LinearWeight, Compute: p.compute, DType: dtype, K: k}
	width := dtype.RowBytes(k)
	data := make([]byte, int64(len(rows))*width)
	if p.sizing != nil {
		p.sizing.add(packedBytes(spec, int64(len(rows))), int64(len(data)))
		return nil
	}
	for i, row := range rows {
		if err := t.ReadAt(data[int64(i)*width:int64(i+1)*width], int64(row)*width); err != nil {
			p.fail(err)
			return nil
		}
	}
	spec.Parts = []engine.Part{{Data: data, Rows: int64(len(rows))}}
	w, err := p.create(spec)
	p.fail(err)
	return w
}
