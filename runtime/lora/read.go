package lora

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sie-engine/sie/weights"
)

// The files of an adapter's tensors, in the order in which Read tries them.
var tensorFiles = []string{"adapter_model.safetensors", "adapter_model.bin"}

// Read reads the adapter in the directory for the base. Errors: *Error when the adapter is of an
// unsupported kind, contradicts itself or does not fit the base; *weights.FormatError when a file
// breaks its format; weights.ErrChanged when a file is written to meanwhile; otherwise those of the
// file system.
func Read(dir string, base Base) (*Adapter, error) {
	config, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	checkpoint, file, err := openTensors(dir)
	if err != nil {
		return nil, err
	}
	defer checkpoint.Close()
	r := &reader{config: config, base: base, from: checkpoint, file: file}
	adapter, err := r.adapter()
	if err := checkpoint.ReadError(err); err != nil {
		return nil, err
	}
	return adapter, nil
}

// adapter reads all tensors of the checkpoint that fit the base.
func (r *reader) adapter() (*Adapter, error) {
	modules, err := r.modules()
	if err != nil {
		return nil, err
	}
	adapter := &Adapter{
		Pairs: make(map[string]Pair, len(modules)), BaseModel: r.config.baseModel, shapes: r.base.Linears,
	}
	for _, m := range modules {
		pair, err := r.pair(m, MaxBytes-adapter.Bytes)
		if err != nil {
			return nil, err
		}
		adapter.Pairs[m.linear] = pair
		adapter.Rank = max(adapter.Rank, pair.Rank)
		adapter.Bytes += 4 * int64(len(pair.A)+len(pair.B))
	}
	if len(adapter.Pairs) == 0 {
		return nil, refuse(r.file, "", "has no tensor for a linear that the base computes with")
	}
	if err := r.checkComplete(modules); err != nil {
		return nil, err
	}
	return adapter, nil
}

func openTensors(dir string) (*weights.Checkpoint, string, error) {
	for _, file := range tensorFiles {
		c, err := weights.OpenFile(filepath.Join(dir, file))
		if !errors.Is(err, fs.ErrNotExist) {
			return c, file, err
		}
	}
	return nil, "", refuse(tensorFiles[0], "", "is missing, and so is %s; download the adapter again",
		tensorFiles[1])
}

type reader struct {
	config *config
	base   Base
	from   *weights.Checkpoint
	file   string // for messages
}

// module holds the file's tensors for one linear.
type module struct {
	full   string // its name in the trained model
	linear string // its name in the base
	prefix string // of full, before linear
	a, b   weights.Tensor
}

// savedPrefix is the prefix that PEFT puts before every name.
const savedPrefix = "base_model.model."

// modules pairs the file's tensors by module, in the order of their names.
func (r *reader) modules() ([]*module, error) {
	var out []*module
	byName := map[string]*module{}
	for _, name := range r.from.Names() {
		t, _ := r.from.Tensor(name)
		full, part := strings.TrimPrefix(name, savedPrefix), ""
		for _, p := range []string{".lora_A.weight", ".lora_B.weight"} {
			if before, ok := strings.CutSuffix(full, p); ok {
				full, part = before, p
			}
		}
		if part == "" {
			return nil, refuse(r.file, name, "%s", unknownTensor(name))
		}
		m := byName[full]
		if m == nil {
			if !r.config.targets.has(full) {
				return nil, refuse(r.file, name,
					"is there, but target_modules and the keys beside it in %s do not name the module",
					configFile)
			}
			m = &module{full: full}
			byName[full] = m
			out = append(out, m)
		}
		if part == ".lora_A.weight" {
			m.a = t
		} else {
			m.b = t
		}
	}
	return r.match(out)
}

// unknownTensor explains, for a message, a tensor that is not part of a LoRA pair.
func unknownTensor(name string) string {
	for part, what := range map[string]string{
		"lora_embedding_": "is an adapter of an embedding table; only linears are supported",
		"lora_magnitude_": "is a part of DoRA, which is not supported",
		"lora_B.bias":     "is a bias on B, which is not supported",
	} {
		if strings.Contains(name, part) {
			return what
		}
	}
	return "is not lora_A.weight or lora_B.weight of a module: the adapter replaces a tensor of the base, or PEFT did not write it"
}

