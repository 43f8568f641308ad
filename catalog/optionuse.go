package catalog

import (
	"fmt"
	"maps"
	"slices"
)

// Operation is the kind of result that a request asks for.
type Operation uint8

// The operations. A set of operations is their sum.
const (
	OpEncode  Operation = 1 << iota // vectors
	OpScore                         // relevance of texts to a query
	OpExtract                       // labels and entities
	opEvery   = OpEncode | OpScore | OpExtract
)

// optionUse says where an option has an effect: for models of these families, in these operations.
type optionUse struct {
	families []Family // none: only families that this build does not serve
	home     Operation
	also     Operation // further operations in which the option has an effect
}

// optionUses lists every option that a request may name.
//
// In its home operations, an option that has no effect on the model is refused, because an option
// that silently does nothing leads to wrong results later. In other operations it is ignored and
// named to the caller, because clients send the options of their constructor with every call.
var optionUses = func() map[string]optionUse {
	embedders := []Family{FamilyDense, FamilySparse, FamilyColBERT, FamilyMultiFunction}
	classifiers := []Family{FamilyZeroShot, FamilySequenceClassifier}
	scored := slices.Concat(embedders, []Family{FamilyCrossEncoder})
	everyone := slices.Concat(scored, classifiers, []Family{FamilyTagger})
	uses := map[string]optionUse{
		"profile": {everyone, opEvery, 0}, "is_query": {everyone, opEvery, 0}, "overflow_policy": {everyone, opEvery, 0},
		"max_seq_length": {everyone, opEvery, 0}, "lora_id": {everyone, opEvery, 0}, "lora": {nil, opEvery, 0},

		"instruction":         {scored, OpEncode | OpScore, 0},
		"default_instruction": {embedders, OpEncode, OpScore},
		"query_template":      {embedders, OpEncode, OpScore},
		"doc_template":        {embedders, OpEncode, OpScore},
		"output_types":        {embedders, OpEncode, 0},
		"output_dtype":        {embedders, OpEncode, 0},
		"output_similarity":   {nil, OpEncode, 0},
		"muvera":              {embedders, OpEncode, 0}, // refused by name for a model without a multivector
		"smve":                {embedders, OpEncode, 0},
		"normalize":           {[]Family{FamilyDense, FamilyColBERT, FamilyMultiFunction}, OpEncode, OpScore}, // a sparse row's weights are never scaled
		"pooling":             {[]Family{FamilyDense, FamilyMultiFunction}, OpEncode, OpScore},
		"dimensions":          {[]Family{FamilyDense, FamilyMultiFunction, FamilyColBERT}, OpEncode, 0},
		"query_max_length":    {[]Family{FamilyColBERT}, OpEncode, OpScore},

		"score_mode":    {[]Family{FamilyMultiFunction}, OpScore, 0},
		"score_weights": {[]Family{FamilyMultiFunction}, OpScore, 0},

		"hypothesis_template": {[]Family{FamilyZeroShot}, OpExtract, 0},
		"multi_label":         {classifiers, OpExtract, 0}, "top_k": {classifiers, OpExtract, 0},
		"threshold": {slices.Concat(classifiers, []Family{FamilyTagger}), OpExtract, 0},
	}
	for _, key := range []string{"task", "classification_type", "classification_task", "cuda_graphs", "group_encoding", "flat_ner",
		"merge_adjacent_entities", "precompute_labels", "ocr", "box_threshold", "text_threshold", "score_threshold", "relation_threshold",
		"prune_threshold", "highlight_threshold", "score_floor", "span_entry_bias", "max_new_tokens", "num_beams", "window_words",
		"batch_size", "window_overlap", "relation_labels", "label_groups", "examples", "entity_descriptions"} {
		uses[key] = optionUse{nil, OpExtract, 0}
	}
	return uses
}()

// reaches reports whether an option has an effect on the model in an operation.
func (r *Resolved) reaches(op Operation, key string) bool {
	use := optionUses[key]
	return (use.home|use.also)&op != 0 && slices.Contains(use.families, r.Family)
}

// sift removes from a request the options that belong only to other operations. It returns their
// names in ignored, sorted.
func (r *Resolved) sift(op Operation, request map[string]any) (own map[string]any, ignored []string) {
	for key, v := range request {
		if use, known := optionUses[key]; known && v != nil && use.home&op == 0 && !r.reaches(op, key) {
			ignored = append(ignored, key)
		}
	}
	if len(ignored) == 0 {
		return request, nil
	}
	slices.Sort(ignored)
	own = maps.Clone(request)
	for _, key := range ignored {
		delete(own, key)
	}
	return own, ignored
}

// checkUse refuses an option of a request that has no effect on the model.
func (r *Resolved) checkUse(op Operation, request map[string]any) error {
	for _, key := range sortedKeys(request) {
		if request[key] == nil || r.reaches(op, key) {
			continue
		}
		if _, known := optionUses[key]; known {
			return &OptionError{Key: key, Msg: fmt.Sprintf("Field 'options.%s': model '%s' has no use for it; remove it", clip(key), clip(r.ID))}
		}
		names := make([]string, 0, len(optionUses))
		for name := range optionUses {
			if r.reaches(op, name) {
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

// checkFolds refuses values in the options muvera and smve that differ from the model's
// configuration. The model's folding tables are made for that configuration only.
func (r *Resolved) checkFolds(request map[string]any) error {
	if m, ok := request["muvera"].(map[string]any); ok && r.Loadtime.MUVERA != nil {
		c := *r.Loadtime.MUVERA
		if err := sameSketch(m, "muvera_config", c.fields(), func() bool { return c == *r.Loadtime.MUVERA }); err != nil {
			return &OptionError{Key: "muvera", Msg: requestText("muvera", m, err)}
		}
	}
	if m, ok := request["smve"].(map[string]any); ok && r.Loadtime.SMVE != nil {
		c := *r.Loadtime.SMVE
		if err := sameSketch(m, "smve_config", c.fields(), func() bool { return c == *r.Loadtime.SMVE }); err != nil {
			return &OptionError{Key: "smve", Msg: requestText("smve", m, err)}
		}
	}
	return nil
}
