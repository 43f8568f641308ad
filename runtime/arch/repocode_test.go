package arch

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/engine"
)

// runsOwn is a part of each refusal of code.
const runsOwn = "the model runs code of its own ("

// A model that names code which the list does not have is refused when it is looked at and when it
// is loaded, also where its files could be served as they are.
func TestUnknownCodeIsRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	type change = map[string]any
	unknown := func(file, class string) string {
		return runsOwn + file + ": " + class + "); this server does not know it"
	}
	for what, c := range map[string]struct {
		file   string
		change change
		says   string
	}{
		"encoder": {configFile, change{"auto_map": change{"AutoModel": "modeling_x.BertModel"}},
			"config.json: auto_map.AutoModel: " + unknown("modeling_x.py", "BertModel")},
		"encoder and configuration": {configFile, change{"auto_map": change{
			"AutoConfig": "configuration_x.XConfig", "AutoModel": "modeling_x.XModel"}},
			unknown("configuration_x.py", "XConfig")},
		"configuration alone": {configFile,
			change{"auto_map": change{"AutoConfig": "configuration_x.BertConfig"}},
			unknown("configuration_x.py", "BertConfig")},
		"another head": {configFile, change{"auto_map": change{"AutoModelForCausalLM": "modeling_x.X"}},
			unknown("modeling_x.py", "X")},
		"another repository": {configFile, change{"auto_map": change{"AutoModel": "acme/code--modeling_x.X"}},
			unknown("acme/code: modeling_x.py", "X")},
		"a known name in another repository": {configFile,
			change{"auto_map": change{"AutoModel": "acme/jina--modeling_bert.JinaBertModel"}},
			unknown("acme/jina: modeling_bert.py", "JinaBertModel")},
		"a known name in another file": {configFile,
			change{"auto_map": change{"AutoModel": "modeling_jina.JinaBertModel"}},
			unknown("modeling_jina.py", "JinaBertModel")},
		"a folder of code": {configFile, change{"auto_map": change{"AutoModel": "code.modeling_x.X"}},
			unknown("code/modeling_x.py", "X")},
		"a class as a list": {configFile, change{"auto_map": change{"AutoTokenizer": []any{nil, "tok_x.X"}}},
			unknown("tok_x.py", "X")},
		"known beside another type": {configFile,
			change{"auto_map": change{"AutoModel": "modeling.NewModel"}},
			runsOwn + `modeling.py: NewModel); this server ` +
				`knows it beside the model_type new only, and this is "bert"`},
		"known and not served": {configFile, change{"auto_map": change{
			"AutoConfig":           "configuration_bert.BertConfig",
			"AutoModelForMaskedLM": "bert_layers.BertForMaskedLM"}},
			runsOwn + "configuration_bert.py: BertConfig); " +
				"this server knows it and does not serve it: " +
				"it is BERT with ALiBi"},
		"Jina's BERT": {configFile, change{"position_embedding_type": "alibi", "auto_map": change{
			"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"}}, "feed_forward_type: is"},
		"Jina's BERT without its key": {configFile, change{"auto_map": change{
			"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"}},
			"knows it where position_embedding_type is alibi, and here it is"},
		"a module's name as a model": {configFile,
			change{"auto_map": change{"AutoModel": "custom_st.Transformer"}},
			runsOwn + "custom_st.py: Transformer)"},
		"no class": {configFile, change{"auto_map": change{"AutoModel": "BertModel"}},
			"BertModel, which is no class"},
		"a number": {configFile, change{"auto_map": change{"AutoModel": 7}}, "is 7, which is no class"},
		"null":     {configFile, change{"auto_map": change{"AutoModel": nil}}, "which is no class"},
		"no map":   {configFile, change{"auto_map": "modeling_x.X"}, "config.json: auto_map: must be a map"},
		"tokenizer": {tokenizerFile, change{"auto_map": change{"AutoTokenizer": []any{"tok_x.X", nil}}},
			"tokenizer_config.json: auto_map.AutoTokenizer: " + unknown("tok_x.py", "X")},
		"tokenizer of an old release": {tokenizerFile, change{"auto_map": []any{"tok_x.X", nil}},
			unknown("tok_x.py", "X")},
	} {
		dir := edit(t, golden.Open(t, "st-mean").Dir, c.file, c.change)
		refused(t, dev, dir, what, c.says)
		_, _, err := Detect(dir)
		if strings.HasPrefix(c.says, "feed_") { // the list has it; BERT's files are not its files
			if err != nil {
				t.Errorf("%s: Detect: %v", what, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: Detect: %v; want %q", what, err, c.says)
		}
	}
}

// A module that is not sentence-transformers' own is refused, whatever its class is called.
func TestUnknownModulesAreRefused(t *testing.T) {
	dev := open(t, engine.Options{Threads: 1})
	const pooling = `{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}`
	for what, c := range map[string]struct{ list, says string }{
		"Transformer": {`[{"path":"","type":"custom_st.Transformer"},` + pooling + `]`,
			"modules.json: type: " + runsOwn + "custom_st.py: Transformer); this server does not know it"},
		"Normalize": {`[{"path":"","type":"sentence_transformers.models.Transformer"},` + pooling +
			`,{"path":"","type":"pooling.Normalize"}]`, runsOwn + "pooling.py: Normalize)"},
		"another package": {`[{"path":"","type":"sentence_transformersx.models.Transformer"},` + pooling + `]`,
			runsOwn + "sentence_transformersx/models.py: Transformer)"},
		"another repository": {`[{"path":"","type":"acme/x--custom_st.Transformer"},` + pooling + `]`,
			runsOwn + "acme/x: custom_st.py: Transformer)"},
		"no package": {`[{"path":"","type":"Transformer"},` + pooling + `]`,
			`"Transformer" is no class of sentence-transformers`},
	} {
		dir := edit(t, golden.Open(t, "st-mean").Dir, configFile, nil)
		write(t, filepath.Join(dir, modulesFile), []byte(c.list))
		write(t, filepath.Join(dir, "custom_st.py"), []byte("raise SystemExit('was run')"))
		refused(t, dev, dir, what, c.says)
		if _, _, err := Detect(dir); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: Detect: %v; want %q", what, err, c.says)
		}
	}
}

