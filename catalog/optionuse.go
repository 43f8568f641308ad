package catalog

import (
	"fmt"
	"maps"
	"slices"
)

// Operation is what a request asks for.
type Operation uint8

// The operations. A set of them is their sum.
const (
	OpEncode  Operation = 1 << iota // vectors
	OpScore                         // relevance of texts to a query
	OpExtract                       // labels and entities
	opEvery   = OpEncode | OpScore | OpExtract
)

// optionUse is who makes something of an option of a request: a model of these families in one of
// these operations.
type optionUse struct {
	families []Family // none: models that this build does not serve
	home     Operation
	also     Operation // operations that the option reaches, but is not made for
}

// optionUses has every option that a request may name.
//
// In an operation at home an option that the model makes nothing of is refused: an option that
// silently does nothing is a wrong answer somewhere else. Elsewhere it is ignored, and the caller
// is told: clients send the options of their constructor with every call, whatever it asks for.
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
		"muvera":              {embedders, OpEncode, 0}, // refused by name where there is nothing to fold
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

// reaches says whether an option does something for the model in an operation.
func (r *Resolved) reaches(op Operation, key string) bool {
	use := optionUses[key]
	return (use.home|use.also)&op != 0 && slices.Contains(use.families, r.Family)
}

// sift takes the options out of a request that are made for other operations, and names them,
// sorted.
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

// checkUse refuses an option of a request that the model makes nothing of.
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

// checkFolds refuses contents of the options muvera and smve that say otherwise than the model
// folds: its tables are made for one configuration.
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
