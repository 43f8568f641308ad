package arch

import (
	"io/fs"

	"github.com/sie-engine/sie/internal/files"
)

// AddedTokens returns the special tokens that a model in dir was trained with beside those of its
// tokenizer's files, in the order of their ids: the markers of a prompt. Those that the files have
// keep their ids. A task without markers has none.
func (t Task) AddedTokens(dir string) ([]string, error) {
	if t.head == nil || t.added == nil {
		return nil, nil
	}
	return t.added(files.Dir(dir))
}

// classTokenKey is the key of the id of a label's marker.
const classTokenKey = "class_token_index"

// glinerUnused is a token that the package adds before the markers and never writes.
const glinerUnused = "[FLERT]"

// glinerTokens returns what the package adds to the tokenizer of a backbone. A configuration that
// says both the id of a label's marker and the size of the vocabulary is of a model whose tokenizer
// has the markers, and gets none; nor does one of a bi-encoder, which has no prompt.
func glinerTokens(dir fs.FS) ([]string, error) {
	c, err := readGLiNERConfig(dir)
	if err != nil || !c.resized() || c.isBi() {
		return nil, err
	}
	if c.Relations != nil {
		return []string{c.EntToken, c.SepToken, c.RelToken}, nil
	}
	return []string{glinerUnused, c.EntToken, c.SepToken}, nil
}

// CheckTokens checks that a model's markers are tokens, and that the id of a label's or a
// relation's marker, where the configuration says one, is that of its token: with another one no
// label is ever found. id looks up a token. The error is a *ModelError. A model without a prompt
// has no markers.
func (g *GLiNER) CheckTokens(id func(token string) (int32, bool)) error {
	if g == nil || g.Tower != nil {
		return nil
	}
	type marker struct{ key, token string }
	markers := []marker{{"ent_token", g.EntToken}, {"sep_token", g.SepToken}}
	if g.Relations != nil {
		markers = append(markers, marker{"rel_token", g.Relations.Token})
	}
	for _, t := range markers {
		if _, ok := id(t.token); !ok {
			return refuse(glinerFile, t.key,
				"is %q, and the tokenizer has no such token; save it with one, or set %s and vocab_size to -1",
				t.token, classTokenKey)
		}
	}
	if err := checkMarker(classTokenKey, g.ClassToken, g.EntToken, id); err != nil || g.Relations == nil {
		return err
	}
	return checkMarker("rel_token_index", g.Relations.Class, g.Relations.Token, id)
}

// checkMarker checks the id that the configuration says of a marker under key; -1: none.
func checkMarker(key string, said int32, token string, id func(token string) (int32, bool)) error {
	if marker, _ := id(token); said >= 0 && said != marker {
		return refuse(glinerFile, key, "is %d, and %s is the token %d", said, token, marker)
	}
	return nil
}
