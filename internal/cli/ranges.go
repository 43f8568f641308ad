package cli

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Every flag that is a number or a duration has a tag range with the values that it takes, such as
// "1..64" or "0|10..86400". Both ends are included; the values before | are allowed too. The
// package that takes the value may rely on the range. A test of its command fails for a flag
// without the tag.

// Bounds holds the values that a flag takes, in nanoseconds for a duration.
type Bounds struct {
	Min, Max float64
	Besides  []float64
	Text     string // in the words of messages and the help
}

var durationType = reflect.TypeFor[time.Duration]()

// Numeric reports whether a flag is a number or a duration.
func Numeric(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	}
	return false
}

// number returns the value of a flag whose type is Numeric.
func number(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	return v.Float()
}

// ParseBounds parses the tag range of a flag of type t.
func ParseBounds(tag string, t reflect.Type) (b Bounds, err error) {
	read := func(s string) float64 {
		if t == durationType {
			d, e := time.ParseDuration(s)
			err = errors.Join(err, e)
			return float64(d)
		}
		x, e := strconv.ParseFloat(s, 64)
		err = errors.Join(err, e)
		return x
	}
	parts := strings.Split(tag, "|")
	span := parts[len(parts)-1]
	low, high, ok := strings.Cut(span, "..")
	if !ok {
		return b, fmt.Errorf("range %q: write least..most", tag)
	}
	b.Min, b.Max = read(low), read(high)
	b.Text = "between " + low + " and " + high
	for _, s := range parts[:len(parts)-1] {
		b.Besides = append(b.Besides, read(s))
		b.Text = s + " or " + b.Text
	}
	if err == nil && !(b.Min <= b.Max) {
		err = fmt.Errorf("range %q: the least is above the most", tag)
	}
	return b, err
}

// Has reports whether x is allowed. NaN never is, because it compares with nothing.
func (b Bounds) Has(x float64) bool {
	for _, v := range b.Besides {
		if x == v {
			return true
		}
	}
	return x >= b.Min && x <= b.Max
}

// CheckRanges returns an error for every flag of a command that is out of range. It does not matter
// whether the value came from the command line, the environment or a default.
func CheckRanges(k *kong.Context) error {
	given := map[*kong.Flag]bool{}
	for _, p := range k.Path {
		if p.Flag != nil {
			given[p.Flag] = true
		}
	}
	var all []error
	for _, f := range k.Flags() {
		if !Numeric(f.Target.Type()) {
			continue
		}
		b, err := ParseBounds(f.Tag.Get("range"), f.Target.Type())
		switch {
		case err != nil:
			all = append(all, fmt.Errorf("--%s: %w", f.Name, err))
		case !b.Has(number(f.Target)):
			all = append(all, fmt.Errorf("--%s must be %s; got %v%s",
				f.Name, b.Text, f.Target.Interface(), origin(f, given[f])))
		}
	}
	return errors.Join(all...)
}

// origin names the environment variable that gave a flag its value, because the person who set it
// may not know the flag.
func origin(f *kong.Flag, given bool) string {
	if name, set := variable(f); set && !given {
		return " from " + name
	}
	return ""
}
