package tokenizer

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// m is a JSON object.
type m = map[string]any

// family is a tokenizer class of transformers whose vocabulary files can stand alone: it says what
// tokenizer.json would hold. Classes that differ in their name only share a family.
type family struct {
	classes []string
	files   []string  // the vocabulary files that one of them must be
	tokens  [7]string // bos, eos, unk, sep, pad, cls and mask where no file names them
	// build makes the parts of tokenizer.json of the vocabulary that was read.
	build func(v *vocabulary, set *settings) error
}

var spmFiles = []string{"sentencepiece.bpe.model", "spm.model", "spiece.model", "tokenizer.model"}

// families lists the classes. Source: the tokenization files of transformers 5.23.
var families = []*family{
	{
		classes: []string{"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer",
			"SqueezeBertTokenizer", "ConvBertTokenizer"},
		files:  []string{"vocab.txt"},
		tokens: [7]string{"", "", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"},
		build:  buildBERT,
	},
	{
		classes: []string{"MPNetTokenizer"},
		files:   []string{"vocab.txt"},
		tokens:  [7]string{"<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"},
		build:   buildMPNet,
	},
	{
		classes: []string{"RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer"},
		files:   []string{"vocab.json"},
		tokens:  [7]string{"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"},
		build:   buildRoberta,
	},
	{
		classes: []string{"GPT2Tokenizer"},
		files:   []string{"vocab.json"},
		tokens:  [7]string{"<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
		build:   buildGPT2,
	},
	{
		classes: []string{"Qwen2Tokenizer"},
		files:   []string{"vocab.json"},
		tokens:  [7]string{"", "<|endoftext|>", "<|endoftext|>", "", "<|endoftext|>"},
		build:   buildQwen2,
	},
	{
		classes: []string{"DebertaTokenizer"},
		files:   []string{"vocab.json"},
		tokens:  [7]string{"[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"},
		build:   buildDeberta,
	},
	{
		classes: []string{"XLMRobertaTokenizer"},
		files:   spmFiles,
		tokens:  [7]string{"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"},
		build:   buildXLMR,
	},
	{
		classes: []string{"CamembertTokenizer"},
		files:   spmFiles,
		tokens:  [7]string{"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"},
		build:   buildCamembert,
	},
	{
		classes: []string{"DebertaV2Tokenizer"},
		files:   spmFiles,
		tokens:  [7]string{"[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"},
		build:   buildDebertaV2,
	},
	{
		classes: []string{"T5Tokenizer"},
		files:   spmFiles,
		tokens:  [7]string{"", "</s>", "<unk>", "", "<pad>"},
		build:   buildT5,
	},
	{
		classes: []string{"AlbertTokenizer"},
		files:   spmFiles,
		tokens:  [7]string{"[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"},
		build:   buildAlbert,
	},
	{
		classes: []string{"LlamaTokenizer"},
		files:   spmFiles,
		tokens:  [7]string{"<s>", "</s>", "<unk>"},
		build:   buildLlama,
	},
	{
		classes: []string{"GemmaTokenizer"},
		files:   spmFiles,
		tokens:  [7]string{"<bos>", "<eos>", "<unk>", "", "<pad>", "", "<mask>"},
		build:   buildGemma,
	},
}

// modelClasses says which class transformers takes for a model_type where no file names one.
const modelClasses = `
BertTokenizer: bert distilbert electra nomic_bert nezha ernie
MPNetTokenizer: mpnet
RobertaTokenizer: roberta roberta-prelayernorm bart longformer xmod data2vec-text
GPT2Tokenizer: gpt2 gpt_neo gptj opt phi starcoder2
Qwen2Tokenizer: qwen2 qwen3 qwen2_moe qwen3_moe
DebertaTokenizer: deberta
XLMRobertaTokenizer: xlm-roberta xlm-roberta-xl gte jina_embeddings_v3
CamembertTokenizer: camembert
DebertaV2Tokenizer: deberta-v2
T5Tokenizer: t5 mt5
AlbertTokenizer: albert
LlamaTokenizer: llama mistral mixtral
GemmaTokenizer: gemma gemma2 gemma3 gemma3_text recurrent_gemma shieldgemma2
`

// classOfModel returns the class for a model_type, or "".
func classOfModel(model string) string {
	for line := range strings.Lines(modelClasses) {
		class, models, _ := strings.Cut(line, ":")
		if slices.Contains(strings.Fields(models), model) {
			return class
		}
	}
	return ""
}

// familyOf returns the family of the named class, or nil.
func familyOf(class string) *family {
	for _, f := range families {
		if slices.Contains(f.classes, class) {
			return f
		}
	}
	return nil
}

// findFamily chooses a family by the class that the files name, by the type of the model, or by a
// vocabulary file that only one family has.
func (s *settings) findFamily(dir string, found []string) (*family, error) {
	class := s.class()
	if f := familyOf(class); f != nil {
		return f, nil
	}
	have := strings.Join(found, " and ")
	if class != "" {
		return nil, fmt.Errorf(
			"tokenizer: %s has no tokenizer.json, and its tokenizer_class %q cannot be built from %s: "+
				"save it with AutoTokenizer.from_pretrained(...).save_pretrained", dir, class, have)
	}
	if f := familyOf(classOfModel(s.modelType)); f != nil {
		return f, nil
	}
	for file, class := range map[string]string{"vocab.txt": "BertTokenizer",
		"sentencepiece.bpe.model": "XLMRobertaTokenizer", "spm.model": "DebertaV2Tokenizer"} {
		if s.modelType == "" && found[0] == file {
			return familyOf(class), nil
		}
	}
	var known []string
	for _, f := range families {
		if slices.Contains(f.files, found[0]) {
			known = append(known, f.classes[0])
		}
	}
	return nil, fmt.Errorf(
		"tokenizer: %s has no tokenizer.json, and nothing says what %s is (model_type of config.json is %q): "+
			"set tokenizer_class in tokenizer_config.json to one of %s, or save the tokenizer with "+
			"AutoTokenizer.from_pretrained(...).save_pretrained",
		dir, have, s.modelType, strings.Join(known, ", "))
}

// vocabulary is what a family builds: the parts of tokenizer.json, from the vocabulary files.
type vocabulary struct {
	path    string // of the vocabulary file, for errors
	family  *family
	own     map[string]int // the ids of the model's tokens
	ids     map[string]int // and those of added ones
	size    int            // entries of own, which the ids of new tokens follow
	merges  [][2]string
	spm     *spmModel
	added   []addedToken
	guessed map[string]bool // tokens that only the class names and that no file has

	normalizer, preTokenizer, postProcessor, decoder, model any
}

// fromFiles builds tokenizer.json from the vocabulary files of a directory, and returns the path of
// the file that it read. The error is fs.ErrNotExist if there is none.
func fromFiles(dir string, set *settings) (path string, data []byte, err error) {
	var found []string
	for _, name := range append([]string{"vocab.txt", "vocab.json"}, spmFiles...) {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return dir, nil, fs.ErrNotExist
	}
	f, err := set.findFamily(dir, found)
	if err != nil {
		return dir, nil, err
	}
	i := slices.IndexFunc(found, func(name string) bool { return slices.Contains(f.files, name) })
	if i < 0 {
		return dir, nil, fmt.Errorf("tokenizer: %s has no tokenizer.json and no %s, which %s needs; it has %s",
			dir, strings.Join(f.files, " or "), f.classes[0], strings.Join(found, " and "))
	}
	v := &vocabulary{path: filepath.Join(dir, found[i]), family: f}
	if err := v.read(found[i]); err != nil {
		return dir, nil, err
	}
	if err := f.build(v, set); err != nil {
		return dir, nil, fmt.Errorf("tokenizer: %s: %w", v.path, err)
	}
	data, err = json.Marshal(m{
		"version":        "1.0",
		"truncation":     nil,
		"padding":        nil,
		"added_tokens":   v.added,
		"normalizer":     v.normalizer,
		"pre_tokenizer":  v.preTokenizer,
		"post_processor": v.postProcessor,
		"decoder":        v.decoder,
		"model":          v.model,
	})
	return v.path, data, err
}

// addTokens lists the tokens that are found in a text before anything else happens to it: those of
// the configuration in the order of their ids, those with a name, and the others, as transformers
// adds them. Tokens without a place in the vocabulary get the ids after it. Of a WordPiece
// vocabulary, a token that only the class names and the vocabulary lacks is left out, because the
// model has no row for it.
func (v *vocabulary) addTokens(set *settings, more ...addedToken) error {
	v.added, v.guessed = set.listed(), make(map[string]bool)
	have := make(map[string]bool)
	for i := range v.added {
		have[v.added[i].Content] = true
	}
	add := func(t addedToken) {
		if t.Content != "" && !have[t.Content] {
			have[t.Content] = true
			v.added = append(v.added, t)
		}
	}
	for i, t := range set.named.all() {
		switch name := v.family.tokens[i]; {
		case t.Content != "":
			add(t.added(true))
		case !t.present && name != "":
			*t = tokenValue{Content: name, Special: true, Normalized: new(bool),
				Lstrip: i == 6 && v.lstripMask()}
			_, ok := v.ids[name]
			if !ok && !have[name] {
				v.guessed[name] = true
			}
			if ok || !slices.Contains(v.family.files, "vocab.txt") {
				add(t.added(true))
			}
		}
	}
	for i := range v.added {
		v.added[i].Special = v.added[i].Special || set.isNamed(v.added[i].Content)
	}
	for _, t := range set.extra() {
		add(t.added(true))
	}
	if set.Extra == nil && set.Additional == nil {
		for _, t := range more {
			add(t)
		}
	}
	return v.number()
}

// lstripMask: the mask takes the space before it.
func (v *vocabulary) lstripMask() bool {
	return slices.Contains([]string{"MPNetTokenizer", "CamembertTokenizer"}, v.family.classes[0])
}

// number gives the tokens their ids, as the library does.
func (v *vocabulary) number() error {
	if len(v.added) > maxAdded {
		return fmt.Errorf("%d tokens are added to the vocabulary; the limit is %d", len(v.added), maxAdded)
	}
	next := v.size
	var taken map[int]string
	for i := range v.added {
		t := &v.added[i]
		if id, ok := v.ids[t.Content]; ok {
			t.ID = id
			continue
		}
		if taken == nil {
			taken = make(map[int]string, len(v.ids))
			for token, id := range v.ids {
				taken[id] = token
			}
		}
		if token, ok := taken[next]; ok {
			return fmt.Errorf("the token %q is not in the vocabulary and would get the id %d, which %q has: "+
				"the ids of its %d tokens have gaps", t.Content, next, token, v.size)
		}
		t.ID = next
		v.ids[t.Content] = next
		next++
	}
	return nil
}

// need returns the ids of special tokens that the model needs.
func (v *vocabulary) need(tokens ...string) ([]int, error) {
	ids := make([]int, len(tokens))
	for i, t := range tokens {
		id, ok := v.ids[t]
		if !ok || v.guessed[t] {
			return nil, fmt.Errorf("lacks the special token %q: is it the vocabulary of a %s?",
				t, v.family.classes[0])
		}
		ids[i] = id
	}
	return ids, nil
}

// listed returns the tokens that the configuration lists by their ids.
func (s *settings) listed() []addedToken {
	list := []addedToken{}
	for id, t := range s.Added {
		if t.Content != "" {
			a := t.added(false)
			a.ID = number(id)
			list = append(list, a)
		}
	}
	for content, id := range s.addedFile {
		if content != "" {
			special := s.isNamed(content)
			list = append(list, addedToken{ID: id, Content: content, Special: special, Normalized: !special})
		}
	}
	slices.SortStableFunc(list, func(a, b addedToken) int {
		if a.ID != b.ID {
			return a.ID - b.ID
		}
		return strings.Compare(a.Content, b.Content)
	})
	return list
}

// isNamed reports whether a token has a name in the configuration, or is one of its extra ones.
func (s *settings) isNamed(content string) bool {
	for _, t := range s.named.all() {
		if t.Content == content {
			return true
		}
	}
	return slices.ContainsFunc(s.extra(), func(t tokenValue) bool { return t.Content == content })
}
