package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// modelDir makes a model directory of the given files.
func modelDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func minilmFile(name string) string {
	data, err := os.ReadFile(filepath.Join(goldenDir, "minilm", name))
	must(err)
	return string(data)
}

// vocabTxt is MiniLM's vocabulary in the older format.
func vocabTxt() string {
	var file struct {
		Model struct{ Vocab map[string]int }
	}
	must(json.Unmarshal([]byte(minilmFile("tokenizer.json")), &file))
	lines := make([]string, len(file.Model.Vocab))
	for token, id := range file.Model.Vocab {
		lines[id] = token
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestMetadata(t *testing.T) {
	tok := load(t, "minilm")
	if got, want := tok.Special(), (SpecialIDs{
		CLS: 101, SEP: 102, PAD: 0, UNK: 100, MASK: 103,
	}); got != want {
		t.Errorf("special ids %+v, want %+v", got, want)
	}
	if tok.VocabSize() != 30522 || tok.MaxLength() != 512 || tok.CountSpecial(false) != 2 ||
		tok.CountSpecial(true) != 3 {
		t.Errorf("vocabulary %d, max length %d, special %d and %d",
			tok.VocabSize(), tok.MaxLength(), tok.CountSpecial(false), tok.CountSpecial(true))
	}
	if id, ok := tok.TokenToID("hello"); id != 7592 || !ok {
		t.Errorf("hello is %d, %v", id, ok)
	}
	if id, ok := tok.TokenToID("no such token"); ok {
		t.Errorf("an unknown token has id %d", id)
	}
	if got := load(t, "xlmr").Special(); got.CLS != 0 || got.SEP != 2 || got.PAD != 1 || got.UNK != 3 ||
		got.MASK < 4 {
		t.Errorf("special ids of another family: %+v", got)
	}
}

func TestVocabTxtEqualsTokenizerJSON(t *testing.T) {
	for name, vocab := range map[string]string{
		"unix": vocabTxt(),
		"dos":  strings.ReplaceAll(vocabTxt(), "\n", "\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			tok := loadDir(t, modelDir(t, map[string]string{
				"vocab.txt": vocab, "tokenizer_config.json": minilmFile("tokenizer_config.json"),
			}))
			var b Batch
			if err := tok.Encode(&b, texts(), Options{}); err != nil {
				t.Fatal(err)
			}
			for i, want := range golden("minilm").Full {
				want.check(t, fmt.Sprintf("text %d", i), b.Text(i))
			}
			if !tok.info.streaming || tok.CountSpecial(true) != 3 {
				t.Errorf("streaming %v, %d special tokens in a pair",
					tok.info.streaming, tok.CountSpecial(true))
			}
		})
	}
}

// transformers' tokenizer of Gemma has no do_lower_case: the key in its configuration changes
// nothing, neither in the slow and the fast class of old nor in that of 5.
func TestGemmaKeepsCase(t *testing.T) {
	vocabulary, err := os.ReadFile(filepath.Join(filesDir, "gemma", "tokenizer.model"))
	must(err)
	var ids [][]int32
	for _, more := range []string{"", `, "do_lower_case": false`, `, "do_lower_case": true`} {
		tok := loadDir(t, modelDir(t, map[string]string{"tokenizer.model": string(vocabulary),
			"tokenizer_config.json": `{"tokenizer_class": "GemmaTokenizer"` + more + `}`}))
		var upper, lower Batch
		must(tok.Encode(&upper, []string{"The Cat"}, Options{}))
		must(tok.Encode(&lower, []string{"the cat"}, Options{}))
		if ids = append(ids, upper.IDs); slices.Equal(upper.IDs, lower.IDs) ||
			!slices.Equal(ids[0], upper.IDs) {
			t.Errorf("%s: %v and %v, without it %v", more, upper.IDs, lower.IDs, ids[0])
		}
	}
}