// What published repositories name is known, and says which architecture computes it.
func TestPublishedCode(t *testing.T) {
	const new, flash = "Alibaba-NLP/new-impl--", "jinaai/xlm-roberta-flash-implementation--"
	for id, c := range map[string]struct{ config, auto, want string }{
		"gte-multilingual-base": {`{"model_type":"new","auto_map":{
			"AutoConfig":"` + new + `configuration.NewConfig","AutoModel":"` + new + `modeling.NewModel",
			"AutoModelForMaskedLM":"` + new + `modeling.NewForMaskedLM"}}`,
			"AutoModel", "new"},
		"arctic-embed-m-v2.0": {`{"model_type":"gte","auto_map":{"AutoConfig":
			"configuration_hf_alibaba_nlp_gte.GteConfig","AutoModel":"modeling_hf_alibaba_nlp_gte.GteModel"}}`,
			"AutoModel", "gte"},
		"nomic-embed-text-v1.5": {`{"model_type":"nomic_bert","auto_map":{"AutoModel":
			"nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}}`, "AutoModel", "nomic_bert"},
		"jina-embeddings-v2-base-en": {`{"model_type":"bert","position_embedding_type":"alibi","auto_map":{
			"AutoConfig":"jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig"}}`,
			"AutoModel", "jina-bert"},
		"jina-embeddings-v2-base-code": {`{"model_type":"bert","position_embedding_type":"alibi","auto_map":{
			"AutoModel":"jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"}}`,
			"AutoModel", "jina-bert-qk-norm"},
		"jina-embeddings-v3": {`{"model_type":"xlm-roberta","auto_map":{
			"AutoConfig":"` + flash + `configuration_xlm_roberta.XLMRobertaFlashConfig",
			"AutoModel":"` + flash + `modeling_lora.XLMRobertaLoRA",
			"AutoModelForMaskedLM":"` + flash + `modeling_xlm_roberta.XLMRobertaForMaskedLM"}}`,
			"AutoModel", "jina-xlm-roberta-tasks"},
		"jina-reranker-v2, which has no model_type": {`{"auto_map":{
			"AutoConfig":"configuration_xlm_roberta.XLMRobertaFlashConfig",
			"AutoModel":"modeling_xlm_roberta.XLMRobertaModel",
			"AutoModelForSequenceClassification":"modeling_xlm_roberta.XLMRobertaForSequenceClassification"}}`,
			"AutoModelForSequenceClassification", "jina-xlm-roberta"},
		"its masked head": {`{"model_type":"xlm-roberta","auto_map":{
			"AutoModel":"` + flash + `modeling_lora.XLMRobertaLoRA",
			"AutoModelForMaskedLM":"` + flash + `modeling_xlm_roberta.XLMRobertaForMaskedLM"}}`,
			"AutoModelForMaskedLM", "jina-xlm-roberta"},
		"gte-Qwen2-1.5B-instruct": {`{"model_type":"qwen2","is_causal":false,"auto_map":{
			"AutoModel":"modeling_qwen.Qwen2Model","AutoModelForCausalLM":"modeling_qwen.Qwen2ForCausalLM"}}`,
			"AutoModel", "qwen2-bidirectional"},
		"plain":        {`{"model_type":"qwen2"}`, "AutoModel", "qwen2"},
		"an empty map": {`{"model_type":"bert","auto_map":{}}`, "AutoModel", "bert"},
		"no map":       {`{"model_type":"bert","auto_map":null}`, "AutoModel", "bert"},
	} {
		tree := fstest.MapFS{configFile: {Data: []byte(c.config)}}
		if got, err := readCode(tree, "", c.auto); got != c.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", id, got, err, c.want)
		}
	}
	tree := fstest.MapFS{configFile: {Data: []byte(
		`{"model_type":"xlm-roberta","auto_map":{"AutoModel":"` + flash +
			`modeling_lora.XLMRobertaLoRA"}}`)},
		modulesFile: {Data: []byte(`[{"path":"","type":"custom_st.Transformer"}]`)}}
	if _, err := readCode(tree, "", autoEncoder); err != nil {
		t.Errorf("the module of jina-embeddings-v3: %v", err)
	}
}

