package hub

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

const (
	someCommit = "0123456789abcdef0123456789abcdef01234567"
	someBlob   = "89abcdef0123456789abcdef0123456789abcdef"
)

func listingWith(sibling string) string {
	return `{"sha":"` + someCommit + `","siblings":[` + sibling + `]}`
}

func TestHostileListings(t *testing.T) {
	file := func(name string) string {
		return listingWith(`{"rfilename":"` + name + `","size":1,"blobId":"` + someBlob + `"}`)
	}
	for name, c := range map[string]struct{ raw, want string }{
		"empty":            {``, "not the JSON"},
		"html":             {`<html>`, "not the JSON"},
		"array":            {`[]`, "not the JSON"},
		"cut":              {listingWith(``)[:30], "not the JSON"},
		"deep":             {`{"sha":` + strings.Repeat("[", 100_000), "not the JSON"},
		"no commit":        {`{"siblings":[]}`, "no commit"},
		"short commit":     {`{"sha":"0123"}`, "no commit"},
		"commit is a path": {`{"sha":"../../../../../../../../../../../../../e"}`, "no commit"},
		"parent":           {file("../config.json"), "unsafe file name"},
		"parent inside":    {file("a/../../config.json"), "unsafe file name"},
		"not clean":        {file("a//config.json"), "unsafe file name"},
		"dot":              {file("./config.json"), "unsafe file name"},
		"absolute":         {file("/etc/config.json"), "unsafe file name"},
		"directory":        {file("a/"), "unsafe file name"},
		"backslash":        {file(`a\\config.json`), "unsafe file name"},
		"NUL":              {file(`a\u0000.json`), "unsafe file name"},
		"newline":          {file(`a\n.json`), "unsafe file name"},
		"bad UTF-8":        {file("a\xff.json"), "unsafe file name"},
		"no name":          {listingWith(`{"size":1}`), "unsafe file name"},
		"long part":        {file(strings.Repeat("x", 256) + ".json"), "unsafe file name"},
		"long name":        {file(strings.Repeat("x/", 600) + "a.json"), "unsafe file name"},
		"twice":            {listingWith(`{"rfilename":"config.json"},{"rfilename":"config.json"}`), "twice"},
		"negative size":    {strings.Replace(file("config.json"), `:1,`, `:-1,`, 1), "negative size"},
		"negative lfs size": {listingWith(`{"rfilename":"model.safetensors","lfs":{"sha256":"` +
			strings.Repeat("ab", 32) + `","size":-5}}`), "negative size"},
		"size over 2⁶³": {strings.Replace(file("config.json"), `:1,`, `:9223372036854775808,`, 1),
			"not the JSON"},
	} {
		l, err := parseListing([]byte(c.raw), false)
		if err == nil || !strings.Contains(err.Error(), c.want) || l != nil || len(err.Error()) > 600 {
			t.Errorf("%s: %+v, %v; want an error with %q", name, l, err, c.want)
		}
	}
	// A checksum that cannot name a blob counts as missing.
	for _, sibling := range []string{
		`{"rfilename":"config.json","size":1,"blobId":"../x"}`,
		`{"rfilename":"config.json","size":1,"blobId":"` + strings.ToUpper(someBlob) + `"}`,
		`{"rfilename":"config.json","blobId":"` + someBlob + `"}`,
		`{"rfilename":"config.json","size":1,"blobId":"` + someBlob + `","lfs":{"sha256":"x","size":1}}`,
	} {
		l, err := parseListing([]byte(listingWith(sibling)), false)
		if err != nil || len(l.files) != 1 || l.files[0].hash != "" {
			t.Errorf("%s: %+v, %v", sibling, l, err)
		}
	}
}

// FuzzParseListing: whatever the hub answers, a listing that parses has safe, distinct names, blob
// names that are checksums or empty, no negative size with a checksum, and a commit.
func FuzzParseListing(f *testing.F) {
	f.Add([]byte(listingWith(`{"rfilename":"config.json","size":1,"blobId":"` + someBlob + `"}`)))
	f.Add([]byte(listingWith(`{"rfilename":"../../x.json","size":1},{"rfilename":"1_Pooling/config.json"}`)))
	f.Add([]byte(listingWith(
		`{"rfilename":"model.safetensors","lfs":{"sha256":"` + strings.Repeat("0a", 32) + `","size":9}}`)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := parseListing(raw, false)
		if err != nil {
			if l != nil {
				t.Error("a listing came with the error")
			}
			return
		}
		if !commitPattern.MatchString(l.commit) {
			t.Errorf("commit %q", l.commit)
		}
		for i, file := range l.files {
			if strings.HasPrefix(file.name, "/") || slices.Contains(strings.Split(file.name, "/"), "..") ||
				strings.ContainsAny(file.name, "\\\x00\n") {
				t.Errorf("name %q", file.name)
			}
			if file.hash != "" && (file.size < 0 ||
				!commitPattern.MatchString(file.hash) && !sha256Pattern.MatchString(file.hash)) {
				t.Errorf("%q: hash %q, size %d", file.name, file.hash, file.size)
			}
			if i > 0 && l.files[i-1].name >= file.name {
				t.Errorf("names %q, %q out of order", l.files[i-1].name, file.name)
			}
		}
	})
}

