package arch

// knownClasses lists the classes in published repositories' code whose computation this server
// knows, by module file and class name, and by repository where models take the file from another.
// To add a class, read its code; write down what it computes and beside which model_type; and name
// the architecture here that computes the same. An architecture of that name may come later: until
// then the model is refused. The classes of NV-Embed and Nemotron were compared with copies of
// their files in public repositories. The rows of GritLM and zeranker were written without their
// files at hand: whoever adds their architecture reads those first.
var knownClasses = []knownClass{
	// GTE: rotary positions and gated layers.
	{file: "configuration.py", classes: []string{"NewConfig"}, repos: newImpl, types: []string{"new"}},
	{file: "modeling.py", classes: classesOf("New"), repos: newImpl, types: []string{"new"}},
	{file: "configuration_hf_alibaba_nlp_gte.py", classes: []string{"GteConfig"}, repos: arctic,
		types: []string{"gte"}, blobs: []string{"d816ed663a58404f966fe322cd113ac39a957686"}},
	{file: "modeling_hf_alibaba_nlp_gte.py", classes: classesOf("Gte"), repos: arctic,
		types: []string{"gte"}, blobs: []string{"63c0975e09b5631b564170d2ecb7985c5d8dd189"}},

	// Nomic BERT, with experts where the configuration has them.
	{file: "configuration_hf_nomic_bert.py", classes: []string{"NomicBertConfig"}, repos: nomic,
		types: []string{"nomic_bert"}},
	{file: "modeling_hf_nomic_bert.py", classes: append(classesOf("NomicBert"), "NomicBertForPreTraining"),
		repos: nomic, types: []string{"nomic_bert"}},

	// Jina's BERT has ALiBi in place of positions, and gated layers. The second file normalises
	// queries and keys besides, and only its repository tells it from the first.
	{file: "configuration_bert.py", classes: []string{"JinaBertConfig"}, repos: jinaBert,
		types: []string{"bert"}, computes: "jina-bert", needs: alibi},
	{file: "modeling_bert.py", classes: classesOf("JinaBert"), repos: jinaBert,
		types: []string{"bert"}, computes: "jina-bert", needs: alibi},
	{file: "configuration_bert.py", classes: []string{"JinaBertConfig"}, repos: jinaCode, elsewhere: true,
		types: []string{"bert"}, computes: "jina-bert-qk-norm", needs: alibi},
	{file: "modeling_bert.py", classes: classesOf("JinaBert"), repos: jinaCode, elsewhere: true,
		types: []string{"bert"}, computes: "jina-bert-qk-norm", needs: alibi},

	// Jina's XLM-R fuses the projections of attention and may rotate them; with an adapter for each
	// task in jina-embeddings-v3.
	{file: "configuration_xlm_roberta.py", classes: []string{"XLMRobertaFlashConfig"}, repos: jinaXLMR,
		types: []string{"xlm-roberta"}, typeless: true, computes: "jina-xlm-roberta"},
	{file: "modeling_xlm_roberta.py", classes: append(classesOf("XLMRoberta"), "XLMRobertaForPreTraining"),
		repos: jinaXLMR, types: []string{"xlm-roberta"}, typeless: true, computes: "jina-xlm-roberta"},
	{file: "modeling_lora.py", classes: []string{"XLMRobertaLoRA"}, repos: jinaXLMR,
		types: []string{"xlm-roberta"}, typeless: true, computes: "jina-xlm-roberta-tasks"},
	{file: "custom_st.py", classes: []string{"Transformer"}, repos: []string{"jinaai/jina-embeddings-v3"},
		beside: []string{"jina-xlm-roberta-tasks"}},

	// Qwen2 in which every token sees all others, and a tokenizer that appends <|endoftext|>.
	{file: "modeling_qwen.py",
		classes: []string{"Qwen2Model", "Qwen2ForCausalLM", "Qwen2ForSequenceClassification"},
		repos:   qwen2Bidirectional,
		types:   []string{"qwen2"}, computes: "qwen2-bidirectional",
		needs: map[string]any{"is_causal": false}},
	{file: "tokenization_qwen.py",
		classes: []string{"Qwen2Tokenizer", "Qwen2TokenizerFast"},
		repos:   qwen2Bidirectional,
		types:   []string{"qwen2"}, needs: map[string]any{"add_eos_token": true}},

	// Decoders in which tokens of the text see all others.
	{file: "modeling_gritlm7b.py",
		classes: []string{"MistralModel", "MistralForCausalLM", "MistralForSequenceClassification"},
		repos:   []string{"GritLM/GritLM-7B"}, types: []string{"mistral"}, computes: "mistral-gritlm"},
	{file: "llama_bidirectional_model.py",
		classes: []string{"LlamaBidirectionalConfig", "LlamaBidirectionalModel",
			"LlamaBidirectionalForSequenceClassification"},
		repos: []string{"nvidia/llama-embed-nemotron-8b"}, types: []string{"llama_bidirec"}},

	// EuroBERT's own code, which transformers has taken over.
	{file: "configuration_eurobert.py", classes: []string{"EuroBertConfig"}, repos: euroBERT,
		types: []string{"eurobert"}},
	{file: "modeling_eurobert.py", classes: append(classesOf("EuroBert"), "EuroBertPreTrainedModel"),
		repos: euroBERT, types: []string{"eurobert"}},

	// Known, and not served.
	{file: "configuration_bert.py", classes: []string{"BertConfig"}, repos: mosaic, types: []string{"bert"},
		unserved: "it is BERT with ALiBi and gated layers"},
	{file: "bert_layers.py", classes: classesOf("Bert"), repos: mosaic, types: []string{"bert"},
		unserved: "it is BERT with ALiBi and gated layers"},
	{file: "configuration_nvembed.py",
		classes:  []string{"NVEmbedConfig", "LatentAttentionConfig", "BidirectionalMistralConfig"},
		types:    []string{"nvembed", "latent_attention", "bidir_mistral"},
		unserved: "it pools by attention to learned vectors"},
	{file: "modeling_nvembed.py",
		classes:  []string{"NVEmbedModel", "LatentAttentionModel", "BidirectionalMistralModel"},
		types:    []string{"nvembed", "latent_attention", "bidir_mistral"},
		unserved: "it pools by attention to learned vectors"},
	{file: "modeling_zeranker.py", classes: []string{"ZEConfig"}, types: []string{"qwen3", "gemma3"},
		unserved: "it replaces the way a reranker scores"},
}

