package task

import (
	"strings"

	"github.com/sie-engine/sie/internal/errs"
)

// hypothesisTemplate is a sentence with one place for a label.
type hypothesisTemplate struct{ before, after string }

const defaultHypothesis = "This text is about {}."

// hypothesis reads the option hypothesis_template: a text with one {} for the label. Doubled braces
// stand for single ones.
func hypothesis(p *Prepared) (hypothesisTemplate, error) {
	text, _ := p.option("hypothesis_template").(string)
	if text == "" {
		text = defaultHypothesis
	}
	before, after, ok := strings.Cut(text, "{}")
	if !ok || strings.Contains(after, "{}") {
		return hypothesisTemplate{}, errs.Invalidf("options.hypothesis_template",
			"Field 'options.hypothesis_template' must have {} once, where the label goes; got %q", text)
	}
	braces := strings.NewReplacer("{{", "{", "}}", "}")
	return hypothesisTemplate{braces.Replace(before), braces.Replace(after)}, nil
}

// Format returns the sentence for a label.
func (t hypothesisTemplate) Format(label string) string { return t.before + label + t.after }
