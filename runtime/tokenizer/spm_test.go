package tokenizer

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// spmFile encodes a SentencePiece model of these pieces; more is appended.
func spmFile(kind uint64, pieces []spmPiece, more ...byte) []byte {
	var out []byte
	for _, p := range pieces {
		var b []byte
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendString(b, p.text)
		b = protowire.AppendTag(b, 2, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, math.Float32bits(p.score))
		b = protowire.AppendTag(b, 3, protowire.VarintType)
		b = protowire.AppendVarint(b, p.kind)
		out = protowire.AppendTag(out, 1, protowire.BytesType)
		out = protowire.AppendBytes(out, b)
	}
	trainer := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), kind)
	out = protowire.AppendTag(out, 2, protowire.BytesType)
	return append(protowire.AppendBytes(out, trainer), more...)
}

// smallSPM has the pieces that a RoBERTa vocabulary begins with.
func smallSPM() []spmPiece {
	return []spmPiece{{"<unk>", 0, 2}, {"<s>", 0, 3}, {"</s>", 0, 3}, {mark, -1, 1}, {"a", -2, 1},
		{mark + "a", -1.5, 1}}
}

func tagged(number protowire.Number, kind protowire.Type, value ...byte) []byte {
	return append(protowire.AppendTag(nil, number, kind), value...)
}

func inTrainer(field ...byte) []byte {
	return append(tagged(2, protowire.BytesType, byte(len(field))), field...)
}

func TestReadSPM(t *testing.T) {
	more := inTrainer(append(tagged(35, protowire.VarintType, 1), tagged(40, protowire.VarintType, 2)...)...)
	m, err := readSPM(spmFile(2, smallSPM(), more...))
	if err != nil {
		t.Fatal(err)
	}
	if !m.bpe || !m.byteFallback || m.unkID != 2 || len(m.pieces) != 6 || m.pieces[5].text != mark+"a" ||
		m.pieces[5].score != -1.5 || m.pieces[1].kind != spmControl {
		t.Errorf("%+v", m)
	}
}

func TestReadSPMErrorsNameTheField(t *testing.T) {
	with := func(p spmPiece) []byte { return spmFile(1, append(smallSPM(), p)) }
	whole := slices.Clip(spmFile(1, smallSPM()))
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":          {nil, "pieces: there are none"},
		"text":           {[]byte("{\"model\": 1}"), "not a SentencePiece model"},
		"cut":            {whole[:len(whole)-1], "field 2, byte"},
		"cut in a piece": {whole[:29], "field 1, byte"},
		"length of 2^60": {
			append([]byte{0x0a}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f),
			"field 1, byte 0",
		},
		"inner length lies": {append(whole, 0x0a, 2, 0x0a, 0x7f), "pieces[6], field 1, byte 0"},
		"endless varint": {
			append(whole, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
			"byte",
		},
		"group":           {append(whole, 0x0b), "byte"},
		"deep groups":     {append(whole, []byte(strings.Repeat("\x0b", 1<<20))...), "byte"},
		"wrong wire type": {append(whole, 0x08, 1), "pieces[6] has wire type"},
		"score of 8 bytes": {
			append(whole, 0x0a, 9, 0x11, 0, 0, 0, 0, 0, 0, 0, 0),
			"pieces[6].score has wire type 1",
		},
		"duplicate":   {with(spmPiece{"a", -3, 1}), `pieces[6].piece: "a" is also pieces[4]`},
		"empty piece": {with(spmPiece{"", -3, 1}), "pieces[6].piece is empty"},
		"long piece": {
			with(spmPiece{strings.Repeat("x", 2000), -3, 1}),
			"pieces[6].piece has 2000 bytes",
		},
		"not UTF-8":     {with(spmPiece{"\xff", -3, 1}), "pieces[6].piece is not UTF-8"},
		"NaN":           {with(spmPiece{"b", float32(math.NaN()), 1}), "pieces[6].score is NaN"},
		"infinite":      {with(spmPiece{"b", float32(math.Inf(-1)), 1}), "pieces[6].score is -Inf"},
		"kind":          {with(spmPiece{"b", 1, 9}), "pieces[6].type is 9"},
		"word model":    {spmFile(3, smallSPM()), "trainer_spec.model_type is word"},
		"unknown model": {spmFile(77, smallSPM()), "trainer_spec.model_type is 77"},
		"unk_id": {
			append(whole, inTrainer(tagged(40, protowire.VarintType, 99)...)...),
			"trainer_spec.unk_id is 99",
		},
		"suffix": {
			append(whole, inTrainer(tagged(24, protowire.VarintType, 1)...)...),
			"treat_whitespace_as_suffix",
		},
		"spaces": {
			slices.Concat(whole, tagged(3, protowire.BytesType, 2), tagged(5, protowire.VarintType, 0)),
			"escape_whitespaces",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readSPM(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v does not mention %q", err, c.want)
			}
		})
	}
}

