package task

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/runtime/spans"
	"github.com/sie-engine/sie/runtime/words"
)

// The family of unions, which find what any of several GLiNER models finds. A text is read in
// windows of the union's own. Each member reads every window as a text, with its own options; what
// they find together becomes the entities of the text.
func init() {
	families[catalog.FamilyUnion] = &family{
		task:    arch.Spans,
		suits:   func([]string) bool { return false }, // a directory has one model
		extract: &extractor{},
		unite:   unite,
	}
}

// union is a request for what several models find. Owned by one goroutine.
type union struct {
	*Prepared
	hold Hold

	how       spans.UnionOptions
	labels    []string
	number    map[string]int // of each label
	propagate int            // the number of the label whose names are looked for; -1: of none

	rows   []words.Word       // the windows of all inputs, with places in their texts
	inputs []int              // the input of each row
	ends   []int              // where the rows of each input end
	found  [][][]spans.Entity // of each input, by member; labels are numbers
	read   []bool             // of each input: a member's tokenizer leaves a token of one of its rows
	bare   []*errs.Error      // of each input: the first error of a row of which none is left
	result Result
}

// unite answers a request.
func unite(ctx context.Context, p *Prepared, h *model.Host, hold Hold) (*Result, error) {
	u := &union{Prepared: p, hold: hold, result: Result{Model: p.model, Ignored: p.ignored}}
	if err := u.options(); err != nil {
		return nil, err
	}
	n := len(p.req.Inputs)
	if err := hold(int64(n)*listBytes, n); err != nil {
		return nil, err
	}
	u.result.Found = make([]Extracted, n)
	u.split()
	u.result.Timings.Preprocess = time.Since(p.start)
	if err := u.ask(ctx, h); err != nil {
		return nil, err
	}
	for i := range u.found {
		if err := u.put(i); err != nil {
			return nil, err
		}
	}
	u.result.Timings.Total = time.Since(p.start)
	return &u.result, nil
}

// options reads the request's options and labels.
func (u *union) options() error {
	u.how = spans.DefaultUnionOptions
	if v, ok := number(u.option("score_floor")); ok {
		u.how.ScoreFloor = v
	}
	for _, o := range []struct {
		name string
		to   *int
	}{{"window_words", &u.how.WindowWords}, {"window_overlap", &u.how.WindowOverlap},
		{"name_min_letters", &u.how.NameMinLetters}} {
		if v, ok := number(u.option(o.name)); ok {
			*o.to = int(v)
		}
	}
	u.how.PropagateLabel, _ = u.option("propagate_label").(string)
	if option, err := u.how.Check(); err != nil {
		return errs.Invalidf("options."+option, "Field 'options.%s': %v", option, err)
	}
	if err := u.chooseLabels(); err != nil {
		return err
	}
	u.number = make(map[string]int, len(u.labels))
	for i, l := range u.labels {
		u.number[l] = i
	}
	u.propagate = slices.Index(u.labels, u.how.PropagateLabel)
	return nil
}

// chooseLabels takes the labels of the request, else those of the option default_labels.
func (u *union) chooseLabels() error {
	field := labelsField
	u.labels = u.req.Labels
	standard, given := textList(u.option("default_labels"))
	if given && len(standard) == 0 {
		return errs.Invalid("options.default_labels",
			"Field 'options.default_labels' is empty; name at least one label, or leave it out")
	}
	if len(u.labels) == 0 {
		u.labels = standard
		field = "options.default_labels"
	}
	if len(u.labels) == 0 {
		return needLabels(u.req)
	}
	if err := words.DefaultLabelLimits.CheckLabels(field, u.labels, 0, nil); err != nil {
		return errs.Invalid(field, err.Error())
	}
	return nil
}

// textList reads an option that the catalog has already checked to be a list of texts.
func textList(v any) (list []string, given bool) {
	switch x := v.(type) {
	case []string:
		return x, true
	case []any:
		for _, e := range x {
			s, _ := e.(string)
			list = append(list, s)
		}
		return list, true
	}
	return nil, false
}

