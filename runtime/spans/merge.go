package spans

import (
	"cmp"
	"slices"

	"github.com/sie-engine/sie/runtime/words"
)

// Merge returns the entities of an item from those of its windows, found[i] in windows[i], all with
// places in the item. Those of a single window are returned as they are.
//
// An entity at a window's edge, beyond which the next window reads, gives way when that window has
// it within and found one of its label that overlaps it: it may have been cut short. An entity
// found twice keeps its best score. Overlaps are decided as in one window. The result is in the
// order of the text.
func Merge(windows []words.Window, found [][]Entity, d Decoding) []Entity {
	if len(windows) == 1 {
		return found[0]
	}
	type key struct{ start, end, label int }
	var best []Entity
	at, all := map[key]int{}, make([]*placed, len(found))
	for i, entities := range found {
		all[i] = place(entities)
	}
	for i, entities := range found {
		for _, e := range entities {
			if cutAtEdge(e, i, windows, all) {
				continue
			}
			k := key{e.Start, e.End, e.Label}
			j, known := at[k]
			switch {
			case !known:
				at[k] = len(best)
				best = append(best, e)
			case e.Score > best[j].Score:
				best[j].Score = e.Score
			}
		}
	}
	kept := withoutConflicts(best, d)
	slices.SortStableFunc(kept, inText)
	return kept
}

func inText(a, b Entity) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
}

// placed are the entities of a window in the order of their labels and starts, with the greatest
// end of those of the same label up to each, so that one of them tells what overlaps a place.
type placed struct {
	entities []Entity
	reach    []int
	looked   int // entities that overlaps has looked at, for tests
}

func place(found []Entity) *placed {
	p := &placed{entities: slices.Clone(found), reach: make([]int, len(found))}
	slices.SortFunc(p.entities, byLabel)
	for i, e := range p.entities {
		p.reach[i] = e.End
		if i > 0 && p.entities[i-1].Label == e.Label {
			p.reach[i] = max(e.End, p.reach[i-1])
		}
	}
	return p
}

func byLabel(a, b Entity) int {
	return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Start, b.Start))
}

// overlaps reports whether one of the entities has e's label and shares characters with it.
func (p *placed) overlaps(e Entity) bool {
	behind, _ := slices.BinarySearchFunc(p.entities, Entity{Label: e.Label, Start: e.End},
		func(o, end Entity) int {
			p.looked++
			return byLabel(o, end)
		})
	return behind > 0 && p.entities[behind-1].Label == e.Label && p.reach[behind-1] > e.Start
}

// cutAtEdge reports whether a neighbour of window i has the whole place of an entity that lies at
// the window's edge, and found an overlapping one of its label.
func cutAtEdge(e Entity, i int, windows []words.Window, found []*placed) bool {
	whole := func(j int) bool {
		w := windows[j]
		return w.Start <= e.Start && e.End <= w.ReadEnd && found[j].overlaps(e)
	}
	return i > 0 && e.Start <= windows[i].Start && whole(i-1) ||
		i+1 < len(windows) && e.End >= windows[i].ReadEnd && whole(i+1)
}

// withoutConflicts is the greedy search over places in the text. It counts the places where
// entities begin or end, and an entity as the gaps between them.
func withoutConflicts(found []Entity, d Decoding) []Entity {
	var edges []int
	for _, e := range found {
		edges = append(edges, e.Start, e.End)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	slices.SortStableFunc(found, func(a, b Entity) int { return cmp.Compare(b.Score, a.Score) })
	k := newKeeper(len(edges), d)
	kept := found[:0]
	for _, e := range found {
		start, _ := slices.BinarySearch(edges, e.Start)
		end, _ := slices.BinarySearch(edges, e.End)
		if k.keep(start, end-1) {
			kept = append(kept, e)
		}
	}
	return kept
}

// MergeAdjacent joins entities of one label that overlap, touch or have one character between them,
// as models that find single words need it. The result is in the order of starts, and a joined
// entity has the best score of its parts. Only neighbours in that order are joined: one of another
// label between them keeps them apart.
func MergeAdjacent(found []Entity) []Entity {
	if len(found) == 0 {
		return nil
	}
	sorted := slices.Clone(found)
	slices.SortStableFunc(sorted, func(a, b Entity) int { return cmp.Compare(a.Start, b.Start) })
	merged := sorted[:1]
	for _, e := range sorted[1:] {
		last := &merged[len(merged)-1]
		if e.Label != last.Label || e.Start > last.End+1 {
			merged = append(merged, e)
			continue
		}
		last.End, last.Score = max(last.End, e.End), max(last.Score, e.Score)
	}
	return merged
}