// Code that lies in the directory must be a published version where the list names these.
func TestVersionOfCode(t *testing.T) {
	tree := fstest.MapFS{configFile: {Data: []byte(
		`{"model_type":"gte","auto_map":{"AutoModel":"modeling_hf_alibaba_nlp_gte.GteModel"}}`)}}
	if _, err := readCode(tree, "", autoEncoder); err != nil {
		t.Errorf("without the file: %v", err)
	}
	tree["modeling_hf_alibaba_nlp_gte.py"] = &fstest.MapFile{Data: []byte("class GteModel: pass\n")}
	_, err := readCode(tree, "", autoEncoder)
	if err == nil || !strings.Contains(err.Error(), "knows another version of the file (git blob 63c0975e") {
		t.Errorf("with a changed file: %v", err)
	}
	// as git hash-object says
	if got := gitBlob([]byte("hello\n")); got != "ce013625030ba8dba906f756967f9e9ca394464a" {
		t.Errorf("git blob %s", got)
	}
}

// A known class behind a key for what it does not give is refused: as the encoder it would give
// logits, or nothing at all.
func TestClassesGiveWhatTheirKeysAreFor(t *testing.T) {
	const sequence, masked = "AutoModelForSequenceClassification", "AutoModelForMaskedLM"
	for _, c := range []struct {
		auto, key, class string
		known            bool
	}{
		{autoEncoder, autoEncoder, "modeling.NewModel", true},
		{autoEncoder, autoEncoder, "modeling.NewForTokenClassification", false},
		{autoEncoder, autoEncoder, "configuration.NewConfig", false},
		{sequence, sequence, "modeling.NewForSequenceClassification", true},
		{sequence, sequence, "modeling.NewForTokenClassification", false},
		{sequence, sequence, "modeling.NewModel", false},
		{sequence, autoEncoder, "modeling.NewForSequenceClassification", false},
		{autoEncoder, masked, "modeling.NewForTokenClassification", true}, // nothing loads it
		{"GLiNER", autoEncoder, "modeling.NewModel", true},
	} {
		tree := fstest.MapFS{configFile: {Data: []byte(
			`{"model_type":"new","auto_map":{"` + c.key + `":"` + c.class + `"}}`)}}
		_, err := readCode(tree, "", c.auto)
		if known := err == nil; known != c.known {
			t.Errorf("for %s, %s: %s: %v", c.auto, c.key, c.class, err)
		} else if !known && !strings.Contains(err.Error(), "does not know what it gives") {
			t.Error(err)
		}
	}
	tree := fstest.MapFS{configFile: {Data: []byte(`{"model_type":"nomic_bert","auto_map":{"` + masked +
		`":"modeling_hf_nomic_bert.NomicBertForPreTraining"}}`)}}
	if _, err := readCode(tree, "", masked); err != nil {
		t.Errorf("Nomic's: %v", err)
	}
}