// match finds the base's linear of each module. It leaves out modules of linears that the base
// does not use.
func (r *reader) match(all []*module) (used []*module, err error) {
	taken := map[string]string{}
	for _, m := range all {
		if m.a.Name == "" || m.b.Name == "" {
			return nil, refuse(r.file, m.full,
				"has only one of lora_A.weight and lora_B.weight; download the adapter again")
		}
		if endsIn(r.base.Unused, m.full) {
			continue
		}
		for name, why := range r.base.Fixed {
			if endsIn([]string{name}, m.full) {
				return nil, refuse(r.file, m.full, "cannot be adapted: %s", why)
			}
		}
		// The trained class may have the encoder under a prefix: "bert.", "0.auto_model.".
		for at := 0; ; {
			if _, ok := r.base.Linears[m.full[at:]]; ok {
				m.prefix, m.linear = m.full[:at], m.full[at:]
				break
			}
			dot := strings.IndexByte(m.full[at:], '.')
			if dot < 0 {
				return nil, r.unknown(m)
			}
			at += dot + 1
		}
		if other, twice := taken[m.linear]; twice {
			return nil, refuse(r.file, m.full, "and %s are both the base's %s", other, m.linear)
		}
		taken[m.linear] = m.full
		used = append(used, m)
	}
	return used, nil
}

// unknown returns the error for a linear that the base lacks. It names the base's similar linears.
func (r *reader) unknown(m *module) error {
	var alike []string
	last := m.full[strings.LastIndexByte(m.full, '.')+1:]
	for name := range r.base.Linears {
		if endsIn([]string{last}, name) {
			alike = append(alike, name)
		}
	}
	slices.SortFunc(alike, byLayer)
	switch len(alike) {
	case 0:
		return refuse(r.file, m.full,
			"the base has no linear whose name ends in %q: the adapter is for another architecture", last)
	case 1:
		return refuse(r.file, m.full, "the base has no such linear, only %s", alike[0])
	}
	return refuse(r.file, m.full,
		"the base has no such linear; it has %d whose names end in %q, from %s to %s: was the adapter made for a larger model?",
		len(alike), last, alike[0], alike[len(alike)-1])
}

// byLayer orders names with layer 2 before layer 10.
func byLayer(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// pair checks and converts the module's tensors, which may take at most limit bytes.
func (r *reader) pair(m *module, limit int64) (Pair, error) {
	shape := r.base.Linears[m.linear]
	rank, scale := r.config.of(m.full)
	for _, c := range []struct {
		t    weights.Tensor
		want []int64
	}{
		{m.a, []int64{int64(rank), int64(shape.K)}},
		{m.b, []int64{int64(shape.N), int64(rank)}},
	} {
		if !slices.Equal(c.t.Shape, c.want) {
			return Pair{}, refuse(r.file, c.t.Name,
				"has shape %v; rank %d of the configuration and the base's %s, of %d outputs and %d inputs, ask for %v",
				c.t.Shape, rank, m.linear, shape.N, shape.K, c.want)
		}
		if c.t.DType != weights.F32 && c.t.DType != weights.F16 && c.t.DType != weights.BF16 {
			return Pair{}, refuse(r.file, c.t.Name, "has dtype %s; F32, F16 and BF16 can be read", c.t.DType)
		}
	}
	if 4*(m.a.Elements()+m.b.Elements()) > limit {
		return Pair{}, refuse(r.file, m.a.Name, "the adapter takes more than %d bytes as float32", MaxBytes)
	}
	p := Pair{Rank: rank, Shape: shape}
	var err error
	if p.A, err = finite(r.file, m.a, 1); err == nil {
		p.B, err = finite(r.file, m.b, scale)
	}
	return p, err
}

// finite converts a tensor, multiplies it by by, and refuses values that are not finite.
func finite(file string, t weights.Tensor, by float64) ([]float32, error) {
	out, err := t.AppendFloat32(make([]float32, 0, t.Elements()))
	if err != nil {
		return nil, err
	}
	for i, x := range out {
		out[i] = float32(float64(x) * by)
		if math.IsNaN(float64(out[i])) || math.IsInf(float64(out[i]), 0) {
			return nil, refuse(file, t.Name,
				"has %v at %d, times the scale %g; only finite numbers can be computed with", x, i, by)
		}
	}
	return out, nil
}

var number = regexp.MustCompile(`\d+`)

// checkComplete refuses an adapter that has a linear of some layers and lacks it in others that it
// should adapt. Such an adapter was made for a model with fewer layers; PEFT would apply it to the
// first of them. A linear that the adapter has in no layer is allowed: the trained class did not
// have it.
func (r *reader) checkComplete(modules []*module) error {
	layered, has := map[string]*module{}, map[string]bool{}
	for _, m := range modules {
		layered[number.ReplaceAllString(m.linear, "0")] = m
		has[m.linear] = true
	}
	names := make([]string, 0, len(r.base.Linears))
	for name := range r.base.Linears {
		names = append(names, name)
	}
	slices.SortFunc(names, byLayer)
	for _, name := range names {
		sibling := layered[number.ReplaceAllString(name, "0")]
		if sibling != nil && !has[name] && r.config.targets.has(sibling.prefix+name) {
			return refuse(r.file, sibling.prefix+name,
				"is missing, though %s is there and target_modules names both: was the adapter made for a smaller model?",
				sibling.full)
		}
	}
	return nil
}
