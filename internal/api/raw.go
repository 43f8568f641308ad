package api

// Raw is a free-form value in its original form: checked for structure and text, not decoded. Data
// aliases the request's copy of the body. The zero Raw is an absent value.
type Raw struct {
	Format Format
	Data   []byte
}

// Empty reports whether there is no value.
func (r Raw) Empty() bool { return len(r.Data) == 0 }

// Value decodes r into copies: nil, bool, int64, float64, string, []byte, []any and map[string]any.
// It returns an error that names field when r holds more than limit values; the limit bounds the
// memory that a small body can cost.
func (r Raw) Value(field string, limit int) (any, error) {
	if r.Empty() {
		return nil, nil
	}
	x, err := r.Format.source(r.Data).tree(&walk{build: true, field: field, maxValues: limit}, 0)
	return x, toAPI(err)
}

// source returns a source of data. A JSON source may change data, but its method tree does not.
func (f Format) source(data []byte) source {
	if f == JSON {
		return &jsonBody{b: data}
	}
	return &mpack{b: data}
}
