package api

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sie-engine/sie/internal/errs"
)

// The first item that an operation cannot read is named, in the client's words for the items.
func TestCheckItems(t *testing.T) {
	second := "b"
	plain, none := Item{Text: "a", HasText: true}, Item{Extra: &ItemExtra{Images: []Media{{}}}}
	tokens, noIDs := Item{Extra: &ItemExtra{Tokens: []int32{1}}}, Item{Extra: &ItemExtra{Tokens: []int32{}}}
	pair := Item{Text: "a", HasText: true, Extra: &ItemExtra{Second: &second}}
	blank := Item{HasText: true}
	for i, c := range []struct {
		items []Item
		field string
		reads Reads
		want  string // "param: message", or nothing
	}{
		{[]Item{plain, blank}, "", Reads{}, ""},
		{[]Item{tokens, noIDs}, "", Reads{Tokens: true}, ""},
		{[]Item{pair, pair}, "inputs", Reads{Second: true}, ""},
		{[]Item{plain, none}, "texts", Reads{Tokens: true},
			"items: Bert requires text input: Field 'items[1]' has no text"},
		{[]Item{plain, plain, tokens}, "inputs", Reads{},
			"inputs: Field 'inputs[2]' is a list of token ids; they are taken for vectors only"},
		{[]Item{noIDs}, "", Reads{Second: true},
			"items: Field 'items[0]' is a list of token ids; they are taken for vectors only"},
		{[]Item{tokens, plain}, "input", Reads{Tokens: true},
			"input: Field 'input[1]': a request has token ids in all of its inputs or in none"},
		{[]Item{pair}, "", Reads{Tokens: true},
			"items: Field 'items[0]' has two texts; they are taken for classification only"},
		{[]Item{pair, plain}, "inputs", Reads{Second: true},
			"inputs: Field 'inputs[1]': a request has a second text in all of its inputs or in none"},
	} {
		got := ""
		var e *errs.Error
		if err := CheckItems(c.items, c.field, "Bert", c.reads); errors.As(err, &e) {
			got = fmt.Sprintf("%s: %s", e.Param, e.Message)
		}
		if got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}