// A tokenizer in a directory of its own is looked at by its files alone.
func TestCheckTokenizer(t *testing.T) {
	const qwen = `{"add_eos_token":true,"auto_map":{"AutoTokenizer":["tokenization_qwen.Qwen2Tokenizer",null]}}`
	for _, c := range []struct{ config, tokenizer, says string }{
		{"", "", ""},
		{`{"model_type":"bert","auto_map":{"AutoModel":"modeling_x.X"}}`, `{}`, ""}, // not run for it
		{`{"model_type":"bert","auto_map":{"AutoTokenizer":"tok_x.X"}}`, `{}`, "tok_x.py: X"},
		{`{"model_type":"qwen2"}`, qwen, ""},
		{`{"model_type":"bert"}`, qwen, "beside the model_type qwen2 only"},
		{`{"model_type":"bert"}`, `{"auto_map":["tok_x.X",null]}`, "tok_x.py: X"},
		{`[]`, `{}`, "config.json"},
	} {
		dir := t.TempDir()
		if c.config != "" {
			write(t, filepath.Join(dir, configFile), []byte(c.config))
			write(t, filepath.Join(dir, tokenizerFile), []byte(c.tokenizer))
		}
		err := CheckTokenizer(dir)
		if refused := err != nil; refused != (c.says != "") ||
			refused && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, %s: %v; want %q", c.config, c.tokenizer, err, c.says)
		}
	}
}

// The list contradicts itself nowhere: a class in one file has one meaning beside one model_type.
func TestKnownClasses(t *testing.T) {
	seen := map[string]int{}
	for i, k := range knownClasses {
		isModule := k.beside != nil
		if !strings.HasSuffix(k.file, ".py") || len(k.classes) == 0 || isModule == (len(k.types) > 0) {
			t.Errorf("entry %d: %+v", i, k)
		}
		for _, class := range k.classes {
			for _, modelType := range k.types {
				for _, repo := range append(slices.Clone(k.repos), "") {
					if repo == "" && k.elsewhere {
						continue
					}
					at := strings.Join([]string{repo, k.file, class, modelType}, " ")
					if first, twice := seen[at]; twice {
						t.Errorf("%s: entries %d and %d", at, first, i)
					}
					seen[at] = i
				}
			}
		}
	}
}
