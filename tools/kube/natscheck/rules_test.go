package natscheck

import (
	"slices"
	"testing"
)

// Every rule is read, with its user, and a rule covers what its wildcards cover and no more.
func TestRules(t *testing.T) {
	conf := Conf(t)
	rules := Rules(conf)
	count := map[string]int{}
	for _, r := range rules {
		count[r.User]++
		if left := Rules(Without(conf, r)); slices.Contains(left, r) || len(left) != len(rules) {
			t.Errorf("%v is not taken out", r)
		}
	}
	if len(count) != 4 || count["sie-gateway"] < 20 || count["sie-worker"] < 15 || count["sie-config"] != 2 {
		t.Errorf("the rules of each user: %v", count)
	}
	for _, c := range []struct {
		rule, subject string
		covers        bool
	}{
		{"a.*", "a.b", true}, {"a.*", "a.*", true}, {"a.*", "a.b.c", false}, {"a.*", "a.>", false},
		{"a.>", "a.b.c", true}, {"a.>", "a.>", true}, {"a.>", "a", false}, {"a.b", "a.*", false},
		{"a", "a", true}, {"a.*.>", "a.b.c", true}, {"a.*.>", "a.b", false}, {">", "a", true},
	} {
		r := Rule{Action: Action{"u", publish, c.rule}}
		if r.Covers(Action{"u", publish, c.subject}) != c.covers ||
			r.Covers(Action{"u", subscribe, c.subject}) || r.Covers(Action{"v", publish, c.subject}) {
			t.Errorf("%s covers %s: not %v", c.rule, c.subject, c.covers)
		}
	}
}
