package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// modelKind returns the type of the model in a tokenizer.json. Old files have no type; a Unigram
// model is known by its unk_id.
func modelKind(data []byte) string {
	var file struct {
		Model struct {
			Type string          `json:"type"`
			Unk  json.RawMessage `json:"unk_id"`
		} `json:"model"`
	}
	if json.Unmarshal(data, &file) == nil && file.Model.Type == "" && file.Model.Unk != nil {
		return "Unigram"
	}
	return file.Model.Type
}

// cleanups are the replacements of clean_up_tokenization_spaces, in their order.
var cleanups = [][2]string{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
	{" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}

// cleanUp removes the spaces before marks that decoded WordPiece tokens have.
func cleanUp(text string) string {
	for _, c := range cleanups {
		text = strings.ReplaceAll(text, c[0], c[1])
	}
	return text
}

// cleansUp reports whether decoded texts are cleaned up. As in transformers, BPE needs a second
// flag.
func (s *settings) cleansUp(data []byte) bool {
	return s.Cleanup && (s.CleanupBPE || modelKind(data) != "BPE")
}

// cutsLeft reports whether a text that is too long loses its start: as truncation_side says, or
// else as transformers takes it from the truncation in tokenizer.json.
func (s *settings) cutsLeft(data []byte) bool {
	left := []byte(`"Left"`)
	if s.TruncationSide != "" || !bytes.Contains(data, left) { // most files are large and have none
		return s.TruncationSide == "left"
	}
	var file struct {
		Truncation struct {
			Direction string `json:"direction"`
		} `json:"truncation"`
	}
	return json.Unmarshal(data, &file) == nil && file.Truncation.Direction == "Left"
}

// readsScores reports whether transformers reads tokenizer.json itself and hands its scores to the
// library, which rounds them better than the library's own reading.
func (s *settings) readsScores() bool {
	f := familyOf(s.reader())
	return f != nil && slices.Equal(f.files, spmFiles)
}

// byteLevelClasses lists the classes that set the prefix space of their pre-tokenizer from the
// configuration, whatever tokenizer.json says.
var byteLevelClasses = []string{"RobertaTokenizer", "BartTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer",
	"DebertaTokenizer"}

// patch changes what transformers changes in a tokenizer.json: tokens of the configuration that it
// lacks are added, those that it has get the configuration's flags, and for some classes the prefix
// space is that of the configuration. What known code of a repository changes is changed, too
// (qwencode.go).
func (s *settings) patch(path string, data []byte) ([]byte, error) {
	space := slices.Contains(byteLevelClasses, s.reader())
	ends := s.codeSetsEnds()
	if !space && !ends && s.Added == nil && len(s.addedFile) == 0 && !s.hasNamed() {
		return data, nil
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	changed := false
	if space {
		was := or(s.PrefixSpace, false)
		part, did, err := setPrefixSpace(file["pre_tokenizer"], was)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: %s: pre_tokenizer: %w", path, err)
		}
		if did {
			file["pre_tokenizer"], changed = part, true
		}
	}
	var added []addedToken
	if raw := file["added_tokens"]; raw != nil {
		if err := json.Unmarshal(raw, &added); err != nil {
			return nil, fmt.Errorf("tokenizer: %s: added_tokens: %w", path, err)
		}
	}
	if ends {
		part, err := s.codeEnds(added)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
		}
		file["post_processor"], changed = part, true
	}
	before, restated := len(added), s.restate(added)
	added = s.missing(added)
	if len(added) > maxAdded {
		return nil, fmt.Errorf("tokenizer: %s: added_tokens: %d tokens; the limit is %d", path, len(added),
			maxAdded)
	}
	if len(added) > before || restated {
		raw, err := json.Marshal(added)
		if err != nil {
			return nil, err
		}
		file["added_tokens"], changed = raw, true
	}
	if !changed {
		return data, nil
	}
	return json.Marshal(file)
}

// restate gives tokens the flags that added_tokens_decoder lists for them, and reports whether any
// were others. A special token stays special.
func (s *settings) restate(added []addedToken) (changed bool) {
	listed := make(map[string]tokenValue, len(s.Added))
	for _, t := range s.Added {
		listed[t.Content] = t
	}
	for i, was := range added {
		t, ok := listed[was.Content]
		if !ok {
			continue
		}
		now := t.added(false)
		now.ID, now.Special = was.ID, now.Special || was.Special || s.isNamed(was.Content)
		if now != was {
			added[i], changed = now, true
		}
	}
	return changed
}

func (s *settings) hasNamed() bool {
	for _, t := range s.named.all() {
		if t.Content != "" {
			return true
		}
	}
	return len(s.extra()) > 0
}

// missing returns the tokens with those of the configuration that are not among them. The library
// gives them their ids: those of the vocabulary, or the next ones.
func (s *settings) missing(added []addedToken) []addedToken {
	have := make(map[string]bool, len(added))
	for _, t := range added {
		have[t.Content] = true
	}
	add := func(t addedToken) {
		if t.Content != "" && !have[t.Content] {
			have[t.Content] = true
			added = append(added, t)
		}
	}
	for _, t := range s.listed() {
		t.Special = t.Special || s.isNamed(t.Content)
		add(t)
	}
	for _, t := range s.named.all() {
		add(t.added(true))
	}
	for _, t := range s.extra() {
		add(t.added(true))
	}
	return added
}

// addSpecial returns a tokenizer.json with special tokens that are not among its added ones.
func addSpecial(path string, data []byte, tokens []string) ([]byte, error) {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	var added []json.RawMessage
	have := map[string]bool{}
	if raw := file["added_tokens"]; raw != nil {
		if err := json.Unmarshal(raw, &added); err != nil {
			return nil, fmt.Errorf("tokenizer: %s: added_tokens: %w", path, err)
		}
	}
	for _, raw := range added {
		var t addedToken
		if err := json.Unmarshal(raw, &t); err != nil {
			return nil, fmt.Errorf("tokenizer: %s: added_tokens: %w", path, err)
		}
		have[t.Content] = true
	}
	for _, token := range tokens {
		if token == "" || have[token] {
			continue
		}
		have[token] = true
		raw, err := json.Marshal(addedToken{Content: token, Special: true})
		if err != nil {
			return nil, err
		}
		added = append(added, raw)
	}
	if len(added) > maxAdded {
		return nil, fmt.Errorf("tokenizer: %s: added_tokens: %d tokens; the limit is %d", path, len(added),
			maxAdded)
	}
	raw, err := json.Marshal(added)
	if err != nil {
		return nil, err
	}
	file["added_tokens"] = raw
	return json.Marshal(file)
}

// setPrefixSpace sets add_prefix_space of the byte-level part of a pre-tokenizer, and reports
// whether that changed it.
func setPrefixSpace(raw json.RawMessage, space bool) (json.RawMessage, bool, error) {
	var part map[string]any
	if len(raw) == 0 || raw[0] != '{' {
		return raw, false, nil
	}
	if err := json.Unmarshal(raw, &part); err != nil {
		return nil, false, err
	}
	changed := false
	set := func(v any) {
		if p, ok := v.(map[string]any); ok && p["type"] == "ByteLevel" && p["add_prefix_space"] != space {
			p["add_prefix_space"], changed = space, true
		}
	}
	set(part)
	if list, ok := part["pretokenizers"].([]any); ok {
		for _, p := range list {
			set(p)
		}
	}
	if !changed {
		return raw, false, nil
	}
	out, err := json.Marshal(part)
	return out, true, err
}
