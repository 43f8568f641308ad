package arch

import (
	"crypto/sha1" // git's name of a file's content, not a signature
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// A repository may hold Python code that transformers and sentence-transformers run in place of
// their own: auto_map of config.json and tokenizer_config.json names classes by task, and
// modules.json may name any module. This server never runs it. A class in knownClasses has an
// architecture here that computes the same; a model that names any other class is refused. A model
// must never be served as what its model_type alone says while its code computes something else.

// autoEncoder is the class of transformers that loads an encoder without a head.
const autoEncoder = "AutoModel"

// ownPackages are the packages whose modules package arch implements. Their classes are told apart
// by name alone.
var ownPackages = []string{"sentence_transformers.", "pylate."}

// maxClasses bounds the classes that one file names.
const maxClasses = 64

// knownClass says what classes in a repository's code compute.
type knownClass struct {
	file    string // of the code
	classes []string
	// repos are the repositories from which others take the file. The file may also be in the
	// model's own repository.
	repos     []string
	elsewhere bool     // the file means this only where it is taken from repos
	types     []string // the values of model_type beside which the classes have this meaning
	// typeless: also where the file has no model_type
	typeless bool
	// computes is the key of architectures that computes what the classes do; "" = model_type.
	computes string
	// beside lists the architectures that a module of sentence-transformers may stand before; nil:
	// the classes are no such module.
	beside []string
	// needs are keys of the file that names the class, with the values on which the meaning rests.
	needs map[string]any
	// unserved says why no architecture here computes it; "" = one does, or will
	unserved string
	// blobs are the git names of the file's published versions; nil: not known. A file that lies in
	// the model's directory must be one of them.
	blobs []string
}

// classRef is a class that a file of a repository names.
type classRef struct {
	from, key   string // the naming file and its key
	repo        string // of the code; "" = the model's own
	file, class string // of the code
}

// parseClass reads a reference such as "org/name--modeling_x.ClassName". ok is false where it has
// another form.
func parseClass(from, key, text string) (ref classRef, ok bool) {
	ref = classRef{from: from, key: key}
	repo, class, other := strings.Cut(text, "--")
	if other {
		ref.repo = repo
	} else {
		class = text
	}
	dot := strings.LastIndexByte(class, '.')
	if dot < 1 || dot == len(class)-1 || other && repo == "" {
		return ref, false
	}
	ref.file, ref.class = strings.ReplaceAll(class[:dot], ".", "/")+".py", class[dot+1:]
	return ref, true
}

// refuse refuses the class for a reason that completes the sentence.
func (ref classRef) refuse(format string, args ...any) error {
	file := ref.file
	if ref.repo != "" {
		file = ref.repo + ": " + file
	}
	return refuse(ref.from, ref.key, "the model runs code of its own (%.200s: %.100s)%s",
		file, ref.class, fmt.Sprintf(format, args...))
}

func (ref classRef) unknown() error {
	return ref.refuse("; this server does not know it, and never runs code of a model")
}

// known returns what the list says of the class beside that model_type. Errors: the class is not in
// the list, or has another meaning there.
func (ref classRef) known(modelType string) (*knownClass, error) {
	var types []string
	for i := range knownClasses {
		k := &knownClasses[i]
		if !k.has(ref) {
			continue
		}
		if slices.Contains(k.types, modelType) || k.typeless && modelType == "" {
			return k, nil
		}
		types = append(types, k.types...)
	}
	if types != nil {
		return nil, ref.refuse("; this server knows it beside the model_type %s only, and this is %.60q",
			strings.Join(types, " or "), modelType)
	}
	return nil, ref.unknown()
}

// has reports whether the entry is about that class.
func (k *knownClass) has(ref classRef) bool {
	if k.file != ref.file || !slices.Contains(k.classes, ref.class) {
		return false
	}
	return slices.Contains(k.repos, ref.repo) || ref.repo == "" && !k.elsewhere
}

// check checks what the meaning of the class rests on. config is the file that names it, and folder
// the place of its code.
func (k *knownClass) check(ref classRef, config map[string]any, dir fs.FS, folder string) error {
	if k.unserved != "" {
		return ref.refuse("; this server knows it and does not serve it: %s", k.unserved)
	}
	for _, key := range slices.Sorted(maps.Keys(k.needs)) {
		if config[key] != k.needs[key] {
			return ref.refuse("; this server knows it where %s is %v, and here it is %.60v",
				key, k.needs[key], config[key])
		}
	}
	if k.blobs == nil || ref.repo != "" {
		return nil
	}
	name := path.Join(folder, ref.file)
	code, err := readFile(dir, name)
	if errors.Is(err, fs.ErrNotExist) { // downloads leave code out
		return nil
	}
	if err != nil {
		return err
	}
	if blob := gitBlob(code); !slices.Contains(k.blobs, blob) {
		return ref.refuse("; this server knows another version of the file (git blob %s; here it is %s)",
			strings.Join(k.blobs, " or "), blob)
	}
	return nil
}

// gitBlob returns git's name of a file's content.
func gitBlob(content []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(content))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

// readAutoMap returns the classes that the auto_map of a JSON file names, ordered by key. A value
// is a class, or for tokenizers a list of two of which one may be null. Old tokenizer files have
// that list in place of the map.
func readAutoMap(dir fs.FS, name string) (refs []classRef, config map[string]any, err error) {
	if found, err := optional(readJSON(dir, name, &config)); err != nil || !found {
		return nil, nil, err
	}
	var entries map[string]any
	switch value := config["auto_map"].(type) {
	case nil:
		return nil, config, nil
	case map[string]any:
		entries = value
	case []any:
		entries = map[string]any{"AutoTokenizer": value}
	default:
		return nil, nil, refuse(name, "auto_map",
			"must be a map of classes; this server cannot say what it asks for")
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		list, isList := entries[key].([]any)
		if !isList {
			list = []any{entries[key]}
		}
		for _, value := range list {
			if value == nil && isList {
				continue
			}
			text, _ := value.(string)
			ref, ok := parseClass(name, "auto_map."+key, text)
			if !ok {
				return nil, nil, refuse(name, "auto_map."+key,
					"is %.100v, which is no class; this server cannot say what code the model runs", value)
			}
			if refs = append(refs, ref); len(refs) > maxClasses {
				return nil, nil, refuse(name, "auto_map", "names more than %d classes", maxClasses)
			}
		}
	}
	return refs, config, nil
}

// readCode returns the key in architectures of what the encoder in folder computes for a head that
// transformers loads by the class auto. It is the model_type of the configuration unless code says
// something else. readCode refuses a model that runs code which is not in the list: that of its
// configuration, of its tokenizer and of its modules.
func readCode(dir fs.FS, folder, auto string) (architecture string, err error) {
	refs, config, err := readAutoMap(dir, path.Join(folder, configFile))
	if err != nil {
		return "", err
	}
	architecture, _ = config["model_type"].(string)
	modelType, decided := architecture, 0
	for _, ref := range refs {
		k, err := ref.known(modelType)
		if err == nil {
			err = k.check(ref, config, dir, folder)
		}
		if err == nil && !ref.gives(auto) {
			err = ref.refuse("; a class with another output belongs there, and this server does not know what it gives")
		}
		if err != nil {
			return "", err
		}
		if n := ref.decides(auto); k.computes != "" && n > decided {
			architecture, decided = k.computes, n
		}
	}
	for _, at := range slices.Compact([]string{folder, ""}) { // where TokenizerFolder looks
		if err := checkTokenizerCode(dir, at, modelType); err != nil {
			return "", err
		}
	}
	return architecture, checkModuleCode(dir, architecture)
}

// decides ranks the keys of auto_map: the class that transformers loads for the head, the encoder's
// own, those of other heads, the configuration's.
func (ref classRef) decides(auto string) int {
	switch key := strings.TrimPrefix(ref.key, "auto_map."); key {
	case auto:
		return 4
	case autoEncoder:
		return 3
	case "AutoConfig":
		return 1
	}
	return 2
}

// headClass is the end of the name of a class with a head.
var headClass = regexp.MustCompile(`For[A-Z][A-Za-z]*$`)

// gives reports whether the class gives what its key is for, where the key is the encoder's or that
// of the class auto: hidden states for AutoModel, and a head's output for the key of that head.
// Behind other keys is nothing that is served.
func (ref classRef) gives(auto string) bool {
	if ref.decides(auto) < 3 {
		return true
	}
	head := strings.TrimPrefix(strings.TrimPrefix(ref.key, "auto_map."), autoEncoder)
	class := headClass.FindString(ref.class)
	if strings.HasSuffix(ref.class, "Config") {
		return false
	}
	return class == head || head == "ForMaskedLM" && class == "ForPreTraining" // Nomic's
}

// CheckTokenizer refuses a tokenizer in a directory of its own, as of another repository, that runs
// code which is not in the list.
func CheckTokenizer(dir string) error {
	tree := files.Dir(dir)
	refs, config, err := readAutoMap(tree, configFile)
	if err != nil {
		return err
	}
	modelType, _ := config["model_type"].(string)
	for _, ref := range refs {
		if ref.key != "auto_map.AutoTokenizer" { // the model's own code is not run for it
			continue
		}
		k, err := ref.known(modelType)
		if err == nil {
			err = k.check(ref, config, tree, "")
		}
		if err != nil {
			return err
		}
	}
	return checkTokenizerCode(tree, "", modelType)
}

// checkTokenizerCode refuses a tokenizer that runs code which is not in the list.
func checkTokenizerCode(dir fs.FS, folder, modelType string) error {
	refs, config, err := readAutoMap(dir, path.Join(folder, tokenizerFile))
	if err != nil {
		return err
	}
	for _, ref := range refs {
		k, err := ref.known(modelType)
		if err == nil {
			err = k.check(ref, config, dir, folder)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkModuleCode refuses modules that are not of ownPackages, unless the list has them before that
// architecture.
func checkModuleCode(dir fs.FS, architecture string) error {
	modules, err := readModules(dir)
	if err != nil {
		return err
	}
	if len(modules) == 1 && modules[0].kind == "Router" {
		routes, err := readRouter(dir, modules[0].path)
		if err != nil {
			return err
		}
		for _, route := range slices.Sorted(maps.Keys(routes)) {
			at := path.Join(modules[0].path, routerFile)
			if err := checkModules(routes[route], at, architecture); err != nil {
				return err
			}
		}
	}
	return checkModules(modules, modulesFile, architecture)
}

func checkModules(modules []module, file, architecture string) error {
	for _, m := range modules {
		if slices.ContainsFunc(ownPackages, func(p string) bool { return strings.HasPrefix(m.class, p) }) {
			continue
		}
		ref, ok := parseClass(file, "type", m.class)
		if !ok {
			return refuse(file, "type", "%.100q is no class of sentence-transformers", m.class)
		}
		if !slices.ContainsFunc(knownClasses, func(k knownClass) bool {
			return k.has(ref) && k.unserved == "" && slices.Contains(k.beside, architecture)
		}) {
			return ref.unknown()
		}
	}
	return nil
}

// codeFolder returns the folder of the first module, behind a router that of documents. It reads no
// more than Detect may.
func codeFolder(dir fs.FS) (string, error) {
	modules, err := readModules(dir)
	if err != nil || modules == nil {
		return "", err
	}
	if modules[0].kind == "Router" {
		routes, err := readRouter(dir, modules[0].path)
		if documents := routes["document"]; len(documents) > 0 {
			return documents[0].path, err
		}
		return "", err
	}
	return modules[0].path, nil
}

// readArchitecture returns what loads the encoder in folder for a head, and its name.
func readArchitecture(dir fs.FS, folder, auto string) (name string, load loadEncoder, err error) {
	if name, err = readCode(dir, folder, auto); err != nil {
		return "", nil, err
	}
	load, ok := architectures[name]
	if ok {
		return name, load, refuseCommon(dir, folder)
	}
	var config struct {
		ModelType string `json:"model_type"`
	}
	file := path.Join(folder, configFile)
	if err := needJSON(dir, file, &config); err != nil {
		return "", nil, err
	}
	if name != config.ModelType {
		return "", nil, refuse(file, "auto_map",
			"the model's own code computes %s, not what model_type %.60q says; this server does not serve that",
			name, config.ModelType)
	}
	return "", nil, refuse(file, "model_type", "%.60q is not supported; supported are %v", name,
		slices.Sorted(maps.Keys(architectures)))
}

// isEmpty reports whether a file is there and has no content, as in the preview of a repository.
func isEmpty(dir fs.FS, name string) bool {
	info, err := fs.Stat(dir, name)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}
