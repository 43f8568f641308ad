package arch

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// DetectedBy lists the files that Detect reads. Of other files Detect only asks whether they exist.
var DetectedBy = append([]string{modulesFile, configFile, promptsFile, adapterFile}, transformerFiles...)

// adapterFile is the configuration of a PEFT adapter.
const adapterFile = "adapter_config.json"

// Detect returns the task that a model directory was made for, from its configuration files. It
// looks at the heads of BGE-M3; at the model_type and the Transformer task that
// sentence-transformers writes from 5.4 on; at the classes of modules.json; and at the class in
// config.json. labels are those of a classification head. A directory that shows none of these is
// an embedder.
func Detect(dir string) (task Task, labels []string, err error) {
	tree := files.Dir(dir)
	if has(tree, m3Vectors) && has(tree, m3Weights) {
		return BGEM3, nil, nil
	}
	if !has(tree, configFile) && has(tree, adapterFile) {
		return Embed, nil, refuse(adapterFile, "", "this is a LoRA adapter and no model: serve the model it was made for, and name the adapter in the option lora_id")
	}
	modules, err := readModules(tree)
	if err != nil {
		return Embed, nil, err
	}
	if modules != nil {
		return detectModules(tree, modules)
	}
	var config struct {
		Architectures []string `json:"architectures"`
	}
	if err := needJSON(tree, configFile, &config); err != nil || len(config.Architectures) == 0 {
		return Embed, nil, err
	}
	switch class := config.Architectures[0]; {
	case strings.HasSuffix(class, "ForSequenceClassification"):
		l, err := readLabels(tree, "")
		return Classify, l.labels, err
	case strings.HasSuffix(class, "ForTokenClassification"):
		return Tag, nil, nil
	case strings.HasSuffix(class, "ColBERT"):
		return ColBERT, nil, nil
	}
	return Embed, nil, nil
}

// detectModules is Detect for a directory with modules.json.
func detectModules(tree fs.FS, modules []module) (Task, []string, error) {
	var saved struct {
		ModelType string `json:"model_type"`
	}
	if _, err := optional(readJSON(tree, promptsFile, &saved)); err != nil {
		return Embed, nil, err
	}
	var first transformerConfig
	if modules[0].path == "" { // releases that write a task keep their first module there
		var err error
		if first, err = readTransformer(tree, ""); err != nil {
			return Embed, nil, err
		}
	}
	kinds := ""
	for _, m := range modules {
		kinds += m.kind + " "
	}
	switch {
	case saved.ModelType == "CrossEncoder" || first.task == taskClassify:
		l, err := readLabels(tree, modules[0].path)
		return Classify, l.labels, err
	case saved.ModelType == "SparseEncoder" || strings.Contains(kinds, "SpladePooling"):
		return Splade, nil, nil
	case saved.ModelType == "MultiVectorEncoder" || strings.Contains(kinds, "Dense") && !strings.Contains(kinds, "Pooling"):
		return ColBERT, nil, nil
	}
	return Embed, nil, nil
}

func has(tree fs.FS, name string) bool {
	_, err := fs.Stat(tree, name)
	return !errors.Is(err, fs.ErrNotExist)
}
