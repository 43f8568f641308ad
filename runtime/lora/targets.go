package lora

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// targets says which modules of the trained model have an adapter, by the rules of PEFT's
// check_target_module_exists.
type targets struct {
	any     bool           // target_modules is null or "all-linear"
	pattern *regexp.Regexp // target_modules is a regular expression for the whole name
	names   []string       // or a list of names or their ends

	notPattern *regexp.Regexp // exclude_modules
	notNames   []string

	layers []int            // layers_to_transform, with names; nil: all
	layer  []*regexp.Regexp // the first that matches finds the number of a layer
}

func readTargets(keys map[string]json.RawMessage) (t targets, err error) {
	if t.pattern, t.names, err = readNames("target_modules", keys["target_modules"]); err != nil {
		return t, err
	}
	var word string
	_ = json.Unmarshal(keys["target_modules"], &word) // fails for a list, which leaves word empty
	t.any = word == "all-linear" || (t.pattern == nil && t.names == nil)
	if t.notPattern, t.notNames, err = readNames("exclude_modules", keys["exclude_modules"]); err != nil {
		return t, err
	}
	const layers = "layers_to_transform"
	if raw := keys[layers]; !bytes.Equal(raw, []byte("null")) && len(raw) > 0 {
		var one int
		if json.Unmarshal(raw, &one) == nil {
			t.layers = []int{one}
		} else if json.Unmarshal(raw, &t.layers) != nil {
			return t, refuse(configFile, layers,
				"is %s; a number or a list of numbers is possible", clip(raw))
		}
	}
	var patterns []string
	if raw := keys["layers_pattern"]; !empty(raw) {
		patterns = make([]string, 1)
		if json.Unmarshal(raw, &patterns[0]) != nil && json.Unmarshal(raw, &patterns) != nil {
			return t, refuse(configFile, "layers_pattern",
				"is %s; a text or a list of texts is possible", clip(raw))
		}
	}
	for _, p := range patterns {
		found, err := compile("layers_pattern", `\A(?:|.*?\.)`+p+`\.(?P<idx>\d+)\.`)
		if err != nil {
			return t, err
		}
		t.layer = append(t.layer, found)
	}
	if len(patterns) == 0 {
		t.layer = []*regexp.Regexp{regexp.MustCompile(`\A.*?\.[^.]*\.(?P<idx>\d+)\.`)}
	}
	return t, nil
}

// readNames reads a regular expression or a list of names. For null it returns neither.
func readNames(key string, raw json.RawMessage) (*regexp.Regexp, []string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil, nil
	}
	var pattern string
	if json.Unmarshal(raw, &pattern) == nil {
		found, err := compile(key, `\A(?:`+pattern+`)\z`)
		return found, nil, err
	}
	names := []string{}
	if json.Unmarshal(raw, &names) != nil {
		return nil, nil, refuse(configFile, key, "is %s; a text or a list of texts is possible", clip(raw))
	}
	return nil, names, nil
}

// compile compiles a regular expression written for Python's re. Syntax that both accept means the
// same in both. Go lacks what would take more than linear time: backreferences and lookaround.
func compile(key, pattern string) (*regexp.Regexp, error) {
	found, err := regexp.Compile(pattern)
	if err != nil {
		return nil, refuse(configFile, key,
			"has a regular expression that is not supported (%v); list the names instead", err)
	}
	return found, nil
}

// has reports whether the module with that full name has an adapter.
func (t *targets) has(module string) bool {
	switch {
	case t.notPattern != nil && t.notPattern.MatchString(module), endsIn(t.notNames, module):
		return false
	case t.any:
		return true
	case t.pattern != nil:
		return t.pattern.MatchString(module)
	case slices.Contains(t.names, module):
		return true
	}
	return endsIn(t.names, module) && (len(t.layers) == 0 || slices.Contains(t.layers, t.layerOf(module)))
}

func endsIn(names []string, module string) bool {
	return slices.ContainsFunc(names,
		func(n string) bool { return module == n || strings.HasSuffix(module, "."+n) })
}

// layerOf returns the number of the module's layer, or −1.
func (t *targets) layerOf(module string) int {
	for _, find := range t.layer {
		if m := find.FindStringSubmatch(module); m != nil {
			n, err := strconv.Atoi(m[find.SubexpIndex("idx")])
			if err != nil {
				return -1
			}
			return n
		}
	}
	return -1
}

// patterns maps modules to numbers. In the order of the file, the first entry counts whose pattern
// matches the module's whole name or the end of it after a dot.
type patterns []pattern

type pattern struct {
	key   string
	end   *regexp.Regexp
	value float64
}

func readPatterns(field string, raw json.RawMessage) (patterns, error) {
	if empty(raw) {
		return nil, nil
	}
	wrong := refuse(configFile, field, "is %s; an object of numbers is possible", clip(raw))
	// token by token, because a map would lose the order of the file
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, wrong
	}
	var out patterns
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, wrong
		}
		if len(out) == maxPatterns {
			return nil, refuse(configFile, field, "has more than %d entries", maxPatterns)
		}
		p := pattern{key: key.(string)} // a key is always a string
		if d.Decode(&p.value) != nil {
			return nil, wrong
		}
		if p.end, err = compile(field+"."+p.key, `\A(?:.*\.)?(?:`+p.key+`)\z`); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (p patterns) of(module string, otherwise float64) float64 {
	for _, one := range p {
		if one.end.MatchString(module) {
			return one.value
		}
	}
	return otherwise
}
