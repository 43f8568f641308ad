package spans

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/runtime/words"
)

// cases reads a file of cases: the names of the fields of T, then the values of a case a line.
func cases[T any](t *testing.T, file string, least int) []T {
	t.Helper()
	lines := golden.JSON[[][]json.RawMessage](t, "spans", file)
	var names []string
	for _, name := range lines[0] {
		var s string
		if err := json.Unmarshal(name, &s); err != nil {
			t.Fatal(err)
		}
		names = append(names, s)
	}
	var out []T
	for _, line := range lines[1:] {
		fields := map[string]json.RawMessage{}
		for i, value := range line {
			fields[names[i]] = value
		}
		document, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		var v T
		if err := json.Unmarshal(document, &v); err != nil {
			t.Fatalf("%s: %v", document, err)
		}
		out = append(out, v)
	}
	if len(out) < least {
		t.Fatalf("%s has %d cases, want %d or more", file, len(out), least)
	}
	return out
}

// logits makes the scores of a case, as tools/golden/spans.py does.
type logits struct {
	state uint64
	mode  string
}

func (l *logits) next() float32 {
	l.state = l.state*6364136223846793005 + 1442695040888963407
	n := float64(l.state >> 33)
	switch l.mode {
	case "ties":
		return float32((math.Mod(n, 25) - 12) / 2)
	case "large":
		return float32(math.Mod(n, 33) - 4)
	case "rare":
		return float32((math.Mod(n, 21) - 18) / 2)
	case "smooth":
		return float32(n/(1<<31)*12 - 6)
	}
	panic(l.mode)
}

func (l *logits) many(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = l.next()
	}
	return out
}

type decodingCase struct {
	Seed      uint64       `json:"seed"`
	Mode      string       `json:"mode"`
	Words     int          `json:"words"`
	Padded    int          `json:"padded"`
	Widest    int          `json:"widest"`
	Labels    int          `json:"labels"`
	Threshold float64      `json:"threshold"`
	Flat      int          `json:"flat"`
	Multi     int          `json:"multi"`
	Found     [][4]float64 `json:"found"`

	Kinds             int          `json:"kinds"`
	RelationThreshold float64      `json:"relation_threshold"`
	Adjacency         *float64     `json:"adjacency"`
	Candidates        [][2]int     `json:"candidates"`
	Pairs             [][2]int     `json:"pairs"`
	Relations         [][4]float64 `json:"relations"`
}

func (c decodingCase) decoding() Decoding {
	return Decoding{c.Threshold, c.Flat == 1, c.Multi == 1}
}

// candidates lists the scores [padded, widest, labels] above the floor of the threshold.
func candidates(scores []float32, widest, labels int, d Decoding) []Candidate {
	var out []Candidate
	for i, logit := range scores {
		if logit >= LogitFloor(d.Threshold) {
			out = append(out, Candidate{int32(i / labels / widest), int32(i / labels % widest),
				int32(i % labels), logit})
		}
	}
	return out
}

// differ returns what is different: a place, a label, the order, or a score by more than 1e-4.
func differ(found []Span, want [][4]float64) string {
	if len(found) != len(want) {
		return fmt.Sprintf("%d spans, want %d", len(found), len(want))
	}
	for i, s := range found {
		w := want[i]
		if s.Start != int(w[0]) || s.End != int(w[1]) || s.Label != int(w[2]) ||
			math.Abs(float64(s.Score)-w[3]) > 1e-4 {
			return fmt.Sprintf("span %d is %+v, want %v", i, s, w)
		}
	}
	return ""
}

func TestDecodeSpans(t *testing.T) {
	found := 0
	for _, c := range cases[decodingCase](t, "spans.json", 500) {
		l := logits{c.Seed, c.Mode}
		scores := l.many(c.Padded * c.Widest * c.Labels)
		d := c.decoding()
		got := DecodeSpans(candidates(scores, c.Widest, c.Labels, d), c.Words, d)
		if diff := differ(got, c.Found); diff != "" {
			t.Errorf("seed %d, %+v: %s", c.Seed, c.decoding(), diff)
		}
		found += len(got)
	}
	if found < 1000 {
		t.Errorf("%d spans in all: the cases prove little", found)
	}
}

