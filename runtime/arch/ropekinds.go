package arch

import (
	"encoding/json"
	"maps"
	"slices"
)

// The kinds of blocks: tokens attend to the whole text, or to a window around them.
const (
	globalBlock = "full_attention"
	localBlock  = "sliding_attention"
)

// kindRope is the rotary embeddings of the blocks of one kind.
type kindRope struct {
	kind    string
	to      *rope
	scaling map[string]json.RawMessage // rope_scaling; nil: it leaves this kind alone
}

// readKindRopes reads the embeddings of configurations in which kinds of blocks have their own.
// rope_parameters has an object for each kind, and rope_scaling wins over it. The ropes hold what
// the older keys say. transformers ignores what stands in another place, so that such a file is
// refused.
func readKindRopes(parameters map[string]json.RawMessage, kinds ...kindRope) error {
	for _, k := range kinds {
		field, keys := "rope_parameters."+k.kind, map[string]json.RawMessage{}
		if raw := parameters[k.kind]; raw != nil && json.Unmarshal(raw, &keys) != nil {
			return refuse(configFile, field, "is %.60s; an object is wanted", raw)
		}
		if err := k.to.merge(field, keys); err != nil {
			return err
		}
		if err := k.to.merge("rope_scaling", k.scaling); err != nil {
			return err
		}
		if err := k.to.check(field); err != nil {
			return err
		}
		if k.scaling["type"] != nil && k.scaling["rope_type"] == nil {
			return refuse(configFile, "rope_scaling.type",
				"has no effect where embeddings have kinds: transformers reads rope_type; name it so, or remove rope_scaling")
		}
		if k.to.part != 1 {
			return refuse(configFile, "rope_parameters",
				"partial_rotary_factor is %g; this architecture rotates whole heads", k.to.part)
		}
		if k.to.noTruncate {
			return refuse(configFile, "rope_parameters",
				"truncate has no effect where embeddings have kinds; remove it")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		if key != globalBlock && key != localBlock {
			return refuse(configFile, "rope_parameters."+key,
				"has no effect here, where embeddings are named by kind of block: %s and %s",
				globalBlock, localBlock)
		}
	}
	return nil
}

// checkKinds checks layer_types, the kind of each block.
func checkKinds(kinds []string, blocks int64) error {
	if int64(len(kinds)) != blocks {
		return refuse(configFile, "layer_types", "has %d entries for %d layers", len(kinds), blocks)
	}
	for i, kind := range kinds {
		if kind != globalBlock && kind != localBlock {
			return refuse(configFile, "layer_types", "block %d is %.60q; %s and %s are supported",
				i, kind, globalBlock, localBlock)
		}
	}
	return nil
}
