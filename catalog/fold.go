package catalog

import (
	"fmt"
	"strings"
)

// MUVERAConfig describes how a multivector is folded into one dense vector. The folding uses
// repetitions of a random partition of the token space, a sum per partition, and an optional final
// sketch.
type MUVERAConfig struct {
	Repetitions        int // R
	SimHashProjections int // k; 2^k partitions per repetition
	ProjectionDim      int // per partition; 0 = the token vectors' own width
	FinalProjectionDim int // length after the final sketch; 0 = no sketch
	Seed               int64
	Normalize          bool
	CenterTokens       bool // subtract the mean token first
	FillEmpty          bool // documents: an empty partition gets its nearest token
}

// maxFoldedDim bounds the folded vector: 16 Mi floats is 64 MiB for one text.
const maxFoldedDim = 1 << 24

// UnsketchedDim returns the length before the final sketch, R·2^k·p. p is ProjectionDim, or
// tokenDim if that is 0.
func (c *MUVERAConfig) UnsketchedDim(tokenDim int) int {
	p := c.ProjectionDim
	if p == 0 {
		p = tokenDim
	}
	return c.Repetitions << c.SimHashProjections * p
}

// OutputDim returns the length of the folded vector. The final sketch can only shorten it.
func (c *MUVERAConfig) OutputDim(tokenDim int) int {
	d := c.UnsketchedDim(tokenDim)
	if c.FinalProjectionDim > 0 && c.FinalProjectionDim < d {
		return c.FinalProjectionDim
	}
	return d
}

func asMUVERA(v any) (*MUVERAConfig, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("expected a map, got %s", describe(v))
	}
	c := &MUVERAConfig{Repetitions: 40, SimHashProjections: 6, FinalProjectionDim: 10240, Seed: 42}
	err := readFold(m, c.fields())
	if err == nil && c.UnsketchedDim(1) > maxFoldedDim {
		err = fmt.Errorf("the folded vector would have %d or more numbers; the limit is %d",
			c.UnsketchedDim(1), maxFoldedDim)
	}
	return c, err
}

func (c *MUVERAConfig) fields() map[string]foldField {
	return map[string]foldField{
		"num_repetitions":         {num: &c.Repetitions, lo: 1, hi: 4096},
		"num_simhash_projections": {num: &c.SimHashProjections, lo: 1, hi: 16},
		"projection_dim":          {num: &c.ProjectionDim, lo: 1, hi: 65536, nullable: true},
		"final_projection_dim":    {num: &c.FinalProjectionDim, lo: 1, hi: maxFoldedDim, nullable: true},
		"seed":                    {seed: &c.Seed},
		"normalize":               {flag: &c.Normalize},
		"center_tokens":           {flag: &c.CenterTokens},
		"fill_empty":              {flag: &c.FillEmpty},
	}
}

// SMVEConfig describes how a multivector is folded into one sparse vector. Every token keeps the K
// largest of Width random projections.
type SMVEConfig struct {
	Width       int
	K           int
	Repetitions int
	Seed        int64
	MaxNonzeros int // 0 = all
}

func asSMVE(v any) (*SMVEConfig, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("expected a map, got %s", describe(v))
	}
	c := &SMVEConfig{Width: 65536, K: 32, Repetitions: 1, Seed: 42}
	err := readFold(m, c.fields())
	switch {
	case err != nil:
	case c.K > c.Width:
		err = fmt.Errorf("k (%d) must not exceed width (%d)", c.K, c.Width)
	case c.Width*c.Repetitions > maxFoldedDim:
		err = fmt.Errorf("width times num_repetitions is %d; the limit is %d",
			c.Width*c.Repetitions, maxFoldedDim)
	}
	return c, err
}

func (c *SMVEConfig) fields() map[string]foldField {
	return map[string]foldField{
		"width":           {num: &c.Width, lo: 1, hi: maxFoldedDim},
		"k":               {num: &c.K, lo: 1, hi: maxFoldedDim},
		"num_repetitions": {num: &c.Repetitions, lo: 1, hi: 4096},
		"max_nonzeros":    {num: &c.MaxNonzeros, lo: 1, hi: maxFoldedDim, nullable: true},
		"seed":            {seed: &c.Seed},
	}
}

// foldByDefault sets the default configuration of each folding that the file does not configure, as
// the reference does for late-interaction models.
func (o *LoadtimeOptions) foldByDefault() (err error) {
	if o.MUVERA == nil {
		o.MUVERA, err = asMUVERA(map[string]any{})
	}
	if err == nil && o.SMVE == nil {
		o.SMVE, err = asSMVE(map[string]any{})
	}
	return err
}

// foldField is the destination of one key of a sketch map; exactly one pointer is set. null sets
// a nullable number to 0 and leaves any other value at its default.
type foldField struct {
	num      *int
	lo, hi   int64
	nullable bool
	seed     *int64
	flag     *bool
}

func readFold(m map[string]any, known map[string]foldField) error {
	names := make([]string, 0, len(known))
	for _, k := range sortedKeys(m) {
		if _, ok := known[k]; ok {
			continue
		}
		if len(names) == 0 {
			for n := range known {
				names = append(names, n)
			}
		}
		if near := closeMatches(k, names, 1, suggestCutoff); len(near) > 0 {
			return fmt.Errorf("unknown key %q; did you mean %q?", clip(k), near[0])
		}
		return fmt.Errorf("unknown key %q", clip(k))
	}
	for _, k := range sortedKeys(m) {
		f, v := known[k], m[k]
		if v == nil {
			if f.nullable {
				*f.num = 0
			}
			continue
		}
		var err error
		switch {
		case f.num != nil:
			*f.num, err = asInt(v, f.lo, f.hi)
		case f.seed != nil:
			var s int
			s, err = asInt(v, 0, 1<<53)
			*f.seed = int64(s)
		default:
			*f.flag, err = asBool(v)
		}
		if err != nil {
			return fmt.Errorf("%s: %s", k, strings.TrimSpace(err.Error()))
		}
	}
	return nil
}

// asFold reads the option that turns a folding on: true, or a map that may repeat the model's
// configuration. known holds the keys of that map; their values are checked but not kept.
func asFold(v any, known map[string]foldField) (on bool, err error) {
	switch x := v.(type) {
	case bool:
		return x, nil
	case map[string]any:
		return true, readFold(x, known)
	}
	return false, fmt.Errorf("expected true, false or a map, got %s", describe(v))
}

// sameFold returns an error for the first key of m that differs from the model's configuration.
// It writes each key of m into fields and then calls same to compare. config is the name of the
// configuration in the model file.
func sameFold(m map[string]any, config string, fields map[string]foldField, same func() bool) error {
	for _, key := range sortedKeys(m) {
		was := fields[key].value()
		if err := readFold(map[string]any{key: m[key]}, fields); err != nil {
			return err
		}
		if !same() {
			return fmt.Errorf(
				"%s: the model folds with %v, which is settled when it is loaded; remove the key, or set it in %s of the model's file",
				key, was, config)
		}
	}
	return nil
}

// value returns the value of a field, or "null" for a number that is not set.
func (f foldField) value() any {
	switch {
	case f.num != nil && f.nullable && *f.num == 0:
		return "null"
	case f.num != nil:
		return *f.num
	case f.seed != nil:
		return *f.seed
	}
	return *f.flag
}