// The BERT class of transformers takes these flags from its configuration, not from tokenizer.json.
func TestConfigurationOverridesTheNormalizer(t *testing.T) {
	for _, c := range []struct{ config, text, same string }{
		{`{"tokenizer_class":"BertTokenizer"}`, "HELLO Café", "hello cafe"},
		{`{"tokenizer_class":"BertTokenizerFast","do_lower_case":false}`, "HELLO hello", "[UNK] hello"},
		{`{"tokenizer_class":"BertTokenizer","do_lower_case":false,"strip_accents":true}`, "Hello héllo",
			"[UNK] hello"},
		{`{"tokenizer_class":"BertTokenizer","strip_accents":false}`, "HELLO É", "hello é"},
		{`{"tokenizer_class":"DistilBertTokenizer","do_lower_case":false}`, "HELLO hello", "[UNK] hello"},
		{`{"tokenizer_class":"ElectraTokenizerFast","do_lower_case":false}`, "HELLO hello", "[UNK] hello"},
		{`{"tokenizer_class":"BertTokenizer","tokenize_chinese_chars":false}`, "中中", "中中"},
		{`{"tokenizer_class":"XLMRobertaTokenizer","do_lower_case":false}`, "HELLO", "hello"},
		{`{}`, "HELLO", "hello"},
	} {
		tok := loadDir(t, modelDir(t, map[string]string{
			"tokenizer.json": minilmFile("tokenizer.json"), "tokenizer_config.json": c.config,
		}))
		var a, b, g Batch
		must(tok.Encode(&a, []string{c.text}, Options{}))
		must(tok.Encode(&b, []string{c.same}, Options{}))
		must(tok.Encode(&g, []string{c.text}, Options{general: true}))
		if !slices.Equal(a.IDs, b.IDs) || !slices.Equal(a.IDs, g.IDs) {
			t.Errorf("%s: %q gives %v (general pipeline %v), %q gives %v",
				c.config, c.text, a.IDs, g.IDs, c.same, b.IDs)
		}
	}
	tok := loadDir(t, modelDir(t, map[string]string{"tokenizer.json": minilmFile("tokenizer.json"),
		"tokenizer_config.json": `{"tokenizer_class":"BertTokenizer","tokenize_chinese_chars":false}`}))
	var b Batch
	must(tok.Encode(&b, []string{"北京"}, Options{}))
	if len(b.IDs) != 4 || b.IDs[1] == 100 || b.IDs[2] == 0 {
		var piece []int32
		piece = append(piece, b.IDs...)
		if id, ok := tok.TokenToID("##京"); ok && !slices.Contains(piece, id) {
			t.Errorf("one word of two ideographs gives %v", piece)
		}
	}
}

func TestLoadSettings(t *testing.T) {
	tok := loadDir(t, modelDir(t, map[string]string{
		"tokenizer.json":          minilmFile("tokenizer.json"),
		"tokenizer_config.json":   `{"model_max_length":1000000000000000019884624838656,"truncation_side":"left","cls_token":{"content":"hello"},"pad_token":null}`,
		"special_tokens_map.json": `{"sep_token":{"content":"world","lstrip":false}}`,
	}))
	hello, _ := tok.TokenToID("hello")
	world, _ := tok.TokenToID("world")
	if s := tok.Special(); tok.MaxLength() != 0 || !tok.left || s.CLS != hello || s.SEP != world ||
		s.PAD != 0 {
		t.Errorf("max length %d, left %v, special %+v", tok.MaxLength(), tok.left, s)
	}
}

