package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
)

// deviceChoice is the set of devices that --device selects.
type deviceChoice struct {
	options  []engine.Options // one CPU, or one or more GPUs
	why      string           // one line for the log
	fallback bool             // the CPU was taken although the machine has a GPU driver
	warnings []string
}

// names returns the devices in the form that users write: "cpu", or "cuda:0, cuda:1".
func (c deviceChoice) names() string {
	if c.options[0].Kind != engine.CUDA {
		return engine.CPU.String()
	}
	var names []string
	for _, o := range c.options {
		names = append(names, fmt.Sprintf("cuda:%d", o.Ordinal))
	}
	return strings.Join(names, ", ")
}

const deviceForms = "use auto, cpu, cuda, cuda:0 or cuda:0,1"

// chooseDevices reads --device. It calls find only when a GPU may be chosen. An error says what was
// asked for, what the machine has, and what to do.
func chooseDevices(
	flag, precision string, cpu engine.Options, find func() engine.GPUReport,
) (deviceChoice, error) {
	onCPU := func(why string) deviceChoice { return deviceChoice{options: []engine.Options{cpu}, why: why} }
	switch d := strings.ToLower(strings.TrimSpace(flag)); {
	case d == "cpu":
		return onCPU("--device cpu"), nil
	case d == "auto" || d == "":
		if c, ok := engine.ParseCompute(precision); ok &&
			(c == engine.ComputeF32 || c == engine.ComputeINT8) {
			return onCPU("--precision " + precision + " exists on the CPU only"), nil
		}
		found := find()
		c, reason := allGPUs(found)
		if reason != "" {
			c = onCPU("no GPU can be used: " + reason)
			c.fallback = found.Built && found.Driver != "" // a user with a driver expects a GPU
			return c, nil
		}
		c.why = "--device auto takes every GPU it can use"
		return c, nil
	case d == "cuda":
		c, reason := allGPUs(find())
		if reason != "" {
			return c, fmt.Errorf("--device %s: %s; or use --device cpu", flag, reason)
		}
		c.why = "--device cuda takes every GPU it can use"
		return c, nil
	case strings.HasPrefix(d, "cuda:"):
		ordinals, err := parseOrdinals(d)
		if err != nil {
			return deviceChoice{}, fmt.Errorf("--device %s: %w; %s", flag, err, deviceForms)
		}
		c, err := someGPUs(find(), ordinals)
		if err != nil {
			return c, fmt.Errorf("--device %s: %w", flag, err)
		}
		c.why = "--device " + d
		return c, nil
	}
	return deviceChoice{}, fmt.Errorf("--device %s: unknown device; %s", flag, deviceForms)
}

// parseOrdinals reads "cuda:0,1" and "cuda:0,cuda:1".
func parseOrdinals(s string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(strings.TrimPrefix(s, "cuda:"), ",") {
		part = strings.TrimPrefix(strings.TrimSpace(part), "cuda:")
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is not the number of a GPU", part)
		}
		if slices.Contains(out, int(n)) {
			return nil, fmt.Errorf("GPU %d is named twice", n)
		}
		out = append(out, int(n))
	}
	return out, nil
}

// noGPUReason returns the reason why no GPU at all can be used, or "".
func noGPUReason(r engine.GPUReport) string {
	switch {
	case !r.Built:
		return "this binary was built without CUDA: use the one of `make build-cuda` or the image of Dockerfile.cuda for GPUs"
	case r.Problem != "":
		return r.Problem
	case len(r.GPUs) == 0:
		return "the driver (CUDA " + r.Driver +
			") shows no GPU: see `nvidia-smi -L` and CUDA_VISIBLE_DEVICES, and start a container with --gpus all"
	}
	return ""
}

// allGPUs chooses every usable GPU, or returns the reason why there is none.
func allGPUs(r engine.GPUReport) (c deviceChoice, reason string) {
	if reason := noGPUReason(r); reason != "" {
		return c, reason
	}
	var usable []engine.GPU
	var refused []string
	for _, g := range r.GPUs {
		if g.Refusal == "" {
			usable = append(usable, g)
			continue
		}
		refused = append(refused, describe(g)+" cannot be used: "+g.Refusal)
	}
	if len(usable) == 0 {
		return c, strings.Join(refused, "; ")
	}
	c = chosenGPUs(usable)
	c.warnings = append(c.warnings, refused...)
	return c, ""
}

// someGPUs chooses the GPUs of these ordinals. It fails if one of them cannot be used.
func someGPUs(r engine.GPUReport, ordinals []int) (deviceChoice, error) {
	if reason := noGPUReason(r); reason != "" {
		return deviceChoice{}, fmt.Errorf("%s; or use --device cpu", reason)
	}
	var named []engine.GPU
	for _, n := range ordinals {
		i := slices.IndexFunc(r.GPUs, func(g engine.GPU) bool { return g.Ordinal == n })
		if i < 0 {
			var have []string
			for _, g := range r.GPUs {
				have = append(have, describe(g))
			}
			return deviceChoice{}, fmt.Errorf("there is no cuda:%d; the driver shows %s",
				n, strings.Join(have, ", "))
		}
		if g := r.GPUs[i]; g.Refusal != "" {
			return deviceChoice{}, fmt.Errorf("%s cannot be used: %s", describe(g), g.Refusal)
		}
		named = append(named, r.GPUs[i])
	}
	return chosenGPUs(named), nil
}

func chosenGPUs(gpus []engine.GPU) (c deviceChoice) {
	for _, g := range gpus {
		c.options = append(c.options, engine.Options{Kind: engine.CUDA, Ordinal: g.Ordinal})
		if g.Major != gpus[0].Major || g.Minor != gpus[0].Minor || g.Name != gpus[0].Name {
			c.warnings = append(c.warnings,
				fmt.Sprintf("%s and %s are different models: a text's vector can differ in its last bits "+
					"with the GPU that made it; name equal ones with --device cuda:…", describe(gpus[0]),
					describe(g)))
		}
	}
	return c
}

// describe names a GPU: "cuda:0 (NVIDIA H100, compute capability 9.0)".
func describe(g engine.GPU) string {
	return fmt.Sprintf("cuda:%d (%s, compute capability %d.%d)", g.Ordinal, g.Name, g.Major, g.Minor)
}
