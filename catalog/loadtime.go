package catalog

import (
	"fmt"
	"maps"
	"sort"
)

// LoadtimeOptions holds the options of a profile's loadtime map, which are fixed when the model is
// loaded. A zero field means that the option is not set. It is immutable after parsing. Pooling
// and Normalize are checked and kept but have no effect.
type LoadtimeOptions struct {
	MaxSeqLength      int    // tokens; 0 = the model's max_sequence_length
	TokenDim          int    // width of a token vector; without effect, the weights decide
	QueryMaxLength    int    // tokens, ColBERT queries; 0 = 32
	DocMaxLength      int    // tokens, ColBERT documents; 0 = the model's limit
	QueryPrefix       string // ColBERT marker, trailing space included as published
	DocPrefix         string
	QueryExpansion    *bool // pad queries with [MASK] to QueryMaxLength; nil = true
	AttendToExpansion *bool // let other tokens attend to the expansion; nil = false
	SkipPunctuation   *bool // drop the vectors of punctuation in documents; nil = true
	// drop the vectors of [CLS], [SEP] and [PAD]; nil = true, the reference's default
	SkipSpecialTokens *bool
	MUVERA            *MUVERAConfig // nil = no folding; never nil for a family that folds
	SMVE              *SMVEConfig   // as MUVERA
	LoRAs             []LoRA
	Members           []Member // of a union: its models besides its own
	TrustRemoteCode   bool     // accepted without effect: no repository code ever runs here
	// folder of the Dense module behind the pooling, in place of those of modules.json; "" = those
	DenseProjectionPath string
	Pooling             Pooling
	Normalize           *bool
	DefaultInstruction  *string

	// of rerankers that are decoders; see Resolved.Judging
	YesToken, NoToken, InputFormat, ScoreMode string

	// Raw holds every option, typed or not, by name. Read-only.
	Raw map[string]any
}

// LoRA is one LoRA adapter loaded together with the model. Requests select it by Name.
type LoRA struct {
	Name     string
	ID       string
	Revision string
}

type loadtimeSetter func(o *LoadtimeOptions, v any) error

var loadtimeSpecs map[string]loadtimeSetter

