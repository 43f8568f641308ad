package hub

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// File selection. A repository often holds the same weights several times, for other frameworks or
// runtimes. Only the files that a model needs are downloaded: configuration, tokenizer, and in each
// directory the safetensors weights, or the torch weights where there are no others.

// otherRuntimes lists directories with copies of the model, training state, or documents.
var otherRuntimes = map[string]bool{
	"onnx": true, "openvino": true, "coreml": true, "tflite": true, "tf": true, "flax": true, "gguf": true,
	"ggml": true, "mlx": true, "original": true, "docs": true, "assets": true, "images": true, "runs": true,
	"logs": true, "eval": true, "evaluation": true, "results": true, "checkpoints": true,
}

var (
	// unwanted matches remains of training, and weights for other programs, that have a wanted
	// extension.
	unwanted = regexp.MustCompile(
		`^(trainer_state\.json|training_args\..*|optimizer\..*|scheduler\..*|rng_state.*|scaler\.pt|all_results\.json|(train|eval|test)_results\.json|consolidated.*\.safetensors|rust_model\.ot)$`)
	shardName = regexp.MustCompile(`^model-\d+-of-\d+\.safetensors$`)
	// variantName matches model.fp16.safetensors and similar names: the same tensors in another
	// precision.
	variantName = regexp.MustCompile(`^model\.[A-Za-z0-9_-]+\.safetensors$`)
)

// selectFiles returns the names to download, sorted. names are all files of the repository, checked
// by validFileName.
func selectFiles(names []string) []string {
	has := make(map[string]bool, len(names))
	safetensorsIn := make(map[string]bool) // directory → holds safetensors weights
	for _, name := range names {
		has[name] = true
		if base := path.Base(name); strings.HasSuffix(base, ".safetensors") && !unwanted.MatchString(base) {
			safetensorsIn[path.Dir(name)] = true
		}
	}
	var selected []string
	for _, name := range names {
		if wanted(name, has, safetensorsIn) {
			selected = append(selected, name)
		}
	}
	slices.Sort(selected)
	return slices.Compact(selected)
}

// adapterFiles lists the files of a LoRA adapter that PEFT saved. An adapter has one of the last
// two.
var adapterFiles = []string{"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"}

// selectAdapter returns the names of an adapter's files in the order of adapterFiles. A complete
// adapter has two.
func selectAdapter(names []string) (selected []string) {
	for _, name := range adapterFiles {
		if slices.Contains(names, name) && len(selected) < 2 {
			selected = append(selected, name)
		}
	}
	return selected
}

// isCompleteAdapter reports whether the selected files hold an adapter's configuration and tensors.
func isCompleteAdapter(selected []string) bool {
	return len(selected) == 2 && selected[0] == adapterFiles[0]
}

// missingAdapterFile names the adapter files that are missing from the selected ones.
func missingAdapterFile(selected []string) string {
	if !slices.Contains(selected, adapterFiles[0]) {
		return adapterFiles[0]
	}
	return adapterFiles[1] + " and " + adapterFiles[2]
}

// asAdapter removes all files from a listing but the adapter's and those of ref.beside. It fails
// when the adapter is incomplete, or when all have more bytes than ref allows.
func (l *listing) asAdapter(ref modelRef) error {
	names := make([]string, len(l.files))
	for i, f := range l.files {
		names[i] = f.name
	}
	selected := selectAdapter(names)
	if !isCompleteAdapter(selected) {
		return fail(ClassConfig, nil, "has no %s: it is no LoRA adapter", missingAdapterFile(selected))
	}
	whole := len(l.files)
	l.files = slices.DeleteFunc(l.files, func(f remoteFile) bool {
		return !slices.Contains(selected, f.name) && !slices.Contains(ref.beside, f.name)
	})
	l.part, l.beside = l.part || len(l.files) < whole, ref.beside
	var total int64
	for _, f := range l.files {
		// a size may be unknown (-1); the caller checks again when it is known
		if total += max(0, f.size); total > ref.adapter {
			return fail(ClassConfig, nil,
				"its LoRA adapter has more than %d MiB, the limit for one", ref.adapter>>20)
		}
	}
	return nil
}

func wanted(name string, has, safetensorsIn map[string]bool) bool {
	dir, base := path.Dir(name), path.Base(name)
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.HasPrefix(part, "checkpoint-") {
			return false
		}
	}
	if dir != "." && otherRuntimes[strings.ToLower(strings.SplitN(dir, "/", 2)[0])] ||
		unwanted.MatchString(base) {
		return false
	}
	single := has[path.Join(dir, "model.safetensors")]
	sharded := has[path.Join(dir, "model.safetensors.index.json")]
	switch {
	case strings.HasSuffix(base, ".index.json"):
		// An index is needed only with its shards: not next to the single file, and a torch index
		// not next to safetensors.
		if base == "model.safetensors.index.json" {
			return !single
		}
		return base == "pytorch_model.bin.index.json" && !safetensorsIn[dir]
	case strings.HasSuffix(base, ".safetensors"):
		if shardName.MatchString(base) {
			return !single
		}
		return !(single || sharded) || !variantName.MatchString(base)
	case strings.HasSuffix(base, ".bin"):
		return !safetensorsIn[dir]
	}
	switch path.Ext(base) {
	case ".json", ".txt", ".model", ".jinja", ".tiktoken", ".spm", ".bpe", ".vocab":
		return !strings.HasPrefix(strings.ToLower(base), "license") &&
			!strings.HasPrefix(strings.ToLower(base), "readme") && base != "requirements.txt"
	case ".pt", ".pth": // small heads beside the weights, such as a sparse or a multi-vector projection
		return true
	}
	return false
}

// validFileName reports whether the name is a relative path that stays inside the snapshot.
func validFileName(name string) bool {
	if name == "" || len(name) > 1024 || !filepath.IsLocal(name) || path.Clean(name) != name ||
		strings.Contains(name, `\`) {
		return false
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return false
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 255 {
			return false
		}
	}
	return true
}