// The repositories from which models take code, and what code rests on.
var (
	newImpl            = []string{"Alibaba-NLP/new-impl"}
	arctic             = []string{"Snowflake/snowflake-arctic-embed-m-v2.0"}
	nomic              = []string{"nomic-ai/nomic-bert-2048", "nomic-ai/nomic-embed-text-v2-moe"}
	jinaBert           = []string{"jinaai/jina-bert-implementation"}
	jinaCode           = []string{"jinaai/jina-bert-v2-qk-post-norm"}
	jinaXLMR           = []string{"jinaai/xlm-roberta-flash-implementation"}
	qwen2Bidirectional = []string{"Alibaba-NLP/gte-Qwen2-1.5B-instruct", "Alibaba-NLP/gte-Qwen2-7B-instruct",
		"NovaSearch/stella_en_1.5B_v5"}
	euroBERT = []string{"EuroBERT/EuroBERT-210m", "EuroBERT/EuroBERT-610m", "EuroBERT/EuroBERT-2.1B"}
	mosaic   = []string{"mosaicml/mosaic-bert-base", "zhihan1996/DNABERT-2-117M"}

	alibi = map[string]any{"position_embedding_type": "alibi"}
)

// classesOf returns the classes that a file of an encoder has, one for each head.
func classesOf(name string) []string {
	return []string{name + "Model", name + "ForMaskedLM", name + "ForMultipleChoice",
		name + "ForQuestionAnswering", name + "ForSequenceClassification", name + "ForTokenClassification"}
}
