package api

// The functions of the wire_ files read and write parts of requests and answers as components send
// them to each other, each part as raw msgpack. Readers do not trust their input: memory is bounded
// by the bytes received.

// AppendItem appends it as a msgpack map that [ReadItem] reads: its Raw unchanged where it is kept,
// else its fields.
func AppendItem(dst []byte, it *Item) []byte {
	if it.Raw != "" {
		return append(dst, it.Raw...)
	}
	var w mpackWriter
	x := it.Extra
	if x == nil {
		x = &ItemExtra{}
	}
	n := 0
	for _, has := range [...]bool{
		it.HasID, it.HasText, x.Second != nil, x.Tokens != nil, x.Images != nil, x.Audio != nil,
		x.Video != nil, x.Document != nil, !x.Metadata.Empty(),
	} {
		if has {
			n++
		}
	}
	dst = w.object(dst, n)
	if it.HasID {
		dst = w.str(w.key(dst, "id"), it.ID)
	}
	if it.HasText {
		dst = w.str(w.key(dst, "text"), it.Text)
	}
	if x.Second != nil {
		dst = w.str(w.key(dst, "second"), *x.Second)
	}
	if x.Tokens != nil {
		dst = AppendTokenIDs(w.key(dst, "tokens"), x.Tokens)
	}
	if x.Images != nil {
		dst = w.list(w.key(dst, "images"), len(x.Images))
		for i := range x.Images {
			dst = appendMedia(dst, &x.Images[i])
		}
	}
	for _, m := range [...]struct {
		key   string
		media *Media
	}{{"audio", x.Audio}, {"video", x.Video}, {"document", x.Document}} {
		if m.media != nil {
			dst = appendMedia(w.key(dst, m.key), m.media)
		}
	}
	if !x.Metadata.Empty() {
		dst = AppendRaw(w.key(dst, "metadata"), x.Metadata)
	}
	return dst
}

func appendMedia(dst []byte, m *Media) []byte {
	var w mpackWriter
	n := 0
	for _, has := range [...]bool{m.Data != nil, m.Format != "", m.SampleRate != 0} {
		if has {
			n++
		}
	}
	dst = w.object(dst, n)
	if m.Data != nil {
		dst = w.bytes(w.key(dst, "data"), m.Data)
	}
	if m.Format != "" {
		dst = w.str(w.key(dst, "format"), m.Format)
	}
	if m.SampleRate != 0 {
		dst = w.int(w.key(dst, "sample_rate"), m.SampleRate)
	}
	return dst
}

// ReadItem reads an item that AppendItem wrote, or an item of a client's msgpack body, as
// items[index] of a body is read: with the same bounds and the same errors, which are *errs.Error.
// A negative index stands for a score's query. The item aliases raw, which must not change.
func ReadItem(raw []byte, index int, lim Limits) (Item, error) {
	d := decoder{src: &mpack{b: raw}, format: Msgpack, lim: lim}
	field := "items"
	if index < 0 {
		field = "query"
	}
	var it Item
	err := d.item(&it, field, index)
	if err != nil {
		return Item{}, toAPI(at(err, "."+place(field, index)))
	}
	if err := d.close(); err != nil {
		return Item{}, toAPI(err)
	}
	return it, nil
}