func TestLoadErrorsNameTheFile(t *testing.T) {
	json := minilmFile("tokenizer.json")
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing": {nil, []string{"no tokenizer.json", "save_pretrained"}},
		"truncated": {map[string]string{"tokenizer.json": json[:len(json)/2]},
			[]string{"tokenizer.json", "EOF"}},
		"empty":           {map[string]string{"tokenizer.json": ""}, []string{"tokenizer.json"}},
		"not a tokenizer": {map[string]string{"tokenizer.json": `{"a":1}`}, []string{"tokenizer.json"}},
		"deep": {map[string]string{"tokenizer.json": strings.Repeat("[", 1<<20)},
			[]string{"tokenizer.json"}},
		"bad template": {map[string]string{
			"tokenizer.json": strings.Replace(json, `{"Sequence":{"id":"A","type_id":0}},{"Spec`,
				`{"Spec`, 1),
		}, []string{"tokenizer.json"}},
		"bad config": {map[string]string{"tokenizer.json": json, "tokenizer_config.json": "{"},
			[]string{"tokenizer_config.json"}},
		"bad special": {map[string]string{
			"tokenizer.json": json, "special_tokens_map.json": `{"cls_token":[]}`,
		}, []string{"special_tokens_map.json"}},
		"vocab, no [CLS]": {map[string]string{"vocab.txt": "[UNK]\n[SEP]\na\n"},
			[]string{"vocab.txt", `"[CLS]"`}},
		"vocab, not UTF-8": {map[string]string{"vocab.txt": "[UNK]\n\xff\n"}, []string{"vocab.txt", "UTF-8"}},
		"vocab, not BERT": {map[string]string{
			"vocab.txt": "a\n", "tokenizer_config.json": `{"tokenizer_class":"XLNetTokenizer"}`,
		}, []string{"XLNetTokenizer", "save_pretrained"}},
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := Load(modelDir(t, c.files))
			if errors.Is(err, ErrNotBuilt) {
				t.Skip("the tokenizer library is not linked: run `make test`")
			}
			if err == nil {
				tok.Close()
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not mention %q", err, w)
				}
			}
		})
	}
	dir := t.TempDir()
	must(os.Mkdir(filepath.Join(dir, "tokenizer.json"), 0o700))
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory as tokenizer.json: %v", err)
	}
	big := filepath.Join(t.TempDir(), "tokenizer.json")
	must(os.WriteFile(big, nil, 0o600))
	must(os.Truncate(big, maxTokenizerBytes+1))
	if _, err := Load(filepath.Dir(big)); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a file above the limit: %v", err)
	}
}

// Texts are cleaned up when the configuration says so, except those of BPE.
func TestCleanUp(t *testing.T) {
	unigram := string(kept("t5", "spiece.model"))
	bpe := string(kept("mistral", "tokenizer.model"))
	for _, c := range []struct{ class, vocab, more, want string }{
		{"T5", unigram, "", "it 's . no ,"},
		{"T5", unigram, `,"clean_up_tokenization_spaces":true`, "it's. no,"},
		{"Llama", bpe, `,"clean_up_tokenization_spaces":true`, "it 's . no ,"},
		{"Llama", bpe, `,"clean_up_tokenization_spaces":true,` +
			`"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output":true`, "it's. no,"},
	} {
		tok := loadDir(t, modelDir(t, map[string]string{"tokenizer.model": c.vocab,
			"tokenizer_config.json": `{"tokenizer_class":"` + c.class + `Tokenizer"` + c.more + `}`}))
		var b Batch
		must(tok.Encode(&b, []string{"it 's . no ,"}, Options{}))
		if got, err := tok.Decode(b.IDs); err != nil || got != c.want {
			t.Errorf("%s%s: %q, %v; want %q", c.class, c.more, got, err, c.want)
		}
	}
}

