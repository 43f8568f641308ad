package arch

// sized is a whole number of a configuration, under its key there, with the least and the largest
// that are possible.
type sized struct {
	key             string
	value, from, to int64
}

// checkSizes refuses sizes of config.json that are missing or that no model has.
func checkSizes(sizes ...sized) error {
	for _, s := range sizes {
		if s.value < s.from || s.value > s.to {
			return refuse(configFile, s.key, "is %d or missing; %d to %d is possible", s.value, s.from, s.to)
		}
	}
	return nil
}

// encoderSizes are the sizes that every encoder has, under the keys of its configuration.
type encoderSizes struct {
	hidden, heads, layers, inner, positions, vocab keyed
}

// keyed is a whole number of a configuration, under its key there.
type keyed struct {
	key   string
	value int64
}

func (k keyed) within(from, to int64) sized { return sized{k.key, k.value, from, to} }

// check refuses sizes that no encoder has, those of more, and heads that do not divide the columns.
func (e *encoderSizes) check(more ...sized) error {
	if err := checkSizes(append([]sized{
		e.hidden.within(1, 8192),
		e.heads.within(1, 256),
		e.layers.within(1, 128),
		e.inner.within(1, 65536),
		e.positions.within(1, 1<<17),
		e.vocab.within(1, 1<<22),
	}, more...)...); err != nil {
		return err
	}
	return checkDivides(e.heads.key, e.heads.value, e.hidden.key, e.hidden.value)
}

// checkNamed refuses a name of the file that is not one of the table's.
func checkNamed[V any](key, name string, table map[string]V) error {
	if _, ok := table[name]; !ok {
		return refuse(configFile, key, "is %.60q; supported are %s", name, listed(table))
	}
	return nil
}

// checkDivides refuses the number under key unless it divides the one under ofKey.
func checkDivides(key string, n int64, ofKey string, of int64) error {
	if of%n != 0 {
		return refuse(configFile, key, "is %d, which does not divide %s %d", n, ofKey, of)
	}
	return nil
}

// checkEpsilon refuses what is no epsilon of a norm.
func checkEpsilon(key string, eps float64) error {
	if !(eps > 0 && eps < 1) {
		return refuse(configFile, key, "is %g; it must be above 0 and below 1", eps)
	}
	return nil
}
