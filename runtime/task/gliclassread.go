package task

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/tokenizer"
	"github.com/sie-engine/sie/runtime/words"
)

// gliclassRun is a request on its way through a GLiClass model. Owned by one goroutine.
type gliclassRun struct {
	*run
	ask    *gliclassAsk
	layout *arch.LabelLayout
	scores [][]float64 // of each item, row after row
	sizes  []gliclassSize
	window int      // tokens of a sequence without the special ones
	texts  []string // of the items, where several rows read each: what any of them reads; else nil
}

// gliclassSize counts the tokens of what a row has beside its text.
type gliclassSize struct {
	labels, task, examples int
	names                  int // of the examples' markers and labels alone
}

// around is the number of all of them.
func (s gliclassSize) around() int { return s.labels + s.task + s.examples }

// Bounds of a text that several rows read, as the reference has them.
const (
	maxRowChars  = 64        // characters of a text for each token of the window
	maxItemChars = 512 << 10 // of all rows of a text, if that is more
	roomBehind   = 32        // tokens that a cut text has beyond the window
)

// roomForText is the least number of tokens that labels must leave for a text behind them.
const roomForText = 8

// measure counts the tokens beside the texts, and refuses labels that leave them no room.
func (c *gliclassRun) measure() error {
	if err := c.ask.bound(c.reader.limit); err != nil {
		return err
	}
	t := c.use.Tokenizer()
	c.window = c.reader.limit - t.CountSpecial(false)
	if len(c.ask.rows) > 1 {
		if err := c.cutTexts(); err != nil {
			return err
		}
	}
	var parts []string
	for _, row := range c.ask.rows {
		parts = append(parts, row.prompt(), c.ask.task, formatExamples(row.examples))
		for _, e := range row.examples {
			parts = append(parts, e.text)
		}
	}
	var b tokenizer.Batch
	if err := t.EncodeParallel(c.ctx, &b, parts, tokenizer.Options{NoSpecial: true}); err != nil {
		return err
	}
	at := 0
	next := func() int { at++; return len(b.Text(at - 1)) }
	for _, row := range c.ask.rows {
		s := gliclassSize{labels: next(), task: next(), examples: next()}
		s.names = s.examples
		for range row.examples {
			s.names -= next()
		}
		c.sizes = append(c.sizes, s)
		field := c.ask.field()
		switch {
		case s.labels > c.window: // the separator is last
			return errs.TooLong(field, fmt.Sprintf(
				"Field '%s': the labels have %d tokens, and model '%s' reads %d with the text: send fewer or shorter labels",
				field, s.labels, c.model.ID, c.window))
		case s.task+s.examples > 0 && s.around() >= c.window:
			return errs.Invalidf(field,
				"Field '%s': labels, instruction and examples have %d tokens and leave no room for the text in the %d tokens that model '%s' reads: send fewer or shorter ones",
				field, s.around(), c.window, c.model.ID)
		case c.options.OverflowPolicy == "truncate_text" && s.around() >= c.window,
			c.options.OverflowPolicy == "error" && s.around() >= c.window:
			return errs.TooLong(field, fmt.Sprintf(
				"Field '%s': the labels have %d tokens and leave no room for the text in the %d that model '%s' reads: send fewer or shorter labels",
				field, s.around(), c.window, c.model.ID))
		}
	}
	return nil
}

// cutTexts cuts a long text to what a row can read of it, so that the work of many rows does not
// grow with what none reads. It ends where a word does. A text of which a row could read more than
// the bound has its item's error.
func (c *gliclassRun) cutTexts() error {
	most := max(maxRowChars*c.reader.limit, maxItemChars/len(c.ask.rows))
	c.texts = c.run.texts(0, len(c.req.Inputs))
	for i, text := range c.texts {
		if len(text) <= most || utf8.RuneCountInString(text) <= most {
			continue
		}
		end := 0
		for range most {
			_, n := utf8.DecodeRuneInString(text[end:])
			end += n
		}
		text = text[:max(0, strings.LastIndexAny(text[:end], " \t\r\n"))]
		var b tokenizer.Batch
		err := c.use.Tokenizer().EncodeParallel(c.ctx, &b, []string{text},
			tokenizer.Options{NoSpecial: true, MaxTokens: c.window + roomBehind})
		if err != nil {
			return c.reader.textError(err, i*len(c.ask.rows))
		}
		if c.texts[i] = text; b.Truncated[0] {
			continue
		}
		place := c.reader.location(i * len(c.ask.rows))
		c.fail(i, errs.TooLong(place, fmt.Sprintf(
			"Field '%s': what model '%s' reads of the text has more than %d characters, too many to read once for each of %d groups: shorten it, or send fewer groups or options.group_encoding=joint",
			place, c.model.ID, most, len(c.ask.rows))))
		c.texts[i] = ""
	}
	return nil
}

