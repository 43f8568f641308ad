package arch

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// DetectedBy are the files that Detect reads; of others it asks whether they are there.
var DetectedBy = []string{modulesFile, configFile, adapterFile}

// adapterFile is what PEFT keeps beside an adapter's weights.
const adapterFile = "adapter_config.json"

// Detect says what a model directory was made for, from the files that its makers left: the classes of modules.json, the heads
// of BGE-M3, the class in config.json. labels are those of a classification head. What nothing speaks of is an embedder.
func Detect(dir string) (task Task, labels []string, err error) {
	files := os.DirFS(dir)
	if has(files, m3Vectors) && has(files, m3Weights) {
		return BGEM3, nil, nil
	}
	var modules []struct {
		Type string `json:"type"`
	}
	found, err := optional(readJSON(files, modulesFile, &modules))
	if err != nil {
		return Embed, nil, err
	}
	if found {
		kinds := ""
		for _, m := range modules {
			kinds += m.Type[strings.LastIndexByte(m.Type, '.')+1:] + " "
		}
		switch {
		case strings.Contains(kinds, "SpladePooling"):
			return Splade, nil, nil
		case strings.Contains(kinds, "Dense") && !strings.Contains(kinds, "Pooling"):
			return ColBERT, nil, nil
		}
		return Embed, nil, nil
	}
	var config struct {
		Architectures []string `json:"architectures"`
	}
	if !has(files, configFile) && has(files, adapterFile) {
		return Embed, nil, refuse(adapterFile, "", "this is a LoRA adapter and no model: serve the model it was made for, and name the adapter in the option lora_id")
	}
	if err := needJSON(files, configFile, &config); err != nil || len(config.Architectures) == 0 {
		return Embed, nil, err
	}
	switch class := config.Architectures[0]; {
	case strings.HasSuffix(class, "ForSequenceClassification"):
		l, err := readLabels(files)
		return Classify, l.labels, err
	case strings.HasSuffix(class, "ForTokenClassification"):
		return Tag, nil, nil
	case strings.HasSuffix(class, "ColBERT"):
		return ColBERT, nil, nil
	}
	return Embed, nil, nil
}

func has(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return !errors.Is(err, fs.ErrNotExist)
}
