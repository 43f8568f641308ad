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
}

// readChain reads modules.json. Without it a model is an encoder whose tokens are averaged and normalised.
func readChain(dir fs.FS) (chain, error) {
	var modules []struct {
		Path string `json:"path"`
		Type string `json:"type"`
	}
	found, err := optional(readJSON(dir, modulesFile, &modules))
	if err != nil {
		return chain{}, err
	}
	if !found {
		return chain{pooling: engine.PoolMean, normalize: true}, nil
	}
	if len(modules) == 0 || len(modules) > maxModules {
		return chain{}, refuse(modulesFile, "", "lists %d modules; 1 to %d are possible", len(modules), maxModules)
	}
	var c chain
	for i, m := range modules {
		if m.Path != "" && !filepath.IsLocal(filepath.FromSlash(m.Path)) {
			return c, refuse(modulesFile, "path", "%q leads out of the model directory", m.Path)
		}
		// Packages move between releases; the class keeps its name.
		kind := m.Type[strings.LastIndexByte(m.Type, '.')+1:]
		if (kind == "Transformer") != (i == 0) {
			return c, refuse(modulesFile, "type", "module %d is a %s; the chain must begin with its only Transformer", i, kind)
		}
		if kind != "Transformer" && kind != "Pooling" && c.pooling == 0 {
			return c, refuse(modulesFile, "type", "module %d is a %s before any Pooling", i, kind)
		}
		switch kind {
		case "Transformer":
			c.encoderDir = m.Path
		case "Pooling":
			if c.pooling != 0 {
				return c, refuse(modulesFile, "type", "a second Pooling is not supported")
			}
			if c.pooling, err = readPooling(dir, m.Path); err != nil {
				return c, err
			}
		case "Dense":
			if c.normalize {
				return c, refuse(modulesFile, "type", "a Dense after Normalize is not supported")
			}
			d, err := readDense(dir, m.Path)
			if err != nil {
				return c, err
			}
			c.dense = append(c.dense, d)
		case "Normalize":
			c.normalize = true
		case "Dropout": // does nothing outside training
		default:
			return c, refuse(modulesFile, "type", "%q is not supported; Transformer, Pooling, Dense and Normalize are", m.Type)
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
