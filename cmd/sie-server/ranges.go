package main

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

// Every flag that is a number or a duration says in its tag range which values it takes, "1..64" or "0|10..86400": both ends
// belong to it, and what stands before | is allowed besides. The package that takes the value may rely on it. A flag without
// the tag fails TestEveryNumberHasARange.

// bounds are the values that a flag takes, in nanoseconds for a duration.
type bounds struct {
	least, most float64
	besides     []float64
	text        string // as messages and the help say it
}

var durationType = reflect.TypeFor[time.Duration]()

// numeric says whether a flag is a number or a duration.
func numeric(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32,
		reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	}
	return false
}

// number is the value of a flag whose type is numeric.
func number(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	return v.Float()
}

// parseBounds reads the tag range.
func parseBounds(tag string, t reflect.Type) (b bounds, err error) {
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
	b.least, b.most = read(least), read(most)
	b.text = "between " + least + " and " + most
	for _, s := range parts[:len(parts)-1] {
		b.besides = append(b.besides, read(s))
		b.text = s + " or " + b.text
	}
	if err == nil && !(b.least <= b.most) {
		err = fmt.Errorf("range %q: the least is above the most", tag)
	}
	return b, err
}

// has says whether x is allowed; NaN never is: it compares with nothing.
func (b bounds) has(x float64) bool {
	for _, v := range b.besides {
		if x == v {
			return true
		}
	}
	return x >= b.least && x <= b.most
}

// checkRanges returns everything that is out of range among the flags of a command, wherever their values came from: command
// line, environment or default.
func checkRanges(k *kong.Context) error {
	given := map[*kong.Flag]bool{}
	for _, p := range k.Path {
		if p.Flag != nil {
			given[p.Flag] = true
		}
	}
	var all []error
	for _, f := range k.Flags() {
		if !numeric(f.Target.Type()) {
			continue
		}
		b, err := parseBounds(f.Tag.Get("range"), f.Target.Type())
		switch {
		case err != nil:
			all = append(all, fmt.Errorf("--%s: %w", f.Name, err))
		case !b.has(number(f.Target)):
			all = append(all, fmt.Errorf("--%s must be %s; got %v%s", f.Name, b.text, f.Target.Interface(), origin(f, given[f])))
		}
	}
	return errors.Join(all...)
}

// origin names the environment variable that gave a flag its value, since whoever set it may know of no flag.
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
