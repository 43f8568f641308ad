package natscheck

import (
	"regexp"
	"strings"
)

// Rule is one subject that a user's permissions allow or deny.
type Rule struct {
	Action      // the subject may have wildcards
	Deny   bool // or allow
	line   int  // of the configuration, from 0
}

var (
	userLine = regexp.MustCompile(`^(sie_\w+)_may: \{`)
	wordLine = regexp.MustCompile(`^\s+(publish|subscribe): \{`)
	listLine = regexp.MustCompile(`^\s+(allow|deny): \[`)
	ruleLine = regexp.MustCompile(`^\s+"([^"]+)"$`)
)

// Rules returns the entries of the permissions in a chart's nats.conf.
func Rules(conf string) (out []Rule) {
	r := Rule{}
	for n, line := range strings.Split(conf, "\n") {
		if m := userLine.FindStringSubmatch(line); m != nil {
			r = Rule{Action: Action{User: strings.ReplaceAll(m[1], "_", "-")}}
		} else if m := wordLine.FindStringSubmatch(line); m != nil {
			r.Do = m[1]
		} else if m := listLine.FindStringSubmatch(line); m != nil {
			r.Deny = m[1] == "deny"
		} else if m := ruleLine.FindStringSubmatch(line); m != nil && r.User != "" {
			r.Subject, r.line = m[1], n
			out = append(out, r)
		}
		if line == "}" {
			r = Rule{}
		}
	}
	return out
}

// nothing is a subject that nobody uses. It stands for a rule that is taken out: a list without an
// entry would allow everything.
const nothing = "sie.nothing"

// Without returns the configuration without a rule.
func Without(conf string, r Rule) string {
	lines := strings.Split(conf, "\n")
	lines[r.line] = strings.Replace(lines[r.line], r.Subject, nothing, 1)
	return strings.Join(lines, "\n")
}

// Covers reports whether every subject that a matches, which may have wildcards, is matched by r.
func (r Rule) Covers(a Action) bool {
	if r.User != a.User || r.Do != a.Do {
		return false
	}
	rule, subject := strings.Split(r.Subject, "."), strings.Split(a.Subject, ".")
	for i, token := range rule {
		if token == ">" {
			return len(subject) > i
		}
		if i >= len(subject) || subject[i] == ">" || token != "*" && token != subject[i] {
			return false
		}
	}
	return len(rule) == len(subject)
}
