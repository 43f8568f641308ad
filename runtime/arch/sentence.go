package arch

import (
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// The files of a sentence-transformers directory.
const (
	configFile    = "config.json"
	modulesFile   = "modules.json"
	promptsFile   = "config_sentence_transformers.json"
	limitsFile    = "sentence_bert_config.json"
	tokenizerFile = "tokenizer_config.json"
)

// Bounds on what the files may hold.
const (
	maxModules     = 16
	maxPrompts     = 256
	maxPromptBytes = 64 << 10
)

// chain describes a sentence-transformers model: an encoder, pooling, dense layers, and whether the
// result is normalised.
type chain struct {
	encoderDir string // relative, "" for the directory itself
	pooling    pooled
	dense      []denseConfig
	normalize  bool

	task   string // the task that the encoder's Transformer module must compute
	nested nested
}

// readBareChain returns the folder of the encoder when its checkpoint holds the head. The chain
// must be a Transformer module, alone or followed by Pooling, Normalize or Dropout. Older releases
// left these from an embedder; they have no effect here.
func readBareChain(modules []module) (encoderDir string, err error) {
	for i, m := range modules {
		switch {
		case i == 0 && (m.kind == "Transformer" || m.kind == "MLMTransformer"):
			encoderDir = m.path
		case i == 0 || m.kind != "Pooling" && m.kind != "Normalize" && m.kind != "Dropout":
			return "", refuse(modulesFile, "type",
				"%q is not supported for this kind of model; a Transformer alone is", m.class)
		}
	}
	return encoderDir, nil
}

// encoderFolder returns the folder of the encoder. That is the first module's folder, or behind a
// router the folder of the documents' encoder.
func encoderFolder(dir fs.FS) (string, error) {
	modules, err := readModules(dir)
	if err != nil || modules == nil {
		return "", err
	}
	if modules[0].kind == "Router" {
		c, err := readSparseChain(dir)
		return c.encoderDir, err
	}
	return modules[0].path, nil
}

// vocabularyFiles lists the files that package tokenizer makes a tokenizer of, any one of which a
// tokenizer's folder has.
var vocabularyFiles = []string{"tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model",
	"spm.model", "spiece.model", "tokenizer.model"}

// TokenizerFolder returns the folder of dir that holds the tokenizer's files. That is the encoder's
// folder if they are there, else dir itself.
func TokenizerFolder(dir string) (string, error) {
	tree := files.Dir(dir)
	folder, err := encoderFolder(tree)
	if err != nil {
		return "", err
	}
	for _, name := range vocabularyFiles {
		if has(tree, path.Join(folder, name)) {
			return filepath.Join(dir, filepath.FromSlash(folder)), nil
		}
	}
	return dir, nil
}

// module is one entry of modules.json.
type module struct {
	class string // as written
	kind  string // class without its package, because packages move between releases and class names stay
	path  string // its folder, inside the directory
}

// readModules reads modules.json. It returns nil if there is none.
func readModules(dir fs.FS) ([]module, error) {
	var entries []struct {
		Path string `json:"path"`
		Type string `json:"type"`
	}
	found, err := optional(readJSON(dir, modulesFile, &entries))
	if err != nil || !found {
		return nil, err
	}
	if len(entries) == 0 || len(entries) > maxModules {
		return nil, refuse(modulesFile, "", "lists %d modules; 1 to %d are possible",
			len(entries), maxModules)
	}
	modules := make([]module, len(entries))
	for i, e := range entries {
		if e.Path != "" && !filepath.IsLocal(filepath.FromSlash(e.Path)) {
			return nil, refuse(modulesFile, "path", "%q leads out of the model directory", e.Path)
		}
		modules[i] = module{e.Type, e.Type[strings.LastIndexByte(e.Type, '.')+1:], e.Path}
	}
	return modules, nil
}

// readChain reads the chain of modules.json. Without that file a model is an encoder whose token
// states are averaged and normalised.
func readChain(dir fs.FS) (chain, error) {
	modules, err := readModules(dir)
	if err != nil {
		return chain{}, err
	}
	if modules == nil {
		return encoderAlone(taskFeatures), nil
	}
	c := chain{task: taskFeatures}
	for i, m := range modules {
		if (m.kind == "Transformer") != (i == 0) {
			return c, refuse(modulesFile, "type",
				"module %d is a %s; the chain must begin with its only Transformer", i, m.kind)
		}
		if m.kind != "Transformer" && m.kind != "Pooling" && c.pooling.modes == nil {
			return c, refuse(modulesFile, "type", "module %d is a %s before any Pooling", i, m.kind)
		}
		switch m.kind {
		case "Transformer":
			c.encoderDir = m.path
		case "Pooling":
			if c.pooling.modes != nil {
				return c, refuse(modulesFile, "type", "a second Pooling is not supported")
			}
			if c.pooling, err = readPooling(dir, m.path); err != nil {
				return c, err
			}
		case "Dense":
			if c.normalize {
				return c, refuse(modulesFile, "type", "a Dense after Normalize is not supported")
			}
			d, err := readDense(dir, m.path, "sentence_embedding")
			if err != nil {
				return c, err
			}
			if d.residual {
				return c, refuse(path.Join(m.path, configFile), "use_residual",
					"is supported for vectors of tokens only")
			}
			c.dense = append(c.dense, d)
		case "Normalize":
			if err := readNormalize(dir, m.path); err != nil {
				return c, err
			}
			c.normalize = true
		case "Dropout": // has no effect outside training
		default:
			return c, refuse(modulesFile, "type",
				"%q is not supported; Transformer, Pooling, Dense and Normalize are", m.class)
		}
	}
	if c.pooling.modes == nil {
		return c, refuse(modulesFile, "type", "there is no Pooling module")
	}
	return c, nil
}

// prompts is config_sentence_transformers.json: texts put before an input, by name, and the limits
// of vectors.
type prompts struct {
	Prompts map[string]string `json:"prompts"`
	Default *string           `json:"default_prompt_name"`

	TruncateDim   *int64 `json:"truncate_dim"`    // components of a dense vector that are kept
	MaxActiveDims *int64 `json:"max_active_dims"` // weights of a sparse vector that are kept

	Late
}

func readPrompts(dir fs.FS) (prompts, error) {
	var p prompts
	if _, err := optional(readJSON(dir, promptsFile, &p)); err != nil {
		return p, err
	}
	if len(p.Prompts) > maxPrompts {
		return p, refuse(promptsFile, "prompts", "has %d entries; at most %d are possible",
			len(p.Prompts), maxPrompts)
	}
	for name, text := range p.Prompts {
		if len(text) > maxPromptBytes {
			return p, refuse(promptsFile, "prompts", "%.60q has %d bytes; at most %d are possible",
				name, len(text), maxPromptBytes)
		}
	}
	if p.TruncateDim != nil && *p.TruncateDim < 1 {
		return p, refuse(promptsFile, "truncate_dim", "is %d; it must be at least 1", *p.TruncateDim)
	}
	if err := p.Late.check(); err != nil {
		return p, err
	}
	if p.Default != nil {
		if _, ok := p.Prompts[*p.Default]; !ok {
			return p, refuse(promptsFile, "default_prompt_name",
				"%.60q is not one of the prompts", *p.Default)
		}
	}
	return p, nil
}
