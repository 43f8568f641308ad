package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sie-engine/sie/runtime/engine"
)

// The GPU reports of the machines that the tests pretend to run on.
var (
	h100  = engine.GPU{Ordinal: 0, Name: "NVIDIA H100", Major: 9, Multiprocessors: 132, MemoryTotal: 80 << 30}
	other = engine.GPU{Ordinal: 1, Name: "NVIDIA H100", Major: 9, Multiprocessors: 132, MemoryTotal: 80 << 30}
	a100  = engine.GPU{Ordinal: 2, Name: "NVIDIA A100", Major: 8, MemoryTotal: 40 << 30}
	v100  = engine.GPU{
		Ordinal: 3, Name: "Tesla V100", Major: 7, Refusal: "compute capability 8.0 or newer is needed",
	}

	noCUDA   = engine.GPUReport{}
	noDriver = engine.GPUReport{Built: true, Problem: "no NVIDIA driver: install one"}
	tooOld   = engine.GPUReport{
		Built:   true,
		Driver:  "11.4",
		Problem: "the driver is for CUDA 11.4: install 580 or newer",
		GPUs:    []engine.GPU{h100},
	}
	noCard  = engine.GPUReport{Built: true, Driver: "13.0"}
	onlyOld = engine.GPUReport{Built: true, Driver: "13.0", GPUs: []engine.GPU{v100}}
	one     = engine.GPUReport{Built: true, Driver: "13.0", GPUs: []engine.GPU{h100}}
	pair    = engine.GPUReport{Built: true, Driver: "13.0", GPUs: []engine.GPU{h100, other}}
	mixed   = engine.GPUReport{Built: true, Driver: "13.0", GPUs: []engine.GPU{h100, other, a100, v100}}
)

// choose reads a flag on a machine and returns the devices' names, or "" after an error.
func choose(flag, precision string, r engine.GPUReport) (string, deviceChoice, error) {
	c, err := chooseDevices(flag, precision, engine.Options{Threads: 3}, func() engine.GPUReport { return r })
	if err != nil {
		return "", c, err
	}
	return c.names(), c, nil
}

func TestDevicesThatAreChosen(t *testing.T) {
	for name, c := range map[string]struct {
		flag, precision string
		on              engine.GPUReport
		want            string
		why             string   // part of it
		warnings        []string // a part of each
	}{
		"auto without CUDA":       {"auto", "auto", noCUDA, "cpu", "built without CUDA", nil},
		"auto without a driver":   {"auto", "auto", noDriver, "cpu", "no NVIDIA driver", nil},
		"auto with an old driver": {"auto", "auto", tooOld, "cpu", "CUDA 11.4", nil},
		"auto without a card":     {"auto", "auto", noCard, "cpu", "shows no GPU", nil},
		"auto with an old card": {"auto", "auto", onlyOld, "cpu",
			"cuda:3 (Tesla V100, compute capability 7.0) cannot be used: compute capability 8.0", nil},
		"auto with a card": {"auto", "auto", one, "cuda:0", "every GPU", nil},
		"auto with two":    {"", "auto", pair, "cuda:0, cuda:1", "every GPU", nil},
		"auto with all sorts": {"auto", "auto", mixed, "cuda:0, cuda:1, cuda:2", "every GPU",
			[]string{"different models", "V100"}},
		"auto in fp32": {"auto", "fp32", one, "cpu", "--precision fp32 exists on the CPU only", nil},
		"auto in int8": {"auto", "int8", one, "cpu", "--precision int8", nil},
		"auto in fp8":  {"auto", "fp8", one, "cuda:0", "every GPU", nil},
		"cpu":          {"CPU", "auto", pair, "cpu", "--device cpu", nil},
		"cuda":         {"cuda", "auto", pair, "cuda:0, cuda:1", "every GPU", nil},
		"cuda in fp32, which is refused later": {"cuda", "fp32", pair, "cuda:0, cuda:1",
			"every GPU", nil},
		"one of them":         {"cuda:1", "auto", mixed, "cuda:1", "--device cuda:1", nil},
		"two in this order":   {"cuda:1,0", "auto", mixed, "cuda:1, cuda:0", "--device cuda:1,0", nil},
		"two with both names": {"CUDA:0, cuda:1", "auto", mixed, "cuda:0, cuda:1", "--device", nil},
		"two that differ": {"cuda:0,2", "auto", mixed, "cuda:0, cuda:2", "--device",
			[]string{"different models"}},
	} {
		got, choice, err := choose(c.flag, c.precision, c.on)
		if err != nil || got != c.want || !strings.Contains(choice.why, c.why) {
			t.Errorf("%s: %q because %q, %v; want %q because %q", name, got, choice.why, err, c.want, c.why)
		}
		if !slices.EqualFunc(choice.warnings, c.warnings, strings.Contains) {
			t.Errorf("%s: warnings %q, want %q", name, choice.warnings, c.warnings)
		}
		if want := strings.HasPrefix(name, "auto") && c.want == "cpu" && c.on.Driver != "" &&
			c.precision == "auto"; choice.fallback != want {
			t.Errorf(
				"%s: fallback is %v: a driver without a GPU that can be used is worth a warning, and nothing else",
				name, choice.fallback)
		}
		if c.want == "cpu" && (err != nil || choice.options[0] != engine.Options{Threads: 3}) {
			t.Errorf("%s: the CPU's options are %+v", name, choice.options)
		}
	}
}

func TestDevicesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		flag  string
		on    engine.GPUReport
		parts []string // of the message: what was found, what is needed, what to do
	}{
		"another word": {"gpu", pair, []string{"--device gpu", "unknown device", "auto, cpu, cuda, cuda:0"}},
		"no number":    {"cuda:", pair, []string{"--device cuda:", `""`, "cuda:0,1"}},
		"not a number": {"cuda:x", pair, []string{`"x" is not the number of a GPU`}},
		"negative":     {"cuda:-1", pair, []string{`"-1"`}},
		"huge":         {"cuda:70000", pair, []string{`"70000"`}},
		"twice":        {"cuda:0,0", pair, []string{"GPU 0 is named twice"}},
		"cuda without CUDA": {"cuda", noCUDA,
			[]string{"built without CUDA", "make build-cuda", "--device cpu"}},
		"cuda:0 without CUDA": {"cuda:0", noCUDA,
			[]string{"built without CUDA", "make build-cuda", "--device cpu"}},
		"no driver":      {"cuda", noDriver, []string{"no NVIDIA driver: install one", "--device cpu"}},
		"driver too old": {"cuda:0", tooOld, []string{"CUDA 11.4", "580", "--device cpu"}},
		"no card": {"cuda", noCard,
			[]string{"CUDA 13.0", "shows no GPU", "nvidia-smi", "CUDA_VISIBLE_DEVICES", "--gpus all"}},
		"only an old card": {"cuda", onlyOld, []string{
			"cuda:3 (Tesla V100, compute capability 7.0)", "8.0 or newer is needed", "--device cpu",
		}},
		"an old card":    {"cuda:3", mixed, []string{"Tesla V100", "8.0 or newer is needed"}},
		"one old of two": {"cuda:0,3", mixed, []string{"Tesla V100"}},
		"no such card": {"cuda:1", one,
			[]string{"no cuda:1", "cuda:0 (NVIDIA H100, compute capability 9.0)"}},
	} {
		got, _, err := choose(c.flag, "auto", c.on)
		if err == nil {
			t.Errorf("%s: taken as %s", name, got)
			continue
		}
		for _, part := range c.parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
}

// The driver is not asked when the flag wants a CPU, or when its value is wrong.
func TestCPUDoesNotLookForGPUs(t *testing.T) {
	find := func() engine.GPUReport { t.Error("looked for GPUs"); return pair }
	for flag, precision := range map[string]string{
		"cpu": "auto", "auto": "int8", "cuda:x": "auto", "foo": "auto",
	} {
		_, _ = chooseDevices(flag, precision, engine.Options{}, find)
	}
}

func TestDoctorOnGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		on    engine.GPUReport
		parts []string
	}{
		"without CUDA": {noCUDA, []string{"GPU: none", "built without CUDA"}},
		"no driver":    {noDriver, []string{"GPU: none", "no NVIDIA driver"}},
		"old driver":   {tooOld, []string{"CUDA 11.4", "cuda:0: NVIDIA H100"}},
		"all sorts": {mixed, []string{
			"GPU driver: supports CUDA 13.0",
			"cuda:0: NVIDIA H100, compute capability 9.0, 132 multiprocessors, 81920 MiB; this build has code for it",
			"cuda:3: Tesla V100", "cannot be used: compute capability 8.0",
		}},
	} {
		var b strings.Builder
		gpus(c.on, func(k, format string, args ...any) {
			b.WriteString(k + ": " + fmt.Sprintf(format, args...) + "\n")
		})
		for _, part := range c.parts {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s: %q does not say %q", name, b.String(), part)
			}
		}
	}
}

func TestCUDAGraphs(t *testing.T) {
	for _, flag := range []string{"on", "off"} {
		f := computeFlags{Device: "cpu", Precision: "auto", ISA: "best", Graphs: flag}
		c, err := f.devices()
		if err != nil || c.options[0].NoGraphs != (flag == "off") {
			t.Errorf("--cuda-graphs %s: NoGraphs %v, %v", flag, c.options[0].NoGraphs, err)
		}
	}
}

func TestCUDAPDL(t *testing.T) {
	for flag, want := range map[string]engine.Overlap{
		"on": engine.OverlapAlways, "launches": engine.OverlapLaunches, "off": engine.OverlapNever,
	} {
		f := computeFlags{Device: "cpu", Precision: "auto", ISA: "best", Graphs: "on", PDL: flag}
		c, err := f.devices()
		if err != nil || c.options[0].Overlap != want {
			t.Errorf("--cuda-pdl %s: Overlap %v, %v", flag, c.options[0].Overlap, err)
		}
	}
}