// A tokenizer.json is changed where transformers changes it, and else left as it is.
func TestConfigurationChangesTokenizerJSON(t *testing.T) {
	roberta, err := os.ReadFile(filepath.Join(goldenDir, "roberta", "tokenizer.json"))
	must(err)
	ids := func(config, text string) []int32 {
		tok := loadDir(t, modelDir(t, map[string]string{"tokenizer.json": string(roberta),
			"tokenizer_config.json": config}))
		var b Batch
		must(tok.Encode(&b, []string{text}, Options{NoSpecial: true}))
		return b.IDs
	}
	plain, spaced := ids(`{}`, "the fox"), ids(`{}`, " the fox")
	if slices.Equal(plain, spaced) {
		t.Fatal("the texts are too weak")
	}
	for config, want := range map[string][]int32{
		`{"tokenizer_class":"RobertaTokenizer"}`:                                    plain,
		`{"tokenizer_class":"RobertaTokenizerFast","add_prefix_space":true}`:        spaced,
		`{"tokenizer_class":"GPT2Tokenizer","add_prefix_space":true}`:               spaced,
		`{"tokenizer_class":"PreTrainedTokenizerFast","add_prefix_space":true}`:     plain,
		`{"tokenizer_class":"RobertaTokenizer","add_bos_token":true,"legacy":true}`: plain,
	} {
		if got := ids(config, "the fox"); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", config, got, want)
		}
	}
	// Tokens that the file lacks come after its vocabulary.
	if got := ids(`{"additional_special_tokens":["<x>"]}`, "<x>"); len(got) != 1 || got[0] != 1501 {
		t.Errorf("a token of the configuration is %v", got)
	}
	if got := ids(`{"split_special_tokens":true}`, "<s>"); len(got) == 1 {
		t.Errorf("a special token in a text is %v although special tokens are split", got)
	}
	if got := ids(`{}`, "<s>"); len(got) != 1 || got[0] != 0 {
		t.Errorf("a special token in a text is %v", got)
	}
}

// The tokenizer that gte-Qwen2 and stella 1.5B bring as code appends eos_token where add_eos_token
// is set, to each text of a pair, though their tokenizer.json does not. transformers' own class
// leaves tokenizer.json as it is.
func TestCodeAppendsTheEndOfText(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("../../testdata/golden/st-qwen2-dense", "tokenizer.json"))
	must(err)
	var file map[string]any
	must(json.Unmarshal(data, &file))
	file["post_processor"] = map[string]any{"type": "ByteLevel", "add_prefix_space": false,
		"trim_offsets": false, "use_regex": false}
	data, err = json.Marshal(file)
	must(err)
	const end = 700
	const code = `"auto_map":{"AutoTokenizer":["Alibaba-NLP/gte-Qwen2-1.5B-instruct--` +
		`tokenization_qwen.Qwen2Tokenizer","tokenization_qwen.Qwen2TokenizerFast"]},`
	const old, other = `"auto_map":["tokenization_qwen.Qwen2Tokenizer",null],`, `"auto_map":["x.Y",null],`
	const eos = `"add_eos_token":true,"eos_token":"<|endoftext|>"}`
	for config, appends := range map[string]bool{
		`{` + code + eos: true,
		`{` + old + eos:  true,
		`{` + code + `"add_eos_token":false,"eos_token":"<|endoftext|>"}`: false,
		`{"tokenizer_class":"Qwen2Tokenizer",` + eos:                      false,
		`{` + other + eos: false,
	} {
		tok := loadDir(t, modelDir(t, map[string]string{"tokenizer.json": string(data),
			"tokenizer_config.json": config}))
		var plain, text, short, pair Batch
		must(tok.Encode(&plain, []string{"the fox and the dog"}, Options{NoSpecial: true}))
		must(tok.Encode(&text, []string{"the fox and the dog"}, Options{}))
		must(tok.Encode(&short, []string{"the fox and the dog"}, Options{MaxTokens: 3}))
		must(tok.EncodePairs(&pair, []string{"a"}, []string{"b"}, Options{}))
		want, special := plain.IDs, 0
		if appends {
			want, special = append(slices.Clone(plain.IDs), end), 1
		}
		ends := 0
		for _, id := range pair.IDs {
			if id == end {
				ends++
			}
		}
		if !slices.Equal(text.IDs, want) || tok.CountSpecial(false) != special || ends != 2*special ||
			len(short.IDs) != 3 || (short.IDs[2] == end) != appends {
			t.Errorf("%s: %v and cut %v, want %v; a pair has %d ends",
				config, text.IDs, short.IDs, want, ends)
		}
	}
	dir := modelDir(t, map[string]string{"tokenizer.json": string(data),
		"tokenizer_config.json": `{` + code + `"add_eos_token":true,"eos_token":"</s>"}`})
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "</s>") {
		t.Errorf("an end that the vocabulary lacks: %v", err)
	}
}

