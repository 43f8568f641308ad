package arch

import (
	"io/fs"
	"path"
	"path/filepath"

	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// readNormalize checks the config.json of a Normalize module, which releases before 5.7 do not
// write.
func readNormalize(dir fs.FS, module string) error {
	c := struct {
		Input  string `json:"module_input_name"`
		Output string `json:"module_output_name"`
	}{"sentence_embedding", "sentence_embedding"}
	name := path.Join(module, configFile)
	if module == "" {
		return nil
	}
	if _, err := optional(readJSON(dir, name, &c)); err != nil {
		return err
	}
	if c.Input != "sentence_embedding" || c.Output != "sentence_embedding" {
		return refuse(name, "module_input_name",
			"is %.60q to %.60q; only sentence_embedding can go in and come out", c.Input, c.Output)
	}
	return nil
}

// denseConfig is a Dense module: y = act(x·Wᵀ + bias), computed in float32 like everything after
// pooling.
type denseConfig struct {
	module  string // its folder
	in, out int64
	bias    bool
	act     engine.Act
	// residual adds the input to the result, through a separate matrix where the widths differ.
	// PyLate's layers over tokens use it.
	residual bool
}

var denseActivations = map[string]engine.Act{
	"torch.nn.modules.linear.Identity": engine.NoAct, "torch.nn.modules.activation.Tanh": engine.Tanh,
	"torch.nn.modules.activation.ReLU": engine.ReLU, "torch.nn.modules.activation.GELU": engine.GELU,
	"torch.nn.modules.activation.SiLU": engine.SiLU,
}

// readDense reads the config.json of a Dense module. Its input and output may be named
// sentence_embedding or input.
func readDense(dir fs.FS, module, input string) (denseConfig, error) {
	c := struct {
		In     int64  `json:"in_features"`
		Out    int64  `json:"out_features"`
		Bias   bool   `json:"bias"`
		Act    string `json:"activation_function"`
		Input  string `json:"module_input_name"`
		Output string `json:"module_output_name"`

		Residual bool `json:"use_residual"`
	}{
		Bias:   true,
		Act:    "torch.nn.modules.activation.Tanh",
		Input:  "sentence_embedding",
		Output: "sentence_embedding",
	}
	name := path.Join(module, configFile)
	if err := needJSON(dir, name, &c); err != nil {
		return denseConfig{}, err
	}
	for _, size := range []struct {
		key   string
		value int64
	}{{"in_features", c.In}, {"out_features", c.Out}} {
		if size.value < 1 || size.value > 65536 {
			return denseConfig{}, refuse(name, size.key, "is %d or missing; 1 to 65536 is possible",
				size.value)
		}
	}
	act, ok := denseActivations[c.Act]
	if !ok {
		return denseConfig{}, refuse(name, "activation_function",
			"%.80q is not supported; Identity, Tanh, ReLU, GELU and SiLU of torch.nn are", c.Act)
	}
	for _, named := range []string{c.Input, c.Output} {
		if named != "sentence_embedding" && named != input {
			return denseConfig{}, refuse(name, "module_input_name", "only %s can go in and come out", input)
		}
	}
	return denseConfig{
		module: module, in: c.In, out: c.Out, bias: c.Bias, act: act, residual: c.Residual,
	}, nil
}

// readNamedDense reads the Dense module that the options name. It stands in place of those of the
// chain: repositories such as stella's have one for each width of vectors, and a chain with one of
// them.
func readNamedDense(dir fs.FS, o Options) ([]denseConfig, error) {
	const option = "dense_projection_path"
	switch {
	case o.Task != Embed:
		return nil, refuse("", option, "is %.80q; only a model that gives one vector for a text can have it, "+
			"and this one's task is %s", o.Dense, o.Task)
	case !filepath.IsLocal(filepath.FromSlash(o.Dense)):
		return nil, refuse("", option, "is %.80q, which leads out of the model directory", o.Dense)
	case !has(dir, path.Join(o.Dense, configFile)):
		there, err := fs.Glob(dir, "*_Dense*/"+configFile)
		if err != nil {
			return nil, err
		}
		for i := range there {
			there[i] = path.Dir(there[i])
		}
		return nil, refuse("", option, "is %.80q, and there is no such module; there are %.400q",
			o.Dense, there)
	}
	d, err := readDense(dir, o.Dense, "sentence_embedding")
	if err == nil && d.residual {
		err = refuse(path.Join(o.Dense, configFile), "use_residual",
			"is supported for vectors of tokens only")
	}
	return []denseConfig{d}, err
}

// loadDense packs the module's weights from its own file. owner frees them.
func loadDense(dir string, c denseConfig, owner *packer) (layer, error) {
	checkpoint, err := weights.Open(filepath.Join(dir, filepath.FromSlash(c.module)))
	if err != nil {
		return layer{}, err
	}
	defer checkpoint.Close()
	p := &packer{
		dev:     owner.dev,
		from:    checkpoint,
		file:    path.Join(c.module, checkpoint.Name()),
		compute: engine.ComputeF32,
		group:   owner.group,
		buffer:  owner.buffer,
		sizing:  owner.sizing,
	}
	l := layer{weight: p.linear(c.out, c.in, "linear.weight"), act: c.act}
	if c.bias {
		l.bias = p.vector(c.out, "linear.bias")
	}
	p.err = checkpoint.ReadError(p.err)
	owner.join(p)
	return l, p.err
}
