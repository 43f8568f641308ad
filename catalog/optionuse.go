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

// optionUse says in which operations an option has an effect, and for whom.
type optionUse struct {
	home  Operation
	also  Operation // further operations in which the option has an effect
	every bool      // for models of every served family; else of those whose row of the table names it
}

// optionUses lists every option that a request may name. The table of families says which of them a
// family takes; some are only of families that this build does not serve.
//
// In its home operations, an option that has no effect on the model is refused, because an option
// that silently does nothing leads to wrong results later. In other operations it is ignored and
// named to the caller, because clients send the options of their constructor with every call.
var optionUses = func() map[string]optionUse {
	uses := map[string]optionUse{
		"instruction":         {home: OpEncode | OpScore},
		"default_instruction": {home: OpEncode, also: OpScore},
		"query_template":      {home: OpEncode, also: OpScore},
		"doc_template":        {home: OpEncode, also: OpScore},
		"normalize":           {home: OpEncode, also: OpScore}, // a sparse row's weights are never scaled
		"pooling":             {home: OpEncode, also: OpScore},
		"query_max_length":    {home: OpEncode, also: OpScore},
		"score_mode":          {home: OpScore},
		"score_weights":       {home: OpScore},
		"lora":                {home: opEvery},
		"task":                {home: OpExtract, also: OpEncode},
		"prompt_name":         {home: OpEncode},
	}
	for _, key := range []string{"profile", "is_query", "overflow_policy", "max_seq_length", "lora_id"} {
		uses[key] = optionUse{home: opEvery, every: true}
	}
	for _, key := range []string{
		"output_types", "output_dtype", "output_similarity", "muvera", "smve", "dimensions",
	} {
		uses[key] = optionUse{home: OpEncode}
	}
	for _, key := range []string{
		"hypothesis_template", "multi_label", "top_k", "threshold", "classification_type",
		"classification_task", "cuda_graphs", "group_encoding", "flat_ner", "merge_adjacent_entities",
		"precompute_labels", "ocr", "box_threshold", "text_threshold", "score_threshold",
		"relation_threshold", "prune_threshold", "highlight_threshold", "score_floor", "span_entry_bias",
		"max_new_tokens", "num_beams", "window_words", "batch_size", "window_overlap", "relation_labels",
		"label_groups", "examples", "entity_descriptions", "propagate_label", "name_min_letters",
		"default_labels",
	} {
		uses[key] = optionUse{home: OpExtract}
	}
	return uses
}()

// applies reports whether an option has an effect on the model in an operation.
func (r *Resolved) applies(op Operation, key string) bool {
	use, info := optionUses[key], r.Family.info()
	return (use.home|use.also)&op != 0 && info != nil && info.reason == "" &&
		(use.every || slices.Contains(info.options, key))
}

// splitOptions removes from a request the options that belong only to other operations. It returns
// their names in ignored, sorted.
func (r *Resolved) splitOptions(op Operation, request map[string]any) (own map[string]any, ignored []string) {
	for key, v := range request {
		if use, known := optionUses[key]; known && v != nil && use.home&op == 0 && !r.applies(op, key) {
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
		if request[key] == nil || r.applies(op, key) {
			continue
		}
		if _, known := optionUses[key]; known {
			return &OptionError{
				Key: key, Msg: fmt.Sprintf("Field 'options.%s': model '%s' has no use for it; remove it",
					clip(key), clip(r.ID)),
			}
		}
		names := make([]string, 0, len(optionUses))
		for name := range optionUses {
			if r.applies(op, name) {
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
		if err := sameFold(m, "muvera_config", c.fields(),
			func() bool { return c == *r.Loadtime.MUVERA }); err != nil {
			return &OptionError{Key: "muvera", Msg: requestText("muvera", m, err)}
		}
	}
	if m, ok := request["smve"].(map[string]any); ok && r.Loadtime.SMVE != nil {
		c := *r.Loadtime.SMVE
		if err := sameFold(m, "smve_config", c.fields(),
			func() bool { return c == *r.Loadtime.SMVE }); err != nil {
			return &OptionError{Key: "smve", Msg: requestText("smve", m, err)}
		}
	}
	return nil
}