func TestDecodePairs(t *testing.T) {
	found := 0
	for _, c := range cases[decodingCase](t, "tokens.json", 500) {
		l := logits{c.Seed, c.Mode}
		scores := l.many(c.Words * c.Labels * 3)
		var pairs []Pair
		for i := range c.Words * c.Labels {
			p := Pair{int32(i / c.Labels), int32(i % c.Labels), scores[3*i], scores[3*i+1], scores[3*i+2]}
			if max(p.Start, p.End, p.Inside) >= LogitFloor(c.Threshold) {
				pairs = append(pairs, p)
			}
		}
		got, err := DecodePairs(pairs, c.Words, c.decoding())
		if err != nil {
			t.Fatal(err)
		}
		if diff := differ(got, c.Found); diff != "" {
			t.Errorf("seed %d, %+v: %s", c.Seed, c.decoding(), diff)
		}
		found += len(got)
	}
	if found < 1000 {
		t.Errorf("%d spans in all: the cases prove little", found)
	}
}

func TestDecodeRelations(t *testing.T) {
	total := 0
	for _, c := range cases[decodingCase](t, "relations.json", 100) {
		l := logits{c.Seed, c.Mode}
		scores := l.many(c.Words * 3 * c.Labels)
		found := DecodeSpans(candidates(scores, 3, c.Labels, c.decoding()), c.Words, c.decoding())
		if diff := differ(found, c.Found); diff != "" {
			t.Errorf("seed %d: %s", c.Seed, diff)
		}
		listed := candidates(scores, 3, c.Labels, c.decoding())
		if got := Candidates(listed, c.Words, c.Threshold, 12); !reflect.DeepEqual(got, c.Candidates) {
			t.Errorf("seed %d: candidates %v, want %v", c.Seed, got, c.Candidates)
		}
		n := len(c.Candidates)
		pairs := allLinks(n)
		if c.Adjacency != nil {
			adjacency := l.many(n * n)
			for i := range adjacency {
				adjacency[i] = Score(adjacency[i])
			}
			pairs = Adjacent(pairs, adjacency, n, *c.Adjacency)
		}
		pairs = slices.DeleteFunc(pairs, func(l Link) bool { return l.Head == l.Tail })
		var links []Link
		for i, p := range pairs {
			if i >= len(c.Pairs) || c.Pairs[i] != [2]int{p.Head, p.Tail} {
				t.Fatalf("seed %d: pairs %v, want %v", c.Seed, pairs, c.Pairs)
			}
			for label, logit := range l.many(c.Kinds) {
				links = append(links, Link{p.Head, p.Tail, label, logit})
			}
		}
		if len(pairs) != len(c.Pairs) {
			t.Fatalf("seed %d: pairs %v, want %v", c.Seed, pairs, c.Pairs)
		}
		for i := range n { // a model scores them, too
			links = append(links, Link{i, i, 0, 100})
		}
		slices.Reverse(links)
		got := DecodeRelations(found, c.Candidates, links, c.RelationThreshold)
		if len(got) != len(c.Relations) {
			t.Errorf("seed %d: %d relations, want %d", c.Seed, len(got), len(c.Relations))
			continue
		}
		total += len(got)
		for i, r := range got {
			w := c.Relations[i]
			if r.Head != int(w[0]) || r.Tail != int(w[1]) || r.Label != int(w[2]) ||
				math.Abs(float64(r.Score)-w[3]) > 1e-4 {
				t.Errorf("seed %d: relation %d is %+v, want %v", c.Seed, i, r, w)
			}
		}
	}
	if total < 200 {
		t.Errorf("%d relations in all: the cases prove little", total)
	}
}

// allLinks returns a link for every two of n candidates.
func allLinks(n int) (links []Link) {
	for head := range n {
		for tail := range n {
			links = append(links, Link{Head: head, Tail: tail})
		}
	}
	return links
}

// entities reads places, labels and scores.
func entities(rows [][4]float64) []Entity {
	out := []Entity{}
	for _, r := range rows {
		out = append(out, Entity{int(r[0]), int(r[1]), int(r[2]), float32(r[3])})
	}
	return out
}