// Where no file names a class, transformers reads a tokenizer.json with that of the model's type; a
// generic class that tokenizer_config.json names takes it as it is, whatever config.json names.
func TestClassOfAModelReadsTokenizerJSON(t *testing.T) {
	cased := strings.Replace(minilmFile("tokenizer.json"), `"lowercase":true`, `"lowercase":false`, 1)
	for _, c := range []struct {
		file, config, model string
		lower               bool
	}{
		{minilmFile("tokenizer.json"), `{"do_lower_case":false}`, `{"model_type":"bert"}`, false},
		{minilmFile("tokenizer.json"), `{"do_lower_case":false}`, `{"model_type":"electra"}`, false},
		{minilmFile("tokenizer.json"), `{"do_lower_case":false}`, `{"model_type":"modernbert"}`, true},
		{minilmFile("tokenizer.json"), `{"do_lower_case":false}`, `{}`, true},
		{minilmFile("tokenizer.json"), `{"do_lower_case":false,"tokenizer_class":"PreTrainedTokenizerFast"}`,
			`{"model_type":"bert"}`, true},
		{cased, `{}`, `{"model_type":"distilbert"}`, true},
		{cased, `{}`, `{"model_type":"xlm-roberta","tokenizer_class":"BertTokenizerFast"}`, true},
		{cased, `{"tokenizer_class":"PreTrainedTokenizerFast"}`,
			`{"model_type":"bert","tokenizer_class":"BertTokenizer"}`, false},
		{cased, `{"tokenizer_class":"TokenizersBackend"}`,
			`{"model_type":"bert","tokenizer_class":"BertTokenizer"}`, false},
	} {
		tok := loadDir(t, modelDir(t, map[string]string{
			"tokenizer.json": c.file, "tokenizer_config.json": c.config, "config.json": c.model,
		}))
		var b Batch
		must(tok.Encode(&b, []string{"HELLO", "hello"}, Options{}))
		if lower := slices.Equal(b.Text(0), b.Text(1)); lower != c.lower {
			t.Errorf("%s beside %s: lower case %v, want %v", c.config, c.model, lower, c.lower)
		}
	}
}

// The side on which a text is cut may stand in tokenizer.json alone: a tokenizer that has cut texts
// is saved so. tokenizer_config.json wins.
func TestTokenizerJSONSaysTheSide(t *testing.T) {
	for _, c := range []struct {
		truncation, config string
		left               bool
	}{
		{`"LongestFirst","direction":"Left"`, `{}`, true},
		{`"LongestFirst","direction":"Left"`, `{"tokenizer_class":"BertTokenizer"}`, true},
		{`"LongestFirst","direction":"Left"`, `{"truncation_side":"right"}`, false},
		{`"LongestFirst","direction":"Right"`, `{}`, false},
		{`"LongestFirst","direction":"Right"`, `{"truncation_side":"left"}`, true},
		{`"LongestFirst"`, `{}`, false},
	} {
		file := strings.Replace(minilmFile("tokenizer.json"), `"LongestFirst"`, c.truncation, 1)
		file = strings.Replace(file, `"direction":"Right","pad_to`, `"direction":"Left","pad_to`, 1)
		tok := loadDir(t, modelDir(t, map[string]string{"tokenizer.json": file,
			"tokenizer_config.json": c.config}))
		var cut, whole Batch
		must(tok.Encode(&cut, []string{"hello the world"}, Options{MaxTokens: 4}))
		must(tok.Encode(&whole, []string{"hello the", "the world"}, Options{}))
		if want := whole.Text(map[bool]int{false: 0, true: 1}[c.left]); !slices.Equal(cut.IDs, want) {
			t.Errorf("%s and %s: %v, want %v", c.truncation, c.config, cut.IDs, want)
		}
	}
}