func init() {
	tokens := func(get func(*LoadtimeOptions) *int) loadtimeSetter {
		return func(o *LoadtimeOptions, v any) (err error) {
			*get(o), err = asInt(v, 1, maxOptionTokens)
			return err
		}
	}
	text := func(get func(*LoadtimeOptions) *string) loadtimeSetter {
		return func(o *LoadtimeOptions, v any) (err error) { *get(o), err = asText(v); return err }
	}
	choice := func(values []string, get func(*LoadtimeOptions) *string) loadtimeSetter {
		return func(o *LoadtimeOptions, v any) (err error) { *get(o), err = asEnum(v, values); return err }
	}
	flag := func(get func(*LoadtimeOptions) **bool) loadtimeSetter {
		return func(o *LoadtimeOptions, v any) error {
			b, err := asBool(v)
			*get(o) = &b
			return err
		}
	}
	loadtimeSpecs = map[string]loadtimeSetter{
		"max_seq_length":   tokens(func(o *LoadtimeOptions) *int { return &o.MaxSeqLength }),
		"token_dim":        tokens(func(o *LoadtimeOptions) *int { return &o.TokenDim }),
		"query_max_length": tokens(func(o *LoadtimeOptions) *int { return &o.QueryMaxLength }),
		"doc_max_length":   tokens(func(o *LoadtimeOptions) *int { return &o.DocMaxLength }),
		"query_prefix":     text(func(o *LoadtimeOptions) *string { return &o.QueryPrefix }),
		"doc_prefix":       text(func(o *LoadtimeOptions) *string { return &o.DocPrefix }),
		"dense_projection_path": text(
			func(o *LoadtimeOptions) *string { return &o.DenseProjectionPath }),
		"yes_token": text(func(o *LoadtimeOptions) *string { return &o.YesToken }),
		"no_token":  text(func(o *LoadtimeOptions) *string { return &o.NoToken }),
		"input_format": choice([]string{FormatQwen3, FormatMxbai},
			func(o *LoadtimeOptions) *string { return &o.InputFormat }),
		"score_mode": choice([]string{"logit_diff", "log_softmax"},
			func(o *LoadtimeOptions) *string { return &o.ScoreMode }),
		"query_expansion":            flag(func(o *LoadtimeOptions) **bool { return &o.QueryExpansion }),
		"attend_to_expansion_tokens": flag(func(o *LoadtimeOptions) **bool { return &o.AttendToExpansion }),
		"doc_punctuation_skiplist":   flag(func(o *LoadtimeOptions) **bool { return &o.SkipPunctuation }),
		"normalize":                  flag(func(o *LoadtimeOptions) **bool { return &o.Normalize }),
		"skip_special_tokens":        flag(func(o *LoadtimeOptions) **bool { return &o.SkipSpecialTokens }),
		"trust_remote_code": func(o *LoadtimeOptions, v any) (err error) {
			o.TrustRemoteCode, err = asBool(v)
			return err
		},
		"pooling": func(o *LoadtimeOptions, v any) (err error) { o.Pooling, err = asPooling(v); return err },
		"default_instruction": func(o *LoadtimeOptions, v any) (err error) {
			o.DefaultInstruction, err = asTextPtr(v)
			return err
		},
		"muvera_config": func(o *LoadtimeOptions, v any) (err error) {
			o.MUVERA, err = asMUVERA(v)
			return err
		},
		"smve_config": func(o *LoadtimeOptions, v any) (err error) { o.SMVE, err = asSMVE(v); return err },
		"lora_paths":  func(o *LoadtimeOptions, v any) (err error) { o.LoRAs, err = asLoRAs(v); return err },
		"members": func(o *LoadtimeOptions, v any) (err error) {
			o.Members, err = asMembers(v)
			return err
		},
	}
	checked := map[string]func(any) error{
		"attn_implementation": isText, "backend": isText,
		"cuda_graphs":         isAny, // YAML reads an unquoted off as false
		"classification_task": isText, "positive_label": isText,
		"default_task": isText, "causal": isBool, "append_eos": isBool,
		"fused_rope": isBool, "fused_kernels": isBool, "prefix_reuse": isBool, "use_model_encode": isBool,
		"modernbert_flash": isAny, "mem_fraction_static": isNumber,
		"score_threshold": isNumber, "max_len": isCount, "max_prompt_tokens": isCount,
		"text_batch_tokens": isCount, "prefix_cache_mb": isCount, "max_concurrent_dispatch": isCount,
		"batch_size": isCount, "config_kwargs": isMap, "forward_kwargs": isMap,
		"model_kwargs": isMap, "tokenizer_kwargs": isMap,
	}
	maps.Copy(checked, extractSpecs)
	for key, check := range checked {
		loadtimeSpecs[key] = func(_ *LoadtimeOptions, v any) error { return check(v) }
	}
}

// parseLoadtime reads a whole loadtime map.
func parseLoadtime(raw map[string]any) (*LoadtimeOptions, error) {
	o := &LoadtimeOptions{Raw: raw}
	for _, key := range sortedKeys(raw) {
		if spec, known := loadtimeSpecs[key]; known && raw[key] != nil {
			if err := spec(o, raw[key]); err != nil {
				return nil, &OptionError{Key: key, Msg: requestText(key, raw[key], err)}
			}
		}
	}
	return o, nil
}

// asLoRAs reads a list of ids, or a map of names to ids or to {id, revision}.
func asLoRAs(v any) ([]LoRA, error) {
	if m, ok := v.(map[string]any); ok {
		return loraMap(m)
	}
	ids, err := asTextList(v)
	if err != nil {
		return nil, fmt.Errorf("expected a list of adapter ids or a map of names to adapters, got %s",
			describe(v))
	}
	out := make([]LoRA, len(ids))
	for i, id := range ids {
		if id == "" {
			return nil, fmt.Errorf("adapter %d has an empty id", i)
		}
		out[i] = LoRA{Name: id, ID: id}
	}
	return out, nil
}

func loraMap(m map[string]any) ([]LoRA, error) {
	out := make([]LoRA, 0, len(m))
	for name, e := range m {
		l := LoRA{Name: name}
		switch x := e.(type) {
		case string:
			l.ID = x
		case map[string]any:
			for k, v := range x {
				s, isText := v.(string)
				switch {
				case k == "id" && isText:
					l.ID = s
				case k == "revision" && (isText || v == nil):
					l.Revision = s
				default:
					return nil, fmt.Errorf("adapter %q: unknown or mistyped key %q; valid keys: id, revision",
						clip(name), clip(k))
				}
			}
		}
		if l.ID == "" || l.Name == "" {
			return nil, fmt.Errorf("adapter %q needs an id", clip(name))
		}
		out = append(out, l)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}
