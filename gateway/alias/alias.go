// Package alias knows model names that stand for others: a name has targets with weights, and each
// request gets one of them, always the same for the same request id.
//
// Entry points: Parse, Table.Target. A Table never changes.
package alias

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// The bounds of a table.
const (
	maxBytes   = 1 << 20
	maxAliases = 1000
	maxTargets = 100
	maxName    = 256
	maxWeight  = 1_000_000
)

// Target is a model that a name stands for, and the weight of its share of the requests.
type Target struct {
	Model  string `json:"model"`
	Weight uint64 `json:"weight"`
}

// Table holds the targets by name.
type Table map[string][]Target

// Parse reads a JSON object of names, each with a list of {"model","weight"}.
func Parse(text string) (Table, error) {
	if len(text) > maxBytes {
		return nil, fmt.Errorf("the aliases have %d bytes; the limit is %d", len(text), maxBytes)
	}
	if err := unique(json.NewDecoder(strings.NewReader(text)), "", 0); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	var t Table
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("the aliases are no object of {\"name\":[{\"model\",\"weight\"}]}: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the aliases")
	}
	if len(t) > maxAliases {
		return nil, fmt.Errorf("there are %d aliases; the limit is %d", len(t), maxAliases)
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if name == "" || len(name) > maxName {
			return nil, fmt.Errorf("alias %.32q: a name has 1 to %d bytes", name, maxName)
		}
		list := t[name]
		if len(list) == 0 || len(list) > maxTargets {
			return nil, fmt.Errorf("alias %q has %d targets; use 1 to %d", name, len(list), maxTargets)
		}
		seen := map[string]bool{}
		for i, x := range list {
			_, again := t[x.Model]
			switch {
			case x.Model == "" || len(x.Model) > maxName:
				return nil, fmt.Errorf("alias %q, target %d: model has 1 to %d bytes", name, i, maxName)
			case x.Weight < 1 || x.Weight > maxWeight:
				return nil, fmt.Errorf("alias %q, target %d: weight is %d; use 1 to %d", name, i, x.Weight,
					maxWeight)
			case seen[x.Model]:
				return nil, fmt.Errorf("alias %q: model %q is there twice", name, x.Model)
			case again && x.Model != name: // its own name is the model that it takes the place of
				return nil, fmt.Errorf("alias %q: target %q is an alias too", name, x.Model)
			}
			seen[x.Model] = true
		}
	}
	return t, nil
}

// maxDepth bounds the nesting of a table, and what is looked at of a text that is none.
const maxDepth = 8

// unique refuses an object that has a key twice: of two lists for one name one would be dropped.
// What is no JSON is told by the caller. in is where the value is, "" for the whole.
func unique(d *json.Decoder, in string, depth int) error {
	token, err := d.Token()
	open, nested := token.(json.Delim)
	if err != nil || !nested || depth > maxDepth {
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		at := in
		if open == '{' {
			key, err := d.Token()
			name, ok := key.(string)
			if err != nil || !ok {
				return nil
			}
			if seen[name] {
				return fmt.Errorf("the aliases%s: the key %q is there twice", in, name)
			}
			seen[name] = true
			at = fmt.Sprintf("%s, %q", in, name)
		}
		if err := unique(d, at, depth+1); err != nil {
			return err
		}
	}
	_, _ = d.Token() // the end of it
	return nil
}

// Target returns the model that a name stands for in a request, or false for a name that is none.
func (t Table) Target(name, request string) (string, bool) {
	list := t[name]
	if len(list) == 0 {
		return "", false
	}
	total := uint64(0)
	for _, x := range list {
		total += x.Weight
	}
	sum := sha256.Sum256([]byte(request))
	at, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), total) // evenly from 0 to total-1
	for _, x := range list {
		if at < x.Weight {
			return x.Model, true
		}
		at -= x.Weight
	}
	panic("alias: internal error: weights do not add up")
}

// Names returns the names that stand for a model, sorted, by model. A name that stands for itself
// alone is none.
func (t Table) Names() map[string][]string {
	out := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		for _, x := range t[name] {
			if x.Model != name {
				out[x.Model] = append(out[x.Model], name)
			}
		}
	}
	return out
}

// Heaviest returns the target of a name that has the most weight, the first of several.
func (t Table) Heaviest(name string) string {
	var best Target
	for _, x := range t[name] {
		if x.Weight > best.Weight {
			best = x
		}
	}
	return best.Model
}
