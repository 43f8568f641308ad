package words

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The bounds of the published server, which callers see.
const (
	MaxWordChars          = 256  // characters of a word; a longer one is read in pieces
	SubtokensPerWord      = 8    // subtokens of a window, per word that it may have
	MaxSubtokens          = 8192 // subtokens of a window
	MaxSubtokensDeBERTa   = 4096 // the same, for encoders of DeBERTa
	OverlapWords          = 64   // words that a window shares with the one before it
	MaxWindows            = 128  // windows of an item
	MaxLabels             = 1000 // labels of a request, relation labels among them
	MaxLabelChars         = 128  // characters of a label
	MaxPromptTokens       = 1024 // tokens of the labels of a request
	PromptCharsPerToken   = 32   // more characters than that have more tokens, too
	MaxRelationCandidates = 100  // entities of a window that may be in relations
	specialPositions      = 4    // positions that an encoder keeps for more than the text
)

// Limits bound what a model reads of an item. DefaultLimits has those of the published server.
type Limits struct {
	MaxWords     int // words of a window (max_len of the model)
	MaxSubtokens int // subtokens of a window; a first word of more is read all the same
	MaxWordChars int // characters of a word
	Overlap      int // words shared by windows, at most half of a window's
	MaxWindows   int // windows of an item
}

// DefaultLimits returns the limits of a model that reads maxWords words at once, but for its
// encoder, which Budget asks about.
func DefaultLimits(maxWords int) Limits {
	return Limits{
		MaxWords: maxWords, MaxSubtokens: Budget(maxWords, false, 0), MaxWordChars: MaxWordChars,
		Overlap: OverlapWords, MaxWindows: MaxWindows,
	}
}

// Budget returns the subtokens that a window of maxWords words may have. deberta says that the
// encoder is a DeBERTa, of any version; positions is the size of its table of absolute positions,
// and 0 for an encoder that has none: rotary and relative ones count none.
func Budget(maxWords int, deberta bool, positions int) int {
	most := MaxSubtokens
	if deberta {
		most = MaxSubtokensDeBERTa
	}
	if positions > 0 {
		most = min(most, positions-specialPositions)
	}
	return max(1, min(SubtokensPerWord*maxWords, most))
}

// Check returns an error that names the limit that is no use.
func (l Limits) Check() error {
	for _, one := range []struct {
		name  string
		value int
		least int
	}{
		{"max_words", l.MaxWords, 1}, {"max_subtokens", l.MaxSubtokens, 1},
		{"max_word_chars", l.MaxWordChars, 1}, {"overlap_words", l.Overlap, 0},
		{"max_windows", l.MaxWindows, 1},
	} {
		if one.value < one.least {
			return fmt.Errorf("%s is %d; it must be at least %d", one.name, one.value, one.least)
		}
	}
	return nil
}

// BoundError says which bound an input goes beyond.
type BoundError struct {
	Field   string // text, labels, relation_labels
	Bound   string // the bound's name: max_windows, max_labels, max_label_chars, max_prompt_tokens
	Max     int    // the bound
	message string
}

func (e *BoundError) Error() string { return e.message }

// LabelLimits bound the labels of a request. DefaultLabelLimits has those of the published server.
type LabelLimits struct {
	MaxLabels       int // labels and relation labels together
	MaxLabelChars   int
	MaxPromptTokens int
}

// DefaultLabelLimits are the limits of the published server.
var DefaultLabelLimits = LabelLimits{MaxLabels, MaxLabelChars, MaxPromptTokens}

// CheckLabels checks the labels of a request before anything is tokenized: their number, with
// others more that the request has in another field; and of each, that it is not blank, not too
// long, not there twice, and has none of the reserved markers in it. An error names field, label,
// bound and fix; one beyond a bound is a *BoundError.
func (l LabelLimits) CheckLabels(field string, labels []string, others int, reserved []string) error {
	if n := len(labels) + others; n > l.MaxLabels {
		return &BoundError{field, "max_labels", l.MaxLabels, fmt.Sprintf(
			"%s: %d labels in all; a request may have at most %d (max_labels): ask for the others in another one",
			field, n, l.MaxLabels)}
	}
	first := make(map[string]int, len(labels))
	chars := 0
	for i, label := range labels {
		n := utf8.RuneCountInString(label)
		chars += n
		switch before, twice := first[label]; {
		case n > l.MaxLabelChars:
			return &BoundError{field, "max_label_chars", l.MaxLabelChars, fmt.Sprintf(
				"%s[%d] has %d characters; a label may have at most %d (max_label_chars): shorten it",
				field, i, n, l.MaxLabelChars)}
		case IsBlank(label):
			return fmt.Errorf("%s[%d] is blank; name what is to be found", field, i)
		case twice:
			return fmt.Errorf("%s[%d] %q is %s[%d] again; name each label once",
				field, i, label, field, before)
		}
		for _, marker := range reserved {
			if strings.Contains(label, marker) {
				return fmt.Errorf("%s[%d] %q has the model's marker %q in it; leave the marker out",
					field, i, label, marker)
			}
		}
		first[label] = i
	}
	if most := l.MaxPromptTokens * PromptCharsPerToken; chars > most {
		return &BoundError{field, "max_prompt_tokens", l.MaxPromptTokens, fmt.Sprintf(
			"%s have %d characters; the labels of a request may take at most %d tokens (max_prompt_tokens): send fewer or shorter ones",
			field, chars, l.MaxPromptTokens)}
	}
	return nil
}

// CheckPrompt checks the tokens that the labels take with their markers.
func (l LabelLimits) CheckPrompt(field string, tokens int) error {
	if tokens <= l.MaxPromptTokens {
		return nil
	}
	return &BoundError{field, "max_prompt_tokens", l.MaxPromptTokens, fmt.Sprintf(
		"%s take %d tokens; the labels of a request may take at most %d (max_prompt_tokens): send fewer or shorter ones",
		field, tokens, l.MaxPromptTokens)}
}
