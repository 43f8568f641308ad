package catalog

import (
	"fmt"
	"math"
	"strconv"
)

// extractSpecs holds the options of extraction that this build serves, each with the function that
// checks its value. A request and a profile may name them; a profile also as load-time options,
// which are then the model's defaults. They have no fields of their own and stay in Raw.
var extractSpecs = map[string]func(any) error{
	"threshold":               isShare,
	"relation_threshold":      isShare,
	"score_floor":             isShare,
	"flat_ner":                isBool,
	"multi_label":             isBool,
	"merge_adjacent_entities": isBool,
	"precompute_labels":       isBool,
	"hypothesis_template":     isText,
	"top_k":                   isCount,
	"window_words":            isAtLeast(2),
	"window_overlap":          isAtLeast(0),
	"propagate_label":         isText,
	"name_min_letters":        isAtLeast(1),
	"default_labels":          func(v any) error { _, err := asTextList(v); return err },
	"classification_type":     isOneOf("single-label", "multi-label"),
	"group_encoding":          isOneOf("separate", "joint"),
}

// isShare checks a number from 0 to 1.
func isShare(v any) error {
	f, ok := toFloat(v)
	switch {
	case !ok:
		return fmt.Errorf("expected a number from 0 to 1, got %s", describe(v))
	case math.IsNaN(f) || f < 0 || f > 1:
		return fmt.Errorf("must be from 0 to 1; got %s", strconv.FormatFloat(f, 'g', -1, 64))
	}
	return nil
}

// isAtLeast returns the check of a whole number of at least low.
func isAtLeast(low int64) func(any) error {
	return func(v any) error { _, err := asInt(v, low, maxOptionTokens); return err }
}

// isOneOf returns the check of a string that is one of values.
func isOneOf(values ...string) func(any) error {
	return func(v any) error { _, err := asEnum(v, values); return err }
}
