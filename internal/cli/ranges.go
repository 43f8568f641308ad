package cli

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Every flag that is a number or a duration says in its tag range which values it takes, "1..64" or
// "0|10..86400": both ends belong to it, and what stands before | is allowed besides. The package
// that takes the value may rely on it. A flag without the tag fails a test of its command.

// Bounds are the values that a flag takes, in nanoseconds for a duration.
type Bounds struct {
	Least, Most float64
	Besides     []float64
	Text        string // as messages and the help say it
}

var durationType = reflect.TypeFor[time.Duration]()

// Numeric says whether a flag is a number or a duration.
func Numeric(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32,
		reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	}
	return false
}

// number is the value of a flag whose type is Numeric.
func number(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	return v.Float()
}

// ParseBounds reads the tag range.
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
	least, most, ok := strings.Cut(span, "..")
	if !ok {
		return b, fmt.Errorf("range %q: write least..most", tag)
	}
	b.Least, b.Most = read(least), read(most)
	b.Text = "between " + least + " and " + most
	for _, s := range parts[:len(parts)-1] {
		b.Besides = append(b.Besides, read(s))
		b.Text = s + " or " + b.Text
	}
	if err == nil && !(b.Least <= b.Most) {
		err = fmt.Errorf("range %q: the least is above the most", tag)
	}
	return b, err
}

// Has says whether x is allowed; NaN never is: it compares with nothing.
func (b Bounds) Has(x float64) bool {
	for _, v := range b.Besides {
		if x == v {
			return true
		}
	}
	return x >= b.Least && x <= b.Most
}

// CheckRanges returns everything that is out of range among the flags of a command, wherever their
// values came from: command line, environment or default.
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
			all = append(all, fmt.Errorf("--%s must be %s; got %v%s", f.Name, b.Text, f.Target.Interface(), origin(f, given[f])))
		}
	}
	return errors.Join(all...)
}

// origin names the environment variable that gave a flag its value, since whoever set it may know
// of no flag.
func origin(f *kong.Flag, given bool) string {
	if !given {
		for _, name := range f.Envs {
			if _, ok := os.LookupEnv(name); ok {
				return " from " + name
			}
		}
	}
	return ""
}