// split splits the texts into windows. A text that cannot be read is answered with an error.
func (u *union) split() {
	r := reader{field: u.req.field()}
	r.fail = func(item int, why *errs.Error) { u.result.Found[item].Err = why }
	for i := range u.req.Inputs {
		text, place := u.req.Inputs[i].Text, r.location(i)
		rows, err := words.Ranges(text, u.how.WindowWords, u.how.WindowOverlap, words.MaxWindows)
		switch {
		case words.IsBlank(text):
			_ = r.refuse(i, errs.Invalidf(place, "Field '%s' is blank; a text with words is wanted", place))
			rows = nil
		case err != nil:
			_ = r.refuse(i, errs.TooLong(place, fmt.Sprintf("Field '%s': %s", place, err)))
			rows = nil
		}
		u.rows = append(u.rows, rows...)
		for range rows {
			u.inputs = append(u.inputs, i)
		}
		u.ends = append(u.ends, len(u.rows))
	}
}

// ask has every member read all windows. No model is loaded for a request without any.
func (u *union) ask(ctx context.Context, h *model.Host) error {
	if len(u.rows) == 0 {
		return nil
	}
	texts := make([]string, len(u.rows))
	for i, w := range u.rows {
		texts[i] = w.In(u.req.Inputs[u.inputs[i]].Text)
	}
	entries := h.Members(u.model)
	members := make([]*Prepared, len(entries))
	for i, m := range entries {
		var err error
		members[i], err = Prepare(&Request{Op: Extract, Model: m, Inputs: Texts(texts), Field: u.req.Field,
			Labels: u.labels, Parts: u.inputs})
		if err != nil {
			return model.OfMember(u.model, m, err)
		}
	}
	uses, err := h.AcquireMembers(ctx, u.model, entries)
	if err != nil {
		return err
	}
	defer func() {
		for _, use := range uses {
			use.Done()
		}
	}()
	n := len(u.req.Inputs)
	u.found, u.read, u.bare = make([][][]spans.Entity, n), make([]bool, n), make([]*errs.Error, n)
	for i, use := range uses {
		res, err := members[i].with(ctx, h, use, u.holdRows)
		if err != nil {
			return model.OfMember(u.model, entries[i], err)
		}
		u.collect(entries[i], res)
	}
	for i, why := range u.bare {
		if why != nil && !u.read[i] && u.result.Found[i].Err == nil {
			u.result.Found[i].Err = why
		}
	}
	return nil
}

// holdRows is the Hold of a member, whose items are rows.
func (u *union) holdRows(bytes int64, rows int) error {
	whole, _ := slices.BinarySearch(u.ends, rows+1) // inputs whose rows end by then
	return u.hold(bytes, whole)
}

// collect takes what a member has found. An error of a window is one of its input, but for a window
// of which the tokenizer leaves no token: nothing is found there.
func (u *union) collect(m *catalog.Resolved, res *Result) {
	from := 0
	for i, end := range u.ends {
		var all []spans.Entity
		for n := from; n < end; n++ {
			switch e := res.Found[n].Err; {
			case e == nil:
				u.read[i] = true
			case res.Found[n].Bare && u.bare[i] == nil:
				u.bare[i] = errs.As(model.OfMember(u.model, m, e))
			case !res.Found[n].Bare && u.result.Found[i].Err == nil:
				u.result.Found[i].Err = errs.As(model.OfMember(u.model, m, e))
			}
			at := u.rows[n].Start
			for _, e := range res.Found[n].Entities {
				all = append(all, spans.Entity{Start: at + e.Start, End: at + e.End,
					Label: u.labelNumber(e.Label), Score: float32(e.Score)})
			}
		}
		u.found[i] = append(u.found[i], all)
		from = end
	}
	to, more := &u.result, res
	to.Tokens += more.Tokens
	to.Timings.Tokenize += more.Timings.Tokenize
	to.Timings.BatchWait += more.Timings.BatchWait
	to.Timings.Inference += more.Timings.Inference
}

// labelNumber returns the number of a label. One that was not asked for, as the null device gives,
// gets a number of its own.
func (u *union) labelNumber(label string) int {
	n, known := u.number[label]
	if !known {
		n = len(u.labels)
		u.number[label], u.labels = n, append(slices.Clip(u.labels), label)
	}
	return n
}

// put answers input i.
func (u *union) put(i int) error {
	answer := &u.result.Found[i]
	if answer.Err != nil {
		return nil
	}
	text := u.req.Inputs[i].Text
	all := spans.Union(text, u.found[i], u.propagate, u.how)
	if err := u.hold(int64(len(all))*entryBytes, i+1); err != nil {
		return err
	}
	at := bytesOf(text)
	for _, e := range all {
		answer.Entities = append(answer.Entities, api.Entity{
			Text: text[at(e.Start):at(e.End)], Label: u.labels[e.Label], Score: float64(e.Score),
			Start: e.Start, End: e.End,
		})
	}
	return nil
}