func TestFileErrorsNameFileAndField(t *testing.T) {
	vocab := `{"<s>":0,"<pad>":1,"</s>":2,"<unk>":3,"a":4,"b":5,"ab":6}`
	roberta := `{"tokenizer_class":"RobertaTokenizer"}`
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"no merges": {map[string]string{"vocab.json": vocab, "tokenizer_config.json": roberta},
			[]string{"merges.txt is missing"}},
		"unknown token": {map[string]string{"vocab.json": vocab, "merges.txt": "#version: 0.2\na b\na c\n",
			"tokenizer_config.json": roberta}, []string{"merges.txt:3", `"c"`, "vocab.json"}},
		"unknown result": {map[string]string{"vocab.json": vocab, "merges.txt": "b a\n",
			"tokenizer_config.json": roberta}, []string{"merges.txt:1", `"ba"`}},
		"duplicate merge": {map[string]string{"vocab.json": vocab, "merges.txt": "a b\na b\n",
			"tokenizer_config.json": roberta}, []string{"merges.txt:2", "also line 1"}},
		"three parts": {map[string]string{"vocab.json": vocab, "merges.txt": "a b c\n",
			"tokenizer_config.json": roberta}, []string{"merges.txt:1", "no merge"}},
		"endless line": {map[string]string{"vocab.json": vocab, "merges.txt": strings.Repeat("a", 2<<20),
			"tokenizer_config.json": roberta}, []string{"merges.txt:1", "too long"}},
		"duplicate token": {map[string]string{"vocab.json": `{"a":0,"b":1,"a":2}`, "merges.txt": "",
			"tokenizer_config.json": roberta}, []string{"vocab.json", `"a" stands twice`}},
		"duplicate id": {map[string]string{"vocab.json": `{"a":0,"b":0}`, "merges.txt": "",
			"tokenizer_config.json": roberta}, []string{"vocab.json", `"a" and "b"`, "id 0"}},
		"negative id": {map[string]string{"vocab.json": `{"a":-1}`, "merges.txt": "",
			"tokenizer_config.json": roberta}, []string{"vocab.json", `"a" has the id -1`}},
		"id of a fraction": {map[string]string{"vocab.json": `{"a":1.5}`, "merges.txt": "",
			"tokenizer_config.json": roberta}, []string{"vocab.json", `"a"`, "1.5"}},
		"a list": {map[string]string{"vocab.json": `["a"]`, "merges.txt": "",
			"tokenizer_config.json": roberta}, []string{"vocab.json", "object"}},
		"no special token": {map[string]string{"vocab.json": `{"a":0}`, "merges.txt": "",
			"tokenizer_config.json": roberta}, []string{"vocab.json", `"</s>"`, "RobertaTokenizer"}},
		"gaps": {map[string]string{"vocab.json": `{"<s>":0,"</s>":1,"<pad>":2,"<unk>":3,"<mask>":5}`,
			"merges.txt":            "",
			"tokenizer_config.json": `{"tokenizer_class":"RobertaTokenizer","additional_special_tokens":["<x>"]}`},
			[]string{"vocab.json", `"<x>"`, "id 5", `"<mask>"`, "gaps"}},
		"no class": {map[string]string{"vocab.json": vocab, "merges.txt": ""},
			[]string{"vocab.json", "tokenizer_class", "RobertaTokenizer", "Qwen2Tokenizer"}},
		"unknown model type": {map[string]string{"spiece.model": "x",
			"config.json": `{"model_type":"xlnet"}`},
			[]string{"spiece.model", `"xlnet"`, "T5Tokenizer"}},
		"file of another class": {map[string]string{"vocab.txt": "a\n", "tokenizer_config.json": roberta},
			[]string{"vocab.json", "RobertaTokenizer", "vocab.txt"}},
		"broken model": {map[string]string{"spm.model": "\x0a\xff"}, []string{"spm.model", "SentencePiece"}},
		"tiktoken": {map[string]string{"tokenizer.model": "IQ== 0\nIg== 1\n",
			"config.json": `{"model_type":"llama"}`}, []string{"tokenizer.model", "tiktoken"}},
		"unigram for Llama": {map[string]string{"tokenizer.model": string(spmFile(1, smallSPM())),
			"config.json": `{"model_type":"llama"}`},
			[]string{"tokenizer.model", "model_type is unigram", "bpe"}},
		"BPE for RoBERTa": {map[string]string{"sentencepiece.bpe.model": string(spmFile(2, smallSPM()))},
			[]string{"sentencepiece.bpe.model", "model_type is bpe", "unigram"}},
		"charsmap": {map[string]string{"sentencepiece.bpe.model": string(spmFile(1, smallSPM(),
			append(tagged(3, protowire.BytesType, 4), tagged(2, protowire.BytesType, 2, 9, 9)...)...))},
			[]string{"sentencepiece.bpe.model", "normalizer_spec.precompiled_charsmap"}},
		"added ids": {map[string]string{"vocab.json": vocab, "merges.txt": "",
			"tokenizer_config.json": `{"added_tokens_decoder":{"x":{"content":"y"}}}`},
			[]string{"tokenizer_config.json", "added_tokens_decoder", `"x"`}},
		"wrong type": {map[string]string{"vocab.json": vocab, "merges.txt": "",
			"tokenizer_config.json": `{"add_bos_token":"yes"}`},
			[]string{"tokenizer_config.json", "add_bos_token"}},
		"extra_ids": {map[string]string{"spiece.model": "x",
			"tokenizer_config.json": `{"extra_ids":1000000000}`},
			[]string{"tokenizer_config.json", "extra_ids is 1000000000", "65536"}},
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
}