// A model gets the types of tokens where its files list them among its inputs, or have no list.
func TestGivesTypes(t *testing.T) {
	for config, want := range map[string]bool{
		`{}`:                                  true,
		`{"tokenizer_class":"BertTokenizer"}`: true,
		`{"tokenizer_class":"PreTrainedTokenizerFast"}`:                                              true,
		`{"tokenizer_class":"TokenizersBackend"}`:                                                    false,
		`{"model_input_names":["input_ids","attention_mask"]}`:                                       false,
		`{"tokenizer_class":"BertTokenizer","model_input_names":["input_ids"]}`:                      false,
		`{"model_input_names":["input_ids","token_type_ids","attention_mask"]}`:                      true,
		`{"tokenizer_class":"TokenizersBackend","model_input_names":["input_ids","token_type_ids"]}`: true,
	} {
		tok := loadDir(t, modelDir(t, map[string]string{"tokenizer.json": minilmFile("tokenizer.json"),
			"tokenizer_config.json": config}))
		if got := tok.GivesTypes(); got != want {
			t.Errorf("%s: %v, want %v", config, got, want)
		}
	}
}

// Where tokenizer_config.json lists a token, its flags are those of the list, whatever
// tokenizer.json says; without a list tokenizer.json's count.
func TestListedFlagsOfTokens(t *testing.T) {
	const mask = `{"103":{"content":"[MASK]","lstrip":false,"rstrip":false,"normalized":%v,` +
		`"single_word":%v,"special":true}}`
	listed := func(normalized, alone bool) string {
		return `{"added_tokens_decoder":` + fmt.Sprintf(mask, normalized, alone) + `}`
	}
	for _, c := range []struct {
		config, text, same string // tokens of both texts are the same
	}{
		{listed(false, false), "a[MASK]b", "a [MASK] b"},
		{listed(false, true), "a[MASK]b", "a [ mask ] b"},
		{listed(true, false), "[mask]", "[MASK]"},
		{listed(false, false), "[mask]", "[ mask ]"},
		{`{"mask_token":{"content":"[MASK]","single_word":true}}`, "a[MASK]b", "a [MASK] b"},
	} {
		tok := loadDir(t, modelDir(t, map[string]string{"tokenizer.json": minilmFile("tokenizer.json"),
			"tokenizer_config.json": c.config}))
		var b Batch
		must(tok.Encode(&b, []string{c.text, c.same}, Options{}))
		if !slices.Equal(b.Text(0), b.Text(1)) {
			t.Errorf("%s: %q is %v, and %q is %v", c.config, c.text, b.Text(0), c.same, b.Text(1))
		}
	}
	plain := strings.Replace(listed(false, false), `"special":true`, `"special":false`, 1)
	tok := loadDir(t, modelDir(t, map[string]string{"tokenizer.json": minilmFile("tokenizer.json"),
		"tokenizer_config.json": plain}))
	if text, err := tok.Decode([]int32{103}); text != "" || err != nil {
		t.Errorf("a special token is none any more: %q, %v", text, err)
	}
}

// Special tokens in a text are text where the configuration says so, in BERT's tokenizers too,
// which have a pass of their own; those around a text stay.
func TestSplitSpecialTokensOfBERT(t *testing.T) {
	const text, words = "a [SEP] b [CLS]", "a [ sep ] b [ cls ]"
	for config, split := range map[string]bool{`{}`: false, `{"split_special_tokens":true}`: true} {
		tok := loadDir(t, modelDir(t, map[string]string{"tokenizer.json": minilmFile("tokenizer.json"),
			"tokenizer_config.json": config}))
		var b, pair Batch
		must(tok.Encode(&b, []string{text, words}, Options{}))
		must(tok.EncodePairs(&pair, []string{text}, []string{text}, Options{}))
		placed, err := tok.EncodeSpans(t.Context(), []string{text}, Options{})
		must(err)
		if slices.Equal(b.Text(0), b.Text(1)) != split || !slices.Equal(placed[0].IDs(), b.Text(0)) ||
			len(pair.IDs) != 2*len(b.Text(0))-1 || b.IDs[0] != 101 {
			t.Errorf("%s: %v, of words %v; spans %v, a pair %v", config, b.Text(0), b.Text(1),
				placed[0].IDs(), pair.IDs)
		}
	}
}
