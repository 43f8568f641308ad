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