func sameEntities(got, want []Entity) bool {
	return len(got) == len(want) && (len(got) == 0 || reflect.DeepEqual(got, want))
}

func TestMerge(t *testing.T) {
	several := 0
	for i, c := range cases[struct {
		Windows [][2]int       `json:"windows"`
		Flat    int            `json:"flat"`
		Multi   int            `json:"multi"`
		Found   [][][4]float64 `json:"found"`
		Merged  [][4]float64   `json:"merged"`
	}](t, "merge.json", 100) {
		var windows []words.Window
		var found [][]Entity
		for j, w := range c.Windows {
			windows = append(windows, words.Window{Start: w[0], ReadEnd: w[1]})
			found = append(found, entities(c.Found[j]))
		}
		got := Merge(windows, found, Decoding{FlatNER: c.Flat == 1, MultiLabel: c.Multi == 1})
		if want := entities(c.Merged); !sameEntities(got, want) {
			t.Errorf("case %d: %v, want %v", i, got, want)
		}
		if len(windows) > 1 {
			several++
		}
	}
	if several < 50 {
		t.Errorf("%d cases have several windows", several)
	}
}

func TestMergeAdjacent(t *testing.T) {
	for i, c := range cases[struct {
		Found  [][4]float64 `json:"found"`
		Merged [][4]float64 `json:"merged"`
	}](t, "adjacent.json", 50) {
		if got, want := MergeAdjacent(entities(c.Found)), entities(c.Merged); !sameEntities(got, want) {
			t.Errorf("case %d: %v, want %v", i, got, want)
		}
	}
}

func TestUnion(t *testing.T) {
	named := 0
	for i, c := range cases[struct {
		Text           string         `json:"text"`
		ScoreFloor     float64        `json:"score_floor"`
		PropagateLabel *string        `json:"propagate_label"`
		NameMinLetters int            `json:"name_min_letters"`
		Size           int            `json:"size"`
		Overlap        int            `json:"overlap"`
		Windows        [][2]int       `json:"windows"`
		Members        [][][4]float64 `json:"members"`
		Union          [][4]float64   `json:"union"`
	}](t, "union.json", 100) {
		ranges, err := words.Ranges(c.Text, c.Size, c.Overlap, 0)
		if err != nil {
			t.Fatal(err)
		}
		var windows [][2]int
		for _, r := range ranges {
			windows = append(windows, [2]int{r.Start, r.End})
		}
		if !reflect.DeepEqual(windows, c.Windows) {
			t.Errorf("case %d: windows %v, want %v", i, windows, c.Windows)
		}
		var found [][]Entity
		for _, member := range c.Members {
			found = append(found, entities(member))
		}
		o := UnionOptions{ScoreFloor: c.ScoreFloor, WindowWords: c.Size, WindowOverlap: c.Overlap,
			NameMinLetters: c.NameMinLetters}
		if _, err := o.Check(); err != nil {
			t.Errorf("case %d: %v", i, err)
		}
		propagate := -1
		if c.PropagateLabel != nil {
			propagate = int((*c.PropagateLabel)[0] - '0')
		}
		got, want := Union(c.Text, found, propagate, o), entities(c.Union)
		if !sameEntities(got, want) {
			t.Errorf("case %d: %q: %v, want %v", i, c.Text, got, want)
		}
		if len(want) > len(Union(c.Text, found, -1, o)) {
			named++
		}
	}
	if named < 20 {
		t.Errorf("%d cases have names in more places: the cases prove little", named)
	}
}

func TestTriples(t *testing.T) {
	read := func(rows [][4]any) []Triple {
		var out []Triple
		for _, r := range rows {
			out = append(out, Triple{r[0].(string), r[1].(string), r[2].(string), float32(r[3].(float64))})
		}
		return out
	}
	for i, c := range cases[struct {
		Found   [][][4]any `json:"found"`
		Triples [][4]any   `json:"triples"`
	}](t, "triples.json", 50) {
		var found [][]Triple
		for _, window := range c.Found {
			found = append(found, read(window))
		}
		if got, want := Triples(found), read(c.Triples); !reflect.DeepEqual(got, want) {
			t.Errorf("case %d: %v, want %v", i, got, want)
		}
	}
}