// read tokenizes rows [first, end). A row whose text is cut is made again of a shorter text if the
// request says truncate_text.
func (c *gliclassRun) read(first, end int) ([][]int32, error) {
	start := time.Now()
	t, r := c.use.Tokenizer(), c.reader
	fused := make([]string, end-first)
	for i := range fused {
		fused[i] = c.fuse(first+i, r.lower(c.text(first+i)))
	}
	var b tokenizer.Batch
	if err := t.EncodeParallel(r.ctx, &b, fused, r.cuts()); err != nil {
		return nil, r.textError(err, first)
	}
	out := make([][]int32, end-first)
	for i := range out {
		out[i] = b.Text(i)
		if b.Truncated[i] {
			var err error
			if out[i], err = c.cut(first+i, out[i]); err != nil {
				return nil, err
			}
		}
	}
	r.took += time.Since(start)
	return out, nil
}

// row is the number of a row among those of its item; text is the item's.
func (c *gliclassRun) row(number int) int { return number % len(c.ask.rows) }
func (c *gliclassRun) text(number int) string {
	if c.texts != nil {
		return c.texts[c.reader.item(number)]
	}
	return c.req.Inputs[c.reader.item(number)].Text
}

// fuse puts the text of a row between its labels and examples.
func (c *gliclassRun) fuse(number int, text string) string {
	row := &c.ask.rows[c.row(number)]
	before, behind := row.prompt()+c.ask.task, formatExamples(row.examples)
	if c.layout.PromptFirst {
		return before + text + behind
	}
	return text + before + behind
}

// cut does with a row that was too long what the request says: it refuses it, or shortens the text
// alone. ids are what the tokenizer left.
func (c *gliclassRun) cut(number int, ids []int32) ([]int32, error) {
	r, size := c.reader, c.sizes[c.row(number)]
	switch r.options.OverflowPolicy {
	case "error":
		return ids, r.refuseCut(true, number)
	case "truncate_text":
	default:
		if c.layout.PromptFirst && c.window-size.labels-size.task < roomForText {
			place := r.location(number)
			return ids, r.refuse(number, errs.TooLong(place, fmt.Sprintf(
				"Field '%s': the labels leave the text fewer than %d of the %d tokens that model '%s' reads: send fewer or shorter labels",
				place, roomForText, c.window, c.model.ID)))
		}
		return ids, nil
	}
	text := r.lower(c.text(number))
	placed, err := c.use.Tokenizer().EncodeSpans(c.ctx, []string{text},
		tokenizer.Options{NoSpecial: true, MaxTokens: c.window - size.around()})
	if err != nil {
		return ids, r.textError(err, number)
	}
	end := 0
	for _, token := range placed[0].Tokens {
		end = max(end, int(token.End))
	}
	var b tokenizer.Batch
	err = c.use.Tokenizer().EncodeParallel(c.ctx, &b, []string{c.fuse(number, text[:end])}, r.cuts())
	if err != nil {
		return ids, r.textError(err, number)
	}
	return b.Text(0), nil
}

// bill counts the tokens of a row of n tokens without the names of labels, which are no one's text.
// A row of an item that has failed costs what run.logits takes back.
func (c *gliclassRun) bill(number, n int) {
	size := c.sizes[c.row(number)]
	if c.result.Found[c.reader.item(number)].Err == nil {
		n = max(0, n-size.labels-size.names)
	}
	c.reader.tokens += n
}

// check fails the item of a row without a text, and of one that does not show its labels: some were
// cut, or the text has more.
func (c *gliclassRun) check(number int, ids []int32, rows *arch.LabelRows) error {
	labels, place := len(c.ask.rows[c.row(number)].labels), c.reader.location(number)
	var why *errs.Error
	text := c.text(number)
	drops, err := c.drops(number, ids)
	switch {
	case err != nil:
		return err
	case words.IsBlank(text):
		why = errs.Invalidf(place, "Field '%s' is blank and has no text to classify; a text with words is wanted",
			place)
	case drops:
		why = c.reader.dropped(number)
	case reservedIn(text) != "":
		why = errs.Invalidf(place, "Field '%s' has %s, which marks labels for the model; remove it", place,
			reservedIn(text))
	case len(rows.First) > labels:
		why = errs.Invalidf(place,
			"Field '%s' has what the tokenizer of model '%s' reads as the marker of a label; leave that out",
			place, c.model.ID)
	case len(rows.First) < labels:
		why = errs.TooLong(place, fmt.Sprintf(
			"Field '%s' leaves %d of %d labels in the %d tokens that model '%s' reads: shorten it, or send options.overflow_policy=truncate_text",
			place, len(rows.First), labels, c.window, c.model.ID))
	default:
		return nil
	}
	c.fail(c.reader.item(number), c.reader.about(number, why))
	*rows = arch.LabelRows{}
	return nil
}

// seam is the number of tokens by which a row may differ from its parts, which meet in it.
const seam = 2

// drops reports whether the tokenizer leaves no token of a row's text.
func (c *gliclassRun) drops(number int, ids []int32) (bool, error) {
	special := c.use.Tokenizer().CountSpecial(false)
	if len(ids) > c.sizes[c.row(number)].around()+special+seam {
		return false, nil
	}
	return c.reader.drops(c.text(number), number)
}
