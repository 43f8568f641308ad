package catalog

import (
	"sort"
	"strings"
	"unicode/utf8"
)

const (
	suggestCutoff = 0.6
	maxSuggested  = 3
	// maxSuggestRunes bounds the work of a suggestion. Python's difflib starts to ignore frequent
	// characters above this length, so up to it the ratios equal difflib's.
	maxSuggestRunes = 199
)

// Suggest returns up to three routable ids close to id, nearest first. Close means a difflib ratio
// of at least 0.6 of the full ids or of the parts after the last slash. Profile variants are
// considered only when id itself names a profile. An id of 200 or more characters gets none.
func (c *Catalog) Suggest(id string) []string {
	if utf8.RuneCountInString(id) > maxSuggestRunes || id == "" {
		return nil
	}
	whole, base := newMatcher(id), newMatcher(basename(id))
	variants := strings.Contains(id, ":")
	var found []scored
	for _, r := range c.resolved {
		if !variants && r.ID != r.BaseID {
			continue
		}
		s := whole.ratioAtLeast(r.ID, suggestCutoff)
		s = max(s, base.ratioAtLeast(basename(r.ID), suggestCutoff))
		if s >= suggestCutoff {
			found = append(found, scored{r.ID, s})
		}
	}
	return best(found, maxSuggested)
}

func basename(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

type scored struct {
	text  string
	score float64
}

// best returns the n highest. Ties go to the greater string, as in Python's difflib.
func best(list []scored, n int) []string {
	sort.Slice(list, func(i, j int) bool {
		if list[i].score != list[j].score {
			return list[i].score > list[j].score
		}
		return list[i].text > list[j].text
	})
	if len(list) > n {
		list = list[:n]
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.text
	}
	return out
}

// closeMatches returns up to n candidates whose ratio to word is at least cutoff. It works as
// Python's difflib.get_close_matches for words under 200 characters; longer words match nothing.
func closeMatches(word string, candidates []string, n int, cutoff float64) []string {
	if utf8.RuneCountInString(word) > maxSuggestRunes {
		return nil
	}
	m := newMatcher(word)
	var found []scored
	for _, c := range candidates {
		if s := m.ratioAtLeast(c, cutoff); s >= cutoff {
			found = append(found, scored{c, s})
		}
	}
	return best(found, n)
}

// matcher compares many strings with one word. The ratio is Ratcliff and Obershelp's: twice the
// length of the matching blocks over the sum of the lengths. The blocks are the longest common run,
// then in turn those on both sides of it. It is not safe for concurrent use.
type matcher struct {
	word  []rune
	where map[rune][]int // positions of each rune in word, ascending
	run   []int          // run[j+1]: length of the common run that ends at word[j]; zero between calls
	next  []int
}

func newMatcher(word string) *matcher {
	w := []rune(word)
	m := &matcher{
		word: w, where: make(map[rune][]int, len(w)), run: make([]int, len(w)+1), next: make([]int, len(w)+1),
	}
	for j, r := range w {
		m.where[r] = append(m.where[r], j)
	}
	return m
}

// ratioAtLeast returns the similarity in [0, 1], or 0 as soon as an upper bound shows it to be
// below cutoff.
func (m *matcher) ratioAtLeast(s string, cutoff float64) float64 {
	a := []rune(s)
	total := len(a) + len(m.word)
	if total == 0 {
		return 1
	}
	if len(a) > maxSuggestRunes || 2*float64(min(len(a), len(m.word)))/float64(total) < cutoff {
		return 0
	}
	used := make(map[rune]int, len(m.where))
	common := 0
	for _, r := range a {
		if used[r] < len(m.where[r]) {
			used[r]++
			common++
		}
	}
	if 2*float64(common)/float64(total) < cutoff {
		return 0
	}
	return 2 * float64(m.matched(a, 0, len(a), 0, len(m.word))) / float64(total)
}

// matched sums the matching blocks of a[alo:ahi] and word[blo:bhi]. Its depth is bounded by the
// shorter string's length.
func (m *matcher) matched(a []rune, alo, ahi, blo, bhi int) int {
	i, j, n := m.longest(a, alo, ahi, blo, bhi)
	if n == 0 {
		return 0
	}
	return n + m.matched(a, alo, i, blo, j) + m.matched(a, i+n, ahi, j+n, bhi)
}

// longest finds the longest common run. Among equals it takes the earliest in a, then in word.
func (m *matcher) longest(a []rune, alo, ahi, blo, bhi int) (bestI, bestJ, bestN int) {
	bestI, bestJ = alo, blo
	run, next := m.run, m.next
	for i := alo; i < ahi; i++ {
		clear(next)
		for _, j := range m.where[a[i]] {
			if j < blo {
				continue
			}
			if j >= bhi {
				break
			}
			n := run[j] + 1
			next[j+1] = n
			if n > bestN {
				bestI, bestJ, bestN = i-n+1, j-n+1, n
			}
		}
		run, next = next, run
	}
	clear(m.run)
	clear(m.next)
	return bestI, bestJ, bestN
}
