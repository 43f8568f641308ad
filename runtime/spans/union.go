package spans

import (
	"fmt"
	"slices"

	"github.com/sie-engine/sie/runtime/words"
)

// UnionOptions say how the entities of several models become those of one, and how their items are
// read. DefaultUnionOptions has the published defaults; a model's configuration may set others.
type UnionOptions struct {
	ScoreFloor     float64 // members' entities below it are left out
	WindowWords    int     // words of a window of the item
	WindowOverlap  int     // words that it shares with the next one
	PropagateLabel string  // names in entities of this label are looked for in the whole item; "": none
	NameMinLetters int     // letters of such a name
}

// DefaultUnionOptions are those of the published adapter, which keeps every score.
var DefaultUnionOptions = UnionOptions{WindowWords: 300, WindowOverlap: 50, NameMinLetters: 3}

// Check returns the name of the option that is out of its bounds and an error that names it, too.
func (o UnionOptions) Check() (option string, err error) {
	switch {
	case !(0 <= o.ScoreFloor && o.ScoreFloor <= 1):
		return "score_floor", fmt.Errorf("score_floor is %v; it must be a number between 0 and 1",
			o.ScoreFloor)
	case o.WindowWords < 2:
		return "window_words", fmt.Errorf("window_words is %d; it must be at least 2", o.WindowWords)
	case o.WindowOverlap < 0 || o.WindowOverlap >= o.WindowWords:
		return "window_overlap", fmt.Errorf(
			"window_overlap is %d; it must be at least 0 and less than window_words, which is %d",
			o.WindowOverlap, o.WindowWords)
	case o.NameMinLetters < 1:
		return "name_min_letters", fmt.Errorf("name_min_letters is %d; it must be at least 1",
			o.NameMinLetters)
	}
	return "", nil
}

// Union returns the entities that the members found in an item, found[m] by member m in all windows
// with places in the item: each place and label once at its best score, overlaps kept. With
// propagate, the number of a label or −1, every other whole-word occurrence of a name becomes an
// entity of that label: a run of at least NameMinLetters letters in one of its entities. The result
// is in the order of the text.
func Union(text string, found [][]Entity, propagate int, o UnionOptions) []Entity {
	type key struct{ start, end, label int }
	var all []Entity
	at := map[key]int{}
	for _, member := range found {
		for _, e := range member {
			if float64(e.Score) < o.ScoreFloor {
				continue
			}
			k := key{e.Start, e.End, e.Label}
			if j, known := at[k]; !known {
				at[k] = len(all)
				all = append(all, e)
			} else if e.Score > all[j].Score {
				all[j] = e
			}
		}
	}
	slices.SortStableFunc(all, inText)
	if propagate >= 0 {
		all = append(all, names(text, all, propagate, o.NameMinLetters)...)
		slices.SortStableFunc(all, inText)
	}
	return all
}

// names returns an entity for every occurrence of a name in the text that lies inside none of the
// entities found, which are in the order of the text.
func names(text string, found []Entity, label, letters int) []Entity {
	best := map[string]float32{}
	var at []int
	for _, e := range found {
		if e.Label != label {
			continue
		}
		if at == nil {
			at = offsets(text)
		}
		part := text[at[e.Start]:at[e.End]]
		for run := range words.LetterRuns(part) {
			if run.End-run.Start < letters {
				continue
			}
			name := run.In(part)
			best[name] = max(best[name], e.Score)
		}
	}
	if len(best) == 0 {
		return nil
	}
	var added []Entity
	next, reach := 0, 0 // entities that begin before the run, and where the last of them ends
	for run := range words.LetterRuns(text) {
		for ; next < len(found) && found[next].Start <= run.Start; next++ {
			reach = max(reach, found[next].End)
		}
		if score, is := best[run.In(text)]; is && reach < run.End {
			added = append(added, Entity{run.Start, run.End, label, score})
		}
	}
	return added
}

// offsets returns the byte of each code point of a text, and of its end.
func offsets(text string) []int {
	out := make([]int, 0, len(text)+1)
	for i := range text {
		out = append(out, i)
	}
	return append(out, len(text))
}