func TestSelectFiles(t *testing.T) {
	for name, c := range map[string]struct{ files, want string }{
		"sentence-transformers": {
			".gitattributes README.md config.json config_sentence_transformers.json data_config.json model.safetensors modules.json " +
				"1_Pooling/config.json onnx/model.onnx onnx/config.json openvino/openvino_model.bin openvino/openvino_model.xml " +
				"pytorch_model.bin rust_model.ot sentence_bert_config.json special_tokens_map.json tf_model.h5 tokenizer.json " +
				"tokenizer_config.json train_script.py vocab.txt",
			"config.json config_sentence_transformers.json data_config.json model.safetensors modules.json 1_Pooling/config.json " +
				"sentence_bert_config.json special_tokens_map.json tokenizer.json tokenizer_config.json vocab.txt"},
		"torch only": {"config.json pytorch_model.bin tf_model.h5 flax_model.msgpack vocab.txt",
			"config.json pytorch_model.bin vocab.txt"},
		"sharded": {
			"config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json pytorch_model.bin.index.json pytorch_model-00001-of-00001.bin",
			"config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json",
		},
		"single beside shards": {
			"model.safetensors model-00001-of-00001.safetensors model.safetensors.index.json",
			"model.safetensors",
		},
		"precision variants": {
			"model.safetensors model.fp16.safetensors consolidated.safetensors consolidated.00.safetensors",
			"model.safetensors",
		},
		"only a variant": {"model.fp16.safetensors config.json", "model.fp16.safetensors config.json"},
		"torch shards": {
			"pytorch_model.bin.index.json pytorch_model-00001-of-00002.bin pytorch_model-00002-of-00002.bin",
			"pytorch_model.bin.index.json pytorch_model-00001-of-00002.bin pytorch_model-00002-of-00002.bin",
		},
		"dense modules": {
			"model.safetensors 2_Dense/config.json 2_Dense/model.safetensors 2_Dense/pytorch_model.bin 3_Dense/config.json 3_Dense/pytorch_model.bin",
			"model.safetensors 2_Dense/config.json 2_Dense/model.safetensors 3_Dense/config.json 3_Dense/pytorch_model.bin",
		},
		"heads": {"model.safetensors colbert_linear.pt sparse_linear.pt",
			"model.safetensors colbert_linear.pt sparse_linear.pt"},
		"training state": {
			"model.safetensors optimizer.pt scheduler.pt rng_state.pth rng_state_0.pth scaler.pt training_args.bin trainer_state.json all_results.json eval_results.json checkpoint-100/model.safetensors runs/x.json",
			"model.safetensors",
		},
		"sentencepiece": {
			"model.safetensors sentencepiece.bpe.model spm.model spiece.model merges.txt vocab.json chat_template.jinja",
			"model.safetensors sentencepiece.bpe.model spm.model spiece.model merges.txt vocab.json chat_template.jinja",
		},
		"adapter": {"adapter_config.json adapter_model.safetensors adapter_model.bin",
			"adapter_config.json adapter_model.safetensors"},
		"gliner": {"gliner_config.json model.safetensors pytorch_model.bin",
			"gliner_config.json model.safetensors"},
		"documents and scripts": {
			"LICENSE LICENSE.txt README.txt requirements.txt modeling.py a.png docs/a.json images/b.json .github/x.json a/.b/c.json",
			"",
		},
		"other runtimes": {
			"ONNX/config.json coreml/a.json gguf/model.gguf model.gguf original/tokenizer.model mlx/model.safetensors",
			"",
		},
	} {
		want := strings.Fields(c.want)
		slices.Sort(want)
		if got := selectFiles(strings.Fields(c.files)); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, want)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://hub.test/a", "https://hub.test/b", true},
		{"https://hub.test", "https://hub.test:443", true}, {"http://hub.test:80", "http://HUB.test", true},
		{"https://hub.test", "http://hub.test", false}, {"https://hub.test", "https://cdn.hub.test", false},
		{"https://hub.test", "https://hub.test:8443", false},
		{"http://127.0.0.1:1", "http://127.0.0.1:2", false},
		{"https://hub.test", "https://hub.test.evil", false},
		{"https://hub.test", "https://hub.test@evil.test", false},
	} {
		if got := sameOrigin(mustURL(t, c.a), mustURL(t, c.b)); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}
