package api

import "strconv"

// DecodeEncode reads the body of an encode request in the format that contentType names. It copies
// body once and does not keep it. Errors are *errs.Error: 400, or 413 for a body over the limit.
func DecodeEncode(contentType string, body []byte, lim Limits) (*EncodeRequest, error) {
	return decode(contentType, body, lim, func(d *decoder, r *EncodeRequest) error {
		return d.itemsAndParams(&r.Items, func() error { return d.encodeParams(r) })
	})
}

// DecodeScore does the same as DecodeEncode for score requests.
func DecodeScore(contentType string, body []byte, lim Limits) (*ScoreRequest, error) {
	return decode(contentType, body, lim, (*decoder).score)
}

// DecodeExtract does the same as DecodeEncode for extract requests.
func DecodeExtract(contentType string, body []byte, lim Limits) (*ExtractRequest, error) {
	return decode(contentType, body, lim, func(d *decoder, r *ExtractRequest) error {
		return d.itemsAndParams(&r.Items, func() error { return d.extractParams(r) })
	})
}

// decode calls read to fill an R from body, and turns read's errors into *errs.Error.
func decode[R any](contentType string, body []byte, lim Limits, read func(*decoder, *R) error) (*R, error) {
	d, err := open(bodyFormat(contentType), body, lim)
	if err != nil {
		return nil, err
	}
	r := new(R)
	if err := read(d, r); err != nil {
		return nil, toAPI(err)
	}
	return r, nil
}

// itemsAndParams reads a body of the shape that encode and extract share; params reads the value of
// "params".
func (d *decoder) itemsAndParams(items *[]Item, params func() error) error {
	hasItems := false
	_, err := d.fields(wantObject, func(key string) error {
		switch key {
		case "items":
			hasItems = true
			return d.items(items)
		case "params":
			return params()
		}
		return d.src.skip()
	})
	switch {
	case err != nil:
		return err
	case !hasItems:
		return missing("items")
	}
	d.checkCount(len(*items), "items", d.lim.MaxItems, "items")
	return d.close()
}

func (d *decoder) encodeParams(r *EncodeRequest) error {
	r.OutputTypes, r.OutputDType, r.Instruction, r.IsQuery, r.Options = nil, "", nil, nil, nil
	_, err := d.fields(wantObjectOrNull, func(key string) (err error) {
		switch key {
		case "output_types":
			r.OutputTypes, err = d.strings()
		case "output_dtype":
			r.OutputDType, _, err = d.str()
		case "instruction":
			r.Instruction, err = d.strPointer()
		case "is_query":
			r.IsQuery, err = d.flag()
		case "options":
			r.Options, err = d.options()
		default:
			err = d.src.skip()
		}
		return err
	})
	return err
}

// checkCount checks the number of items. Its error takes precedence over every postponed one.
func (d *decoder) checkCount(n int, field string, limit int, what string) {
	switch {
	case n == 0:
		d.late = placed("."+field, "Field '"+field+"' must not be empty")
	case limit > 0 && n > limit:
		d.late = placed("."+field, "Field '"+field+"' must contain at most "+strconv.Itoa(limit)+" "+what)
	}
}

func (d *decoder) score(r *ScoreRequest) error {
	hasQuery, hasItems := false, false
	_, err := d.fields(wantObject, func(key string) (err error) {
		switch key {
		case "query":
			hasQuery = true
			return d.item(&r.Query, "query", -1)
		case "items":
			hasItems = true
			return d.items(&r.Items)
		case "instruction":
			r.Instruction, err = d.strPointer()
		case "options":
			r.Options, err = d.options()
		default:
			err = d.src.skip()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !hasQuery:
		return missing("query")
	case !hasItems:
		return missing("items")
	}
	d.checkCount(len(r.Items), "items", d.lim.MaxScoreItems, "candidates")
	return d.close()
}

func (d *decoder) extractParams(r *ExtractRequest) error {
	r.Labels, r.OutputSchema, r.Instruction, r.Options = nil, Raw{}, nil, nil
	var schema walk
	var threshold *float64
	ok, err := d.fields(wantObjectOrNull, func(key string) (err error) {
		switch key {
		case "labels":
			r.Labels, err = d.strings()
		case "output_schema":
			r.OutputSchema, schema, err = d.free()
		case "instruction":
			r.Instruction, err = d.strPointer()
		case "threshold":
			threshold, err = d.number()
		case "options":
			r.Options, err = d.options()
		default:
			err = d.src.skip()
		}
		return err
	})
	if err != nil || !ok {
		return err
	}
	if _, given := r.Options["threshold"]; threshold != nil && !given {
		if r.Options == nil {
			r.Options = Options{}
		}
		r.Options["threshold"] = *threshold
	}
	switch n := d.lim.MaxLabels; {
	case n > 0 && len(r.Labels) > n:
		return placed(".labels", "Field 'labels' must contain at most "+strconv.Itoa(n)+" labels")
	case schema.values > maxSchemaValues:
		return placed(".output_schema",
			"Field 'output_schema' must contain at most "+strconv.Itoa(maxSchemaValues)+" values")
	case schema.depth > maxSchemaDepth:
		return placed(".output_schema", "Field 'output_schema' must nest objects and arrays at most "+
			strconv.Itoa(maxSchemaDepth)+" levels deep")
	}
	return nil
}