// A file above the limit is refused by its size, before anything is read.
func TestHugeFilesAreNotRead(t *testing.T) {
	for _, name := range append([]string{"tokenizer.json", "vocab.json", "vocab.txt"}, spmFiles...) {
		dir := modelDir(t, map[string]string{name: "", "tokenizer_config.json": `{"tokenizer_class":"` +
			map[string]string{"vocab.json": "GPT2", "vocab.txt": "Bert"}[name] + `Tokenizer"}`})
		if strings.HasSuffix(name, ".model") {
			must(os.WriteFile(filepath.Join(dir, "tokenizer_config.json"),
				[]byte(`{"tokenizer_class":"T5Tokenizer"}`), 0o600))
		}
		must(os.Truncate(filepath.Join(dir, name), 2<<30))
		_, err := Load(dir)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "limit") {
			t.Errorf("%s of 2 GB: %v", name, err)
		}
	}
}

// A vocabulary that the reader accepts makes a tokenizer, or an error; its ids are below VocabSize.
func FuzzSentencePiece(f *testing.F) {
	f.Add(spmFile(1, smallSPM()), byte(0))
	f.Add(spmFile(2, smallSPM()), byte(3))
	f.Add(append(spmFile(1, smallSPM()), 0x0a, 0xff, 0xff, 0x03), byte(1))
	for _, family := range []string{"mistral", "gemma"} {
		f.Add(kept(family, "tokenizer.model")[:4000], byte(4))
	}
	classes := []string{"XLMRobertaTokenizer", "T5Tokenizer", "DebertaV2Tokenizer", "LlamaTokenizer",
		"GemmaTokenizer", "AlbertTokenizer", "CamembertTokenizer"}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, class byte) {
		model, err := readSPM(data)
		if err != nil {
			return
		}
		if len(model.pieces) == 0 || model.unkID < 0 || model.unkID >= len(model.pieces) {
			t.Fatalf("accepted %d pieces, unk_id %d", len(model.pieces), model.unkID)
		}
		config := `{"tokenizer_class":"` + classes[int(class)%len(classes)] + `","extra_ids":3}`
		must(os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(config), 0o600))
		must(os.WriteFile(filepath.Join(dir, "tokenizer.model"), data, 0o600))
		tok, err := Load(dir)
		if err != nil {
			return
		}
		defer tok.Close()
		var b Batch
		if err := tok.Encode(&b, []string{"a <s> \u2581b caf\u00e9 \U0001f680"}, Options{}); err == nil {
			if err := tok.CheckIDs(b.IDs); err != nil {
				t.Fatal(err)
			}
		}
	})
}
