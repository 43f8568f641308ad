package api

import (
	"errors"
	"strconv"
)

// items reads the list of items.
func (d *decoder) items(list *[]Item) error {
	_, err := d.elements(wantArray,
		func(n int) { *list = make([]Item, 0, n) },
		func(i int) error {
			*list = append(*list, Item{})
			return d.item(&(*list)[i], "items", i)
		})
	return err
}

// item reads one item into it. field and index (negative: none) name the item in an error about its
// size. That error is returned only if the whole body is well formed.
func (d *decoder) item(it *Item, field string, index int) error {
	*it = Item{} // a repeated key replaces the whole item
	var metadata int
	var content string
	var hasContent, foreign bool
	from := d.src.pos()
	extra := func() *ItemExtra {
		if it.Extra == nil {
			it.Extra = &ItemExtra{}
		}
		return it.Extra
	}
	_, err := d.fields(wantObject, func(key string) (err error) {
		switch key {
		case "id":
			it.ID, it.HasID, err = d.str()
		case "text":
			it.Text, it.HasText, err = d.str()
		case "content":
			if !d.lim.AcceptContent {
				foreign = true
				return d.src.skip()
			}
			content, hasContent, err = d.str()
		case "second", "tokens":
			if !d.lim.AcceptForeign {
				foreign = true
				return d.src.skip()
			}
			if key == "second" {
				extra().Second, err = d.strPointer()
			} else {
				extra().Tokens, err = d.itemTokens()
			}
		case "images":
			extra().Images, err = d.images()
		case "audio":
			extra().Audio, err = d.media(true)
		case "video":
			extra().Video, err = d.media(false)
		case "document":
			extra().Document, err = d.media(false)
		case "metadata":
			var w walk
			extra().Metadata, w, err = d.free()
			if metadata = w.size; w.values <= 1 {
				metadata = 0 // empty or null
			}
		default:
			err = d.src.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if hasContent && !it.HasText {
		it.Text, it.HasText = content, true
	}
	if d.lim.KeepItems && d.format == Msgpack && !foreign {
		it.Raw = text(d.src.span(from))
	}
	d.checkSize(it, metadata, field, index)
	return nil
}

// itemTokens reads a list of token ids or null. An empty list is a list, not an absent one. Its
// memory is bounded by the item's bytes.
func (d *decoder) itemTokens() ([]int32, error) {
	v, err := d.want(wantArrayOrNull)
	if err != nil || v.kind == kindNull {
		return nil, err
	}
	ids := make([]int32, 0, min(max(v.n, 0), d.left(), 4096))
	err = d.list(v, func(int) error {
		e, err := d.want(wantToken)
		if err == nil {
			ids, err = appendToken(ids, e)
		}
		return err
	})
	return ids, err
}

// checkSize applies the bound on one item's text and metadata.
func (d *decoder) checkSize(it *Item, metadata int, field string, index int) {
	limit := d.lim.itemTextLimit()
	if limit < 0 || len(it.Text)+metadata <= limit {
		return
	}
	what := "text"
	if metadata > 0 {
		what = "text and metadata"
	}
	d.postpone(tooMuchText(place(field, index), limit, what))
}

func tooMuchText(place string, limit int, what string) error {
	return placed("."+place,
		"Field '"+place+"' must hold at most "+strconv.Itoa(limit)+" bytes of UTF-8 "+what)
}

func place(field string, index int) string {
	if index < 0 {
		return field
	}
	return field + "[" + strconv.Itoa(index) + "]"
}

func (d *decoder) images() ([]Media, error) {
	var out []Media
	_, err := d.elements(wantArrayOrNull,
		func(n int) { out = make([]Media, 0, min(n, 64)) },
		func(int) error {
			v, err := d.want(wantImage)
			if err != nil {
				return err
			}
			if v.kind == kindBytes {
				out = append(out, Media{Data: v.b})
				return nil
			}
			out = append(out, Media{})
			return d.mediaFields(v, false, &out[len(out)-1])
		})
	return out, err
}

// media reads one audio, video, document or null. Audio is strict: it needs data and allows no
// unknown field.
func (d *decoder) media(audio bool) (*Media, error) {
	v, err := d.want(wantObjectOrNull)
	if err != nil || v.kind == kindNull {
		return nil, err
	}
	m := &Media{}
	return m, d.mediaFields(v, audio, m)
}

// mediaFields reads the entries of the media object v into m.
func (d *decoder) mediaFields(v value, audio bool, m *Media) error {
	hasData := false
	err := d.entries(v, func(key string) (err error) {
		switch {
		case key == "data":
			var b value
			b, err = d.want(wantBytes)
			m.Data, hasData = b.b, true
		case key == "format":
			m.Format, _, err = d.str()
		case audio && key == "sample_rate":
			var n value
			n, err = d.want(wantIntOrNull)
			if m.SampleRate = n.i; n.big || n.i < 0 {
				err = located("Expected a sample rate in hertz, 0 or more")
			}
		case audio:
			return &unknownField{key}
		default:
			err = d.src.skip()
		}
		return err
	})
	if u, ok := errors.AsType[*unknownField](err); ok {
		if err := checkUTF8([]byte(u.key)); err != nil {
			return err
		}
		return located("Object contains unknown field `" + clipped(u.key) + "`")
	}
	if err == nil && audio && !hasData {
		err = missing("data")
	}
	return err
}

// unknownField is the error of a field callback for an unknown field; its place is the object, not
// the field.
type unknownField struct{ key string }

func (u *unknownField) Error() string { return "unknown field " + u.key }
