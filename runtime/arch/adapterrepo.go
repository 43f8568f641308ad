package arch

import (
	"errors"
	"io/fs"
	"path"
	"slices"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/runtime/engine"
)

// AdapterBase says what the repository of a LoRA adapter was made for.
type AdapterBase struct {
	Model    string // repository or directory of the base
	Revision string // of the base; "": its default
	// of the adapter's own module chain; 0 and nil without one: as the base's files say
	Pooling   engine.Pooling
	Normalize *bool
	// what stands before queries and documents, and how many tokens a text has at most; nil and 0
	// without a chain: as the base's files say
	Query, Document *string
	MaxSeqLen       int64
}

// AdapterFiles lists the files that ReadAdapterBase reads.
var AdapterFiles = append([]string{adapterFile, modulesFile, promptsFile, "1_Pooling/" + configFile,
	"2_Normalize/" + configFile}, transformerFiles...)

// RepoFiles lists the files by which Detect and ReadAdapterBase know what a repository holds.
var RepoFiles = slices.Concat(DetectedBy, AdapterFiles)

// ReadAdapterBase reads a directory that holds a LoRA adapter and no model. ok is false where it
// holds something else. Errors are those of Load: the adapter names no base, or a module that only
// a whole model can have.
func ReadAdapterBase(dir string) (a AdapterBase, ok bool, err error) {
	tree := files.Dir(dir)
	if has(tree, configFile) || !has(tree, adapterFile) {
		return a, false, nil
	}
	var c struct {
		Base     string  `json:"base_model_name_or_path"`
		Revision *string `json:"revision"`
	}
	if err := needJSON(tree, adapterFile, &c); err != nil {
		return a, false, err
	}
	if c.Base == "" {
		return a, false, refuse(adapterFile, "base_model_name_or_path",
			"is missing; the repository or the directory of a model is wanted")
	}
	a.Model = c.Base
	if c.Revision != nil {
		a.Revision = *c.Revision
	}
	modules, err := readModules(tree)
	if err != nil || modules == nil {
		return a, err == nil, err
	}
	return a, true, a.readModules(tree, modules)
}

// readModules reads the chain beside an adapter: a Transformer, Pooling and Normalize of
// sentence-transformers.
func (a *AdapterBase) readModules(tree fs.FS, modules []module) error {
	if err := checkModules(modules, modulesFile, ""); err != nil {
		return err
	}
	for _, m := range modules {
		if !slices.Contains([]string{"Transformer", "Pooling", "Normalize", "Dropout"}, m.kind) {
			return refuse(modulesFile, "type",
				"%q beside an adapter is not supported; Transformer, Pooling and Normalize are", m.class)
		}
	}
	c, err := readChain(tree)
	if errors.Is(err, fs.ErrNotExist) {
		return refuse(path.Join(modules[0].path, configFile), "", "is missing")
	}
	if err != nil {
		return err
	}
	p := &c.pooling
	known := []engine.Pooling{engine.PoolCLS, engine.PoolMean, engine.PoolLast}
	if len(p.modes) != 1 || !slices.Contains(known, p.modes[0]) {
		return refuse(p.file, "pooling_mode",
			"is %v; beside an adapter one of cls, mean and lasttoken is supported", p.modes)
	}
	if p.skipsPrompt {
		return refuse(p.file, "include_prompt", "is false, which is not supported beside an adapter")
	}
	a.Pooling, a.Normalize = p.modes[0], &c.normalize
	return a.readTexts(tree, c.encoderDir)
}

// readTexts reads how the chain's texts are read, of which the base's files then say nothing.
func (a *AdapterBase) readTexts(tree fs.FS, folder string) error {
	own, err := readPrompts(tree)
	if err != nil {
		return err
	}
	before := func(name string) *string {
		prompt, ok := own.Prompts[name]
		if !ok && own.Default != nil {
			prompt = own.Prompts[*own.Default]
		}
		return &prompt
	}
	a.Query, a.Document = before("query"), before("document")
	if own.TruncateDim != nil {
		return refuse(promptsFile, "truncate_dim", "is %d, which is not supported beside an adapter",
			*own.TruncateDim)
	}
	module, err := readTransformer(tree, folder)
	a.MaxSeqLen = module.maxSeqLen
	return err
}
