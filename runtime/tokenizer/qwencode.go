package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// endingClasses are classes of code in repositories (arch's knownClasses has the repositories) that
// put the tokens of add_bos_token and add_eos_token around texts, whatever tokenizer.json says:
// gte-Qwen2 and stella 1.5B read the last token of a text, which is <|endoftext|>.
var endingClasses = []string{"tokenization_qwen.Qwen2Tokenizer", "tokenization_qwen.Qwen2TokenizerFast"}

// codeSetsEnds reports whether auto_map names such a class.
func (s *settings) codeSetsEnds() bool {
	names := []string{}
	for _, v := range s.AutoMap["AutoTokenizer"] {
		_, class, found := strings.Cut(v, "--") // a repository before the class
		if !found {
			class = v
		}
		names = append(names, class)
	}
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(endingClasses, name) })
}

// codeEnds returns the post-processor that such a class makes. added are the tokens of
// tokenizer.json.
func (s *settings) codeEnds(added []addedToken) (json.RawMessage, error) {
	v := vocabulary{ids: make(map[string]int, len(added)), family: familyOf("Qwen2Tokenizer")}
	for _, t := range added {
		v.ids[t.Content] = t.ID
	}
	part, err := v.ends(s)
	if err != nil {
		return nil, fmt.Errorf("add_bos_token and add_eos_token: %w", err)
	}
	return json.Marshal(part)
}

// codeClasses is the auto_map of tokenizer_config.json: classes by task. In old files it is the
// list of AutoTokenizer alone. arch refuses other forms.
type codeClasses map[string]classList

func (c *codeClasses) UnmarshalJSON(b []byte) error {
	var list classList
	if json.Unmarshal(b, &list) == nil {
		*c = codeClasses{"AutoTokenizer": list}
		return nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return nil
	}
	*c = codeClasses{}
	for key, raw := range all {
		if json.Unmarshal(raw, &list) == nil {
			(*c)[key] = list
		}
	}
	return nil
}

// classList is a class of auto_map, or a list of the slow and the fast class.
type classList []string

func (c *classList) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*c = classList{one}
		return nil
	}
	var many []*string // null: there is no such class
	if err := json.Unmarshal(b, &many); err != nil {
		return err
	}
	*c = nil
	for _, name := range many {
		if name != nil {
			*c = append(*c, *name)
		}
	}
	return nil
}
