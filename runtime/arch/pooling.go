package arch

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
)

// maxPoolings is the most modes of one Pooling module; sentence-transformers has as many.
const maxPoolings = 6

// poolingNames lists the modes as sentence-transformers names them, in the order in which it joins
// those that a file sets by flags. flag is the key of such a file.
var poolingNames = [...]struct {
	name, flag string
	mode       engine.Pooling
}{
	{"cls", "pooling_mode_cls_token", engine.PoolCLS},
	{"max", "pooling_mode_max_tokens", engine.PoolMax},
	{"mean", "pooling_mode_mean_tokens", engine.PoolMean},
	{"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", engine.PoolMeanSqrt},
	{"weightedmean", "pooling_mode_weightedmean_tokens", engine.PoolWeightedMean},
	{"lasttoken", "pooling_mode_lasttoken", engine.PoolLast},
}

// poolingOf returns the mode of that name.
func poolingOf(name string) (engine.Pooling, bool) {
	for _, p := range poolingNames {
		if p.name == name {
			return p.mode, true
		}
	}
	return 0, false
}

// pooled is a Pooling module.
type pooled struct {
	file        string           // its config.json
	modes       []engine.Pooling // whose rows stand next to each other, in this order
	skipsPrompt bool             // the rows of the prompt's tokens are left out
}

// meanPooling is that of a model whose files have no Pooling module.
var meanPooling = pooled{modes: []engine.Pooling{engine.PoolMean}}

// readPooling reads the config.json of a Pooling module. The old form has one flag per mode, the
// new form a name or a list of names, beside which flags have no effect.
func readPooling(dir fs.FS, module string) (pooled, error) {
	name := path.Join(module, configFile)
	keys := map[string]any{}
	if err := needJSON(dir, name, &keys); err != nil {
		return pooled{}, err
	}
	p := pooled{file: name}
	if include, set := keys["include_prompt"]; set && include != nil {
		included, isFlag := include.(bool)
		if !isFlag {
			return p, refuse(name, "include_prompt", "is %.60v; true and false are possible", include)
		}
		p.skipsPrompt = !included
	}
	names, err := poolingModes(name, keys)
	if err != nil {
		return p, err
	}
	for _, mode := range names {
		m, ok := poolingOf(mode)
		if !ok {
			return p, refuse(name, "pooling_mode", "%.60q is not supported; %s are", mode, listOfPoolings())
		}
		p.modes = append(p.modes, m)
	}
	return p, nil
}

// poolingModes returns the names of the modes that the file sets, mean if it sets none.
func poolingModes(file string, keys map[string]any) ([]string, error) {
	var names []string
	switch mode := keys["pooling_mode"].(type) {
	case string:
		return []string{mode}, nil
	case []any:
		if len(mode) < 1 || len(mode) > maxPoolings {
			return nil, refuse(file, "pooling_mode", "lists %d modes; 1 to %d are possible",
				len(mode), maxPoolings)
		}
		for _, m := range mode {
			names = append(names, fmt.Sprint(m))
		}
		return names, nil
	case nil:
	default:
		return nil, refuse(file, "pooling_mode", "must be a name or a list of names")
	}
	for _, p := range poolingNames {
		set, isFlag := keys[p.flag].(bool)
		if !isFlag && keys[p.flag] != nil {
			return nil, refuse(file, p.flag, "is %.60v; true and false are possible", keys[p.flag])
		}
		if set {
			names = append(names, p.name)
		}
	}
	if names == nil { // as sentence-transformers reads files that set none
		names = []string{"mean"}
	}
	return names, nil
}

func listOfPoolings() string {
	names := make([]string, len(poolingNames))
	for i, p := range poolingNames {
		names[i] = p.name
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// pool records the row of each sequence that OutDense is made of: pooled by want.Pooling, or by all
// modes of the module chain.
func (r *recording) pool() engine.Value {
	modes, x := r.model.Poolings, r.x
	if r.want.Pooling != 0 {
		modes = []engine.Pooling{r.want.Pooling}
	}
	if r.model.SkipsPrompt {
		x = r.KeepRows(x)
	}
	rows := make([]engine.Value, len(modes))
	for i, mode := range modes {
		rows[i] = r.Pool(x, mode)
	}
	for len(rows) > 1 {
		n := min(len(rows), engine.MaxJoined)
		rows = append([]engine.Value{r.Join(rows[:n]...)}, rows[n:]...)
	}
	return rows[0]
}

// denseRows is the one row of each sequence that OutDense reads, as given.rows says it.
func (m *Model) denseRows(pooling engine.Pooling) engine.Pooling {
	if pooling == 0 || m.SkipsPrompt {
		return engine.PoolMean
	}
	return pooling
}

// checkPooling refuses another pooling than the module chain's where that joins several: Dim and
// the layers behind follow from the chain's.
func (m *Model) checkPooling(want Want) error {
	if len(m.Poolings) < 2 || want.Pooling == 0 || !want.Give.Has(OutDense) {
		return nil
	}
	return &engine.Error{Op: "record", Status: engine.StatusUnsupported, Msg: fmt.Sprintf(
		"pooling %s alone: the model's files join %d poolings", want.Pooling, len(m.Poolings))}
}
