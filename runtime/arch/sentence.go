package arch

import (
	"encoding/json"
	"io/fs"
	"math"
	"path"
	"path/filepath"
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
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

// chain is a sentence-transformers model: an encoder, pooling, dense layers, and whether the result is normalised.
type chain struct {
	encoderDir string // relative, "" for the directory itself
	pooling    engine.Pooling
	dense      []denseConfig
	normalize  bool

	tokens []denseConfig // ColBERT: over the tokens' vectors
	sparse engine.Sparse // SPLADE: over the largest logits
}

// readFiles reads which modules a model has, as far as the task asks for them. Models that are not for dense vectors have
// those of a plain encoder besides.
func readFiles(dir fs.FS, task Task) (chain, error) {
	if task == Embed || task == BGEM3 {
		return readChain(dir)
	}
	c := chain{pooling: engine.PoolMean, normalize: true}
	var err error
	switch task {
	case ColBERT:
		c.encoderDir, c.tokens, err = readTokenChain(dir)
		return c, err
	case Splade:
		if c.sparse, err = readSpladePooling(dir); err != nil {
			return c, err
		}
	}
	c.encoderDir, err = encoderFolder(dir)
	return c, err
}

// encoderFolder is where the encoder is: the first module's folder, or the folder of the documents' one behind a router.
func encoderFolder(dir fs.FS) (string, error) {
	modules, err := readModules(dir)
	if err != nil || modules == nil {
		return "", err
	}
	if strings.HasSuffix(modules[0].kind, "Transformer") {
		return modules[0].path, nil
	}
	return moduleFolder(dir, "MLMTransformer")
}

// module is one entry of modules.json.
type module struct {
	class string // as written
	kind  string // without its package: packages move between releases, the class keeps its name
	path  string // its folder, inside the directory
}

// readModules reads modules.json; nil where there is none.
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
		return nil, refuse(modulesFile, "", "lists %d modules; 1 to %d are possible", len(entries), maxModules)
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

// readChain reads the chain of modules.json. Without it a model is an encoder whose tokens are averaged and normalised.
func readChain(dir fs.FS) (chain, error) {
	modules, err := readModules(dir)
	if err != nil {
		return chain{}, err
	}
	if modules == nil {
		return chain{pooling: engine.PoolMean, normalize: true}, nil
	}
	var c chain
	for i, m := range modules {
		if (m.kind == "Transformer") != (i == 0) {
			return c, refuse(modulesFile, "type", "module %d is a %s; the chain must begin with its only Transformer", i, m.kind)
		}
		if m.kind != "Transformer" && m.kind != "Pooling" && c.pooling == 0 {
			return c, refuse(modulesFile, "type", "module %d is a %s before any Pooling", i, m.kind)
		}
		switch m.kind {
		case "Transformer":
			c.encoderDir = m.path
		case "Pooling":
			if c.pooling != 0 {
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
				return c, refuse(path.Join(m.path, configFile), "use_residual", "is supported for vectors of tokens only")
			}
			c.dense = append(c.dense, d)
		case "Normalize":
			c.normalize = true
		case "Dropout": // does nothing outside training
		default:
			return c, refuse(modulesFile, "type", "%q is not supported; Transformer, Pooling, Dense and Normalize are", m.class)
		}
	}
	if c.pooling == 0 {
		return c, refuse(modulesFile, "type", "there is no Pooling module")
	}
	return c, nil
}

// prompts are texts put before an input, by name.
type prompts struct {
	Prompts map[string]string `json:"prompts"`
	Default *string           `json:"default_prompt_name"`
}

func readPrompts(dir fs.FS) (prompts, error) {
	var p prompts
	if _, err := optional(readJSON(dir, promptsFile, &p)); err != nil {
		return p, err
	}
	if len(p.Prompts) > maxPrompts {
		return p, refuse(promptsFile, "prompts", "has %d entries; at most %d are possible", len(p.Prompts), maxPrompts)
	}
	for name, text := range p.Prompts {
		if len(text) > maxPromptBytes {
			return p, refuse(promptsFile, "prompts", "%.60q has %d bytes; at most %d are possible", name, len(text), maxPromptBytes)
		}
	}
	if p.Default != nil {
		if _, ok := p.Prompts[*p.Default]; !ok {
			return p, refuse(promptsFile, "default_prompt_name", "%.60q is not one of the prompts", *p.Default)
		}
	}
	return p, nil
}

// textLimits are what the files say about inputs. maxSeqLen is 0 when they say nothing.
type textLimits struct {
	maxSeqLen int64
	lowerCase bool
}

// readTextLimits reads sentence_bert_config.json, and the tokenizer's model_max_length where it is silent, as
// sentence-transformers does.
func readTextLimits(dir fs.FS, encoderDir string) (textLimits, error) {
	var limits struct {
		MaxSeqLength *int64 `json:"max_seq_length"`
		DoLowerCase  bool   `json:"do_lower_case"`
	}
	name := path.Join(encoderDir, limitsFile)
	if _, err := optional(readJSON(dir, name, &limits)); err != nil {
		return textLimits{}, err
	}
	t := textLimits{lowerCase: limits.DoLowerCase}
	if n := limits.MaxSeqLength; n != nil {
		if *n < 1 {
			return t, refuse(name, "max_seq_length", "is %d; it must be at least 1", *n)
		}
		t.maxSeqLen = *n
		return t, nil
	}
	var tokenizer struct {
		// A float on disk where there is no limit: 1e30.
		ModelMaxLength json.RawMessage `json:"model_max_length"`
	}
	name = path.Join(encoderDir, tokenizerFile)
	if _, err := optional(readJSON(dir, name, &tokenizer)); err != nil {
		return t, err
	}
	var length float64
	if json.Unmarshal(tokenizer.ModelMaxLength, &length) == nil && length >= 1 && length <= math.MaxInt32 {
		t.maxSeqLen = int64(length)
	}
	return t, nil
}
