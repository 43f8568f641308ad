package api

// Raw is a free-form value kept as it arrived: checked for structure and text, not decoded. Data
// aliases the request's copy of the body. The zero Raw means that there is none.
type Raw struct {
	Format Format
	Data   []byte
}

// Empty reports whether there is no value.
func (r Raw) Empty() bool { return len(r.Data) == 0 }

// Value decodes r into nil, bool, int64, float64, string, []byte, []any and map[string]any, all of
// them copies. It returns an error when r holds more than limit values, which bounds the memory a
// small body can cost. field names it in that error.
func (r Raw) Value(field string, limit int) (any, error) {
	if r.Empty() {
		return nil, nil
	}
	x, err := r.Format.source(r.Data).tree(&walk{build: true, field: field, maxValues: limit}, 0)
	return x, toAPI(err)
}

// source reads data, which a JSON source may change, except by tree.
func (f Format) source(data []byte) source {
	if f == JSON {
		return &jsonBody{b: data}
	}
	return &mpack{b: data}
}
