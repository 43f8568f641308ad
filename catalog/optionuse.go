package catalog

import (
	"fmt"
	"slices"
)

// optionUse names the families that make something of an option of a request. Those it does not name refuse it: an option
// that silently does nothing is a wrong answer somewhere else. Options of families that this build does not serve are absent.
var optionUse = func() map[string][]Family {
	embedders := []Family{FamilyDense, FamilySparse, FamilyColBERT, FamilyMultiFunction}
	classifiers := []Family{FamilyZeroShot, FamilySequenceClassifier}
	everyone := slices.Concat(embedders, classifiers, []Family{FamilyCrossEncoder, FamilyTagger})
	return map[string][]Family{
		"profile": everyone, "is_query": everyone, "overflow_policy": everyone, "max_seq_length": everyone, "lora_id": everyone,
		"instruction": slices.Concat(embedders, []Family{FamilyCrossEncoder}), "default_instruction": embedders,
		"output_types": embedders, "output_dtype": embedders, "query_template": embedders, "doc_template": embedders,
		"muvera": embedders, "smve": embedders, // refused by name where there is nothing to fold
		"normalize": {FamilyDense, FamilyColBERT, FamilyMultiFunction}, // a sparse row's weights are never scaled
		"pooling":   {FamilyDense, FamilyMultiFunction}, "dimensions": {FamilyDense, FamilyMultiFunction, FamilyColBERT},
		"query_max_length": {FamilyColBERT}, "score_mode": {FamilyMultiFunction}, "score_weights": {FamilyMultiFunction},
		"hypothesis_template": {FamilyZeroShot}, "multi_label": classifiers, "top_k": classifiers,
		"threshold": slices.Concat(classifiers, []Family{FamilyTagger}),
	}
}()

// checkUse refuses an option of a request that the model makes nothing of.
func (r *Resolved) checkUse(request map[string]any) error {
	for _, key := range sortedKeys(request) {
		if request[key] == nil || slices.Contains(optionUse[key], r.Family) {
			continue
		}
		if _, known := runtimeSpecs[key]; known {
			return &OptionError{Key: key, Msg: fmt.Sprintf("Field 'options.%s': model '%s' has no use for it; remove it", clip(key), clip(r.ID))}
		}
		names := make([]string, 0, len(optionUse))
		for name, users := range optionUse {
			if slices.Contains(users, r.Family) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		msg := fmt.Sprintf("Field 'options.%s': there is no such option", clip(key))
		if near := closeMatches(key, names, 1, suggestCutoff); len(near) > 0 {
			msg += fmt.Sprintf("; did you mean '%s'?", near[0])
		} else {
			msg += fmt.Sprintf("; model '%s' takes %s", clip(r.ID), orList(names))
		}
		return &OptionError{Key: key, Msg: msg}
	}
	return nil
}
