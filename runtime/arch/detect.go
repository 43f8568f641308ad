package arch

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// DetectedBy lists the files that Detect reads. Of other files Detect only asks whether they exist;
// it also reads an encoder's files in another folder than savedEncoder where they have content.
var DetectedBy = append([]string{
	modulesFile, configFile, promptsFile, adapterFile, tokenizerFile, routerFile, glinerFile,
	savedEncoder + "/" + configFile, savedEncoder + "/" + tokenizerFile,
}, transformerFiles...)

// savedEncoder is the folder of the encoder in models that sentence-transformers saved before 2.0.
const savedEncoder = "0_Transformer"

// adapterFile is the configuration of a PEFT adapter.
const adapterFile = "adapter_config.json"

// saved holds what a directory's configuration files say about what was saved in it.
type saved struct {
	tree       fs.FS
	encoderDir string
	kinds      string // of modules.json, each with a blank behind it
	modelType  string // that sentence-transformers wrote beside the modules
	task       string // of the first Transformer module
	class      string // the first architecture of config.json; "" where there are modules
}

// has reports whether a module's class has a name with kind in it.
func (s *saved) has(kind string) bool { return strings.Contains(s.kinds, kind) }

// Detect returns the task that a model directory was made for, from its configuration files. It
// looks at files that only one head has; at the model_type and the Transformer task that
// sentence-transformers writes from 5.4 on; at the classes of modules.json; and at the class in
// config.json. labels are those of a head for whole texts. A directory that shows none of these is
// an embedder. A model that runs code which this server does not know is refused.
func Detect(dir string) (task Task, labels []string, err error) {
	tree := files.Dir(dir)
	if task, labels, err = detect(tree); err != nil {
		return task, labels, err
	}
	if task.files != nil && !has(tree, configFile) { // another package's files, which name no code
		return task, labels, nil
	}
	folder, err := codeFolder(tree)
	if err == nil && !isEmpty(tree, path.Join(folder, configFile)) {
		_, err = readCode(tree, folder, task.auto())
	} else if err == nil {
		err = checkModuleCode(tree, "")
	}
	return task, labels, err
}

func detect(tree fs.FS) (task Task, labels []string, err error) {
	for _, t := range heads {
		if t.files != nil &&
			!slices.ContainsFunc(t.files, func(name string) bool { return !has(tree, name) }) {
			return t, nil, nil
		}
	}
	if !has(tree, configFile) && has(tree, adapterFile) {
		return likely, nil, refuse(adapterFile, "",
			"this is a LoRA adapter and no model: serve the model it was made for, and name the adapter in the option lora_id")
	}
	s, err := readSaved(tree)
	if err != nil {
		return likely, nil, err
	}
	for _, t := range heads {
		if t.made == nil || !t.made(s) {
			continue
		}
		if t.labels != nil {
			labels, err = t.labels(s)
		}
		return t, labels, err
	}
	return likely, nil, nil
}

// readSaved reads the configuration files of a directory.
func readSaved(tree fs.FS) (*saved, error) {
	s := &saved{tree: tree}
	modules, err := readModules(tree)
	if err != nil {
		return nil, err
	}
	if modules == nil {
		var config struct {
			Architectures []string `json:"architectures"`
		}
		if err := needJSON(tree, configFile, &config); err != nil {
			return nil, err
		}
		if len(config.Architectures) > 0 {
			s.class = config.Architectures[0]
		}
		return s, nil
	}
	var beside struct {
		ModelType string `json:"model_type"`
	}
	if _, err := optional(readJSON(tree, promptsFile, &beside)); err != nil {
		return nil, err
	}
	s.modelType, s.encoderDir = beside.ModelType, modules[0].path
	if s.encoderDir == "" { // releases that write a task keep their first module there
		first, err := readTransformer(tree, "")
		if err != nil {
			return nil, err
		}
		s.task = first.task
	}
	for _, m := range modules {
		s.kinds += m.kind + " "
	}
	return s, nil
}

func has(tree fs.FS, name string) bool {
	_, err := fs.Stat(tree, name)
	return !errors.Is(err, fs.ErrNotExist)
}
