package tokenizer

import (
	"strings"
)

// qwenPattern splits texts for Qwen 2 and 3.
const qwenPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
	`\s*[\r\n]+|\s+(?!\S)|\s+`

// mark is SentencePiece's space.
const mark = "\u2581"

func tokenPart(token string, kind int) m { return m{"SpecialToken": m{"id": token, "type_id": kind}} }
func textPart(id string, kind int) m     { return m{"Sequence": m{"id": id, "type_id": kind}} }

// template returns a post-processor that puts these around one text and around a pair.
func (v *vocabulary) template(single, pair []m, tokens ...string) (m, error) {
	ids, err := v.need(tokens...)
	if err != nil {
		return nil, err
	}
	used := m{}
	for i, t := range tokens {
		used[t] = m{"id": t, "ids": []int{ids[i]}, "tokens": []string{t}}
	}
	return m{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": used}, nil
}

// frame returns the post-processor "open A close" and "open A close middle B close", with the given
// type for the second text.
func (v *vocabulary) frame(open, close string, doubled bool, second int) (m, error) {
	single := []m{tokenPart(open, 0), textPart("A", 0), tokenPart(close, 0)}
	pair := single[:3:3]
	if doubled {
		pair = append(pair, tokenPart(close, 0))
	}
	pair = append(pair, textPart("B", second), tokenPart(close, second))
	return v.template(single, pair, open, close)
}

// ends returns the post-processor of the settings add_bos_token and add_eos_token.
func (v *vocabulary) ends(set *settings) (m, error) {
	var single, pair []m
	var tokens []string
	for i, text := range []string{"A", "B"} {
		var part []m
		if set.AddBOS && set.BOS.Content != "" {
			part = append(part, tokenPart(set.BOS.Content, i))
		}
		part = append(part, textPart(text, i))
		if set.AddEOS && set.EOS.Content != "" {
			part = append(part, tokenPart(set.EOS.Content, i))
		}
		if i == 0 {
			single = part
		}
		pair = append(pair, part...)
	}
	if set.AddBOS && set.BOS.Content != "" {
		tokens = append(tokens, set.BOS.Content)
	}
	if set.AddEOS && set.EOS.Content != "" {
		tokens = append(tokens, set.EOS.Content)
	}
	return v.template(single, pair, tokens...)
}

func buildBERT(v *vocabulary, set *settings) (err error) {
	if err := v.wordPiece(set); err != nil {
		return err
	}
	v.postProcessor, err = v.frame(set.CLS.Content, set.SEP.Content, false, 1)
	return err
}

func buildMPNet(v *vocabulary, set *settings) (err error) {
	if err := v.wordPiece(set); err != nil {
		return err
	}
	v.postProcessor, err = v.roberta(set, true, false)
	return err
}

// wordPiece sets all but the post-processor of a BERT tokenizer.
func (v *vocabulary) wordPiece(set *settings) error {
	if err := v.addTokens(set); err != nil {
		return err
	}
	if _, err := v.need(set.CLS.Content, set.SEP.Content, set.UNK.Content); err != nil {
		return err
	}
	v.normalizer = m{"type": "BertNormalizer", "clean_text": true,
		"handle_chinese_chars": or(set.Chinese, true), "strip_accents": set.StripAccents,
		"lowercase": or(set.Lowercase, true)}
	v.preTokenizer = m{"type": "BertPreTokenizer"}
	v.decoder = m{"type": "WordPiece", "prefix": "##", "cleanup": true}
	v.model = m{"type": "WordPiece", "unk_token": set.UNK.Content, "continuing_subword_prefix": "##",
		"max_input_chars_per_word": 100, "vocab": v.own}
	return nil
}

func (v *vocabulary) roberta(set *settings, trim, space bool) (m, error) {
	ids, err := v.need(set.SEP.Content, set.CLS.Content)
	if err != nil {
		return nil, err
	}
	return m{"type": "RobertaProcessing", "sep": []any{set.SEP.Content, ids[0]},
		"cls": []any{set.CLS.Content, ids[1]}, "trim_offsets": trim, "add_prefix_space": space}, nil
}

func byteLevel(space, split bool) m {
	return m{"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": split}
}

// bpe sets all but the post-processor of GPT-2's tokenizer.
func (v *vocabulary) bpe(set *settings) error {
	if err := v.addTokens(set); err != nil {
		return err
	}
	v.preTokenizer = byteLevel(or(set.PrefixSpace, false), true)
	v.decoder = byteLevel(true, true)
	v.model = m{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "",
		"end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
		"vocab": v.own, "merges": v.merges}
	return nil
}

func buildRoberta(v *vocabulary, set *settings) (err error) {
	if err := v.bpe(set); err != nil {
		return err
	}
	v.postProcessor, err = v.roberta(set, or(set.TrimOffsets, true), or(set.PrefixSpace, false))
	return err
}

func buildDeberta(v *vocabulary, set *settings) (err error) {
	if err := v.bpe(set); err != nil {
		return err
	}
	v.postProcessor, err = v.frame(set.CLS.Content, set.SEP.Content, true, 0)
	return err
}

func buildGPT2(v *vocabulary, set *settings) (err error) {
	if err := v.bpe(set); err != nil {
		return err
	}
	v.postProcessor, err = v.ends(set)
	return err
}

func buildQwen2(v *vocabulary, set *settings) (err error) {
	if err := v.bpe(set); err != nil {
		return err
	}
	v.normalizer = m{"type": "NFC"}
	v.preTokenizer = m{"type": "Sequence", "pretokenizers": []m{
		{"type": "Split", "pattern": m{"Regex": qwenPattern}, "behavior": "Isolated", "invert": false},
		byteLevel(or(set.PrefixSpace, false), false)}}
	v.postProcessor, err = v.ends(set)
	return err
}

func metaspace(scheme string, split bool) m {
	return m{"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme, "split": split}
}

// unigram sets the vocabulary, the model and what SentencePiece's pipelines share.
func (v *vocabulary) unigram(set *settings, unk int, pieces [][2]any) {
	scheme := "never"
	if or(set.PrefixSpace, true) {
		scheme = "always"
	}
	v.own = make(map[string]int, len(pieces))
	for i, p := range pieces {
		v.own[p[0].(string)] = i
	}
	v.ids, v.size = clone(v.own), len(pieces)
	v.normalizer = v.charsmap()
	v.preTokenizer = m{"type": "Sequence", "pretokenizers": []m{{"type": "WhitespaceSplit"},
		metaspace(scheme, true)}}
	v.decoder = metaspace(scheme, true)
	v.model = m{"type": "Unigram", "unk_id": unk, "vocab": pieces, "byte_fallback": false}
}

// charsmap returns the normalizer of the model file, or nil.
func (v *vocabulary) charsmap() any {
	if len(v.spm.charsmap) == 0 {
		return nil
	}
	return m{"type": "Precompiled", "precompiled_charsmap": v.spm.charsmap}
}

// scored returns the pieces from a place on, after others.
func (v *vocabulary) scored(from int, first ...string) [][2]any {
	out := make([][2]any, 0, len(v.spm.pieces)+8)
	for _, t := range first {
		out = append(out, [2]any{t, 0.0})
	}
	for _, p := range v.spm.pieces[min(from, len(v.spm.pieces)):] {
		out = append(out, [2]any{p.text, float64(p.score)})
	}
	return out
}

// control returns the pieces that are found in a text as they are.
func (v *vocabulary) control() []addedToken {
	var list []addedToken
	for _, p := range v.spm.pieces {
		if p.kind == spmControl || p.kind == spmUserDefined {
			list = append(list, addedToken{Content: p.text, Special: p.kind == spmControl})
		}
	}
	return list
}

// content returns a named token's text, or the usual one.
func content(t tokenValue, usual string) string {
	if t.Content == "" {
		return usual
	}
	return t.Content
}

func buildXLMR(v *vocabulary, set *settings) (err error) {
	if err := v.wantUnigram(); err != nil {
		return err
	}
	pieces := v.scored(3, content(set.BOS, "<s>"), content(set.PAD, "<pad>"), content(set.EOS, "</s>"),
		content(set.UNK, "<unk>"))
	v.unigram(set, 3, append(pieces, [2]any{content(set.MASK, "<mask>"), 0.0}))
	if err := v.addTokens(set, v.control()...); err != nil {
		return err
	}
	v.postProcessor, err = v.frame(set.BOS.Content, set.EOS.Content, true, 0)
	return err
}

func buildCamembert(v *vocabulary, set *settings) (err error) {
	if err := v.wantUnigram(); err != nil {
		return err
	}
	pieces := v.scored(1, "<s>NOTUSED", content(set.PAD, "<pad>"), "</s>NOTUSED", content(set.UNK, "<unk>"),
		"<unk>NOTUSED")
	pieces[4][1] = -100.0
	v.unigram(set, 3, append(pieces, [2]any{content(set.MASK, "<mask>"), 0.0}))
	if err := v.addTokens(set, v.control()...); err != nil {
		return err
	}
	v.postProcessor, err = v.frame(set.BOS.Content, set.EOS.Content, true, 0)
	return err
}

func buildT5(v *vocabulary, set *settings) (err error) {
	if err := v.wantUnigram(); err != nil {
		return err
	}
	pieces, more := v.scored(0), v.control()
	for i := or(set.ExtraIDs, 100) - 1; i >= 0; i-- {
		pieces = append(pieces, [2]any{extraID(i), 0.0})
	}
	for i := range or(set.ExtraIDs, 100) {
		more = append(more, addedToken{Content: extraID(i), Special: true})
	}
	v.unigram(set, 2, pieces)
	v.preTokenizer = m{"type": "Sequence", "pretokenizers": []m{{"type": "WhitespaceSplit"},
		metaspace("always", true)}}
	v.decoder = metaspace("always", true)
	if err := v.addTokens(set, more...); err != nil {
		return err
	}
	end := tokenPart("</s>", 0)
	v.postProcessor, err = v.template([]m{textPart("A", 0), end},
		[]m{textPart("A", 0), end, textPart("B", 0), end}, "</s>")
	return err
}

func buildAlbert(v *vocabulary, set *settings) (err error) {
	if err := v.wantUnigram(); err != nil {
		return err
	}
	v.unigram(set, 1, v.scored(0))
	list := []any{replace("``", `"`), replace("''", `"`)}
	if !set.KeepAccents {
		list = append(list, m{"type": "NFKD"}, m{"type": "StripAccents"})
	}
	if or(set.Lowercase, true) {
		list = append(list, m{"type": "Lowercase"})
	}
	if c := v.charsmap(); c != nil {
		list = append(list, c)
	}
	v.normalizer = m{"type": "Sequence", "normalizers": list}
	if err := v.addTokens(set, v.control()...); err != nil {
		return err
	}
	v.postProcessor, err = v.frame("[CLS]", "[SEP]", false, 1)
	return err
}

// buildDebertaV2 follows transformers' converter, which keeps the character map that the models
// were trained with. Its class of 5.23 loses the map (docs/compatibility.md).
func buildDebertaV2(v *vocabulary, set *settings) (err error) {
	if err := v.wantUnigram(); err != nil {
		return err
	}
	v.unigram(set, v.spm.unkID, v.scored(0))
	var list []any
	if or(set.Lowercase, false) {
		list = append(list, m{"type": "Lowercase"})
	}
	list = append(list, m{"type": "Strip", "strip_left": true, "strip_right": true})
	if c := v.charsmap(); c != nil {
		list = append(list, c)
	}
	v.normalizer = m{"type": "Sequence", "normalizers": append(list,
		m{"type": "Replace", "pattern": m{"Regex": " {2,}"}, "content": " "})}
	scheme := "never"
	if or(set.PrefixSpace, true) {
		scheme = "always"
	}
	parts := []m{metaspace(scheme, true)}
	if set.SplitByPunct {
		parts = []m{{"type": "Punctuation", "behavior": "Isolated"}, parts[0]}
	}
	v.preTokenizer = m{"type": "Sequence", "pretokenizers": parts}
	if err := v.addTokens(set, v.control()...); err != nil {
		return err
	}
	v.postProcessor, err = v.frame(set.CLS.Content, set.SEP.Content, false, 1)
	return err
}

func replace(from, to string) m {
	return m{"type": "Replace", "pattern": m{"String": from}, "content": to}
}

// spmBPE sets the vocabulary and the model of a SentencePiece BPE file.
func (v *vocabulary) spmBPE(unk any) {
	v.own = make(map[string]int, len(v.spm.pieces))
	for i, p := range v.spm.pieces {
		v.own[p.text] = i
	}
	v.ids, v.size = clone(v.own), len(v.own)
	v.model = m{"type": "BPE", "dropout": nil, "unk_token": unk, "continuing_subword_prefix": nil,
		"end_of_word_suffix": nil, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
		"vocab": v.own, "merges": v.spmMerges()}
}

func buildLlama(v *vocabulary, set *settings) (err error) {
	if err := v.wantBPE(); err != nil {
		return err
	}
	v.spmBPE(nil)
	space, scheme := or(set.PrefixSpace, true), "never"
	decoders := []m{replace(mark, " "), {"type": "ByteFallback"}, {"type": "Fuse"}}
	if space {
		scheme = "first"
		if set.Legacy {
			scheme = "always"
		}
		decoders = append(decoders, m{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	v.preTokenizer = metaspace(scheme, false)
	v.decoder = m{"type": "Sequence", "decoders": decoders}
	if err := v.addTokens(set, v.control()...); err != nil {
		return err
	}
	v.postProcessor, err = v.ends(set)
	return err
}

func buildGemma(v *vocabulary, set *settings) (err error) {
	if err := v.wantBPE(); err != nil {
		return err
	}
	v.spmBPE(content(set.UNK, "<unk>"))
	v.normalizer = replace(" ", mark)
	v.preTokenizer = m{"type": "Split", "pattern": m{"String": " "}, "behavior": "MergedWithPrevious",
		"invert": false}
	v.decoder = m{"type": "Sequence", "decoders": []m{replace(mark, " "), {"type": "ByteFallback"},
		{"type": "Fuse"}}}
	if err := v.addTokens(set, v.control()...); err != nil {
		return err
	}
	v.postProcessor, err = v.ends(set)
	return err
}

func extraID(i int) string {
	var b strings.Builder
	b.WriteString("<extra_id_")
	b.WriteString(decimal(i))
	b.WriteString(">")
	return b.String()
}
