package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights/hub"
)

type doctorCmd struct {
	sourceFlags  `embed:""`
	computeFlags `embed:""`

	Program        string `help:"Print what this model directory is recorded as, and what its batches take, instead." type:"existingdir"`
	ProgramThreads int    `help:"Threads to count its memory for; 0: as many as would be used." default:"0" range:"0..1024"`
}

// machine prints what the machine offers and what would be used.
func (c *doctorCmd) machine() error {
	t := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	row := func(k, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", k, fmt.Sprintf(format, args...)) }
	row("version", "%s (%s), %s", build.Version, build.Commit, runtime.Version())
	gpus(engine.FindGPUs(), row)
	chosen, err := c.devices()
	if err != nil {
		_ = t.Flush()
		return err
	}
	row("device", "%s: %s", chosen.names(), chosen.why)
	for _, w := range chosen.warnings {
		row("", "%s", w)
	}
	for _, o := range chosen.options {
		if err := c.device(o, row); err != nil {
			_ = t.Flush()
			return fmt.Errorf("no usable compute device: %w", err)
		}
	}
	c.cache(row)
	return t.Flush()
}

// gpus explains what the driver reports, even if no GPU is used.
func gpus(r engine.GPUReport, row func(string, string, ...any)) {
	if reason := noGPUReason(r); reason != "" {
		row("GPU", "none: %s", reason)
	} else {
		row("GPU driver", "supports CUDA %s", r.Driver)
	}
	for _, g := range r.GPUs {
		verdict := "this build has code for it"
		if g.Refusal != "" {
			verdict = "cannot be used: " + g.Refusal
		}
		row(fmt.Sprintf("cuda:%d", g.Ordinal), "%s, compute capability %d.%d, %d multiprocessors, %d MiB; %s",
			g.Name, g.Major, g.Minor, g.Multiprocessors, g.MemoryTotal>>20, verdict)
	}
}

// device opens one of the chosen devices and prints what it offers.
func (c *doctorCmd) device(o engine.Options, row func(string, string, ...any)) error {
	dev, err := engine.Open(o)
	if err != nil {
		return err
	}
	defer dev.Close()
	info, err := dev.Info()
	if err != nil {
		return err
	}
	have := "passed their self-test"
	if info.Kind == engine.CUDA {
		row("in use", "cuda:%d, %s", o.Ordinal, info.Name)
		have = "it has"
	} else {
		row("CPU", "%s", info.Name)
		row("CPUs", "%d in the affinity mask, quota %s, %d compute threads",
			info.CPUsAffinity, quota(info.CPUsQuota), info.Threads)
		row("nodes", "%s", c.nodes(info))
		row("instruction set", "%s in use; the best here is %s", info.ISA, info.ISADetected)
	}
	var classes []string
	for _, k := range info.Compute {
		classes = append(classes, k.String())
	}
	chosen := info.DefaultCompute().String() + " (chosen because nothing else was asked for)"
	if info.Kind == engine.CUDA && info.Supports(engine.ComputeF16) {
		chosen = info.DefaultCompute().String() +
			", fp16 for checkpoints in it (chosen because nothing else was asked for)"
	}
	if c.Precision != "auto" {
		k, ok := engine.ParseCompute(c.Precision)
		chosen = c.Precision + " (--precision)"
		if !ok || !info.Supports(k) {
			chosen += ": NOT available here"
		}
	}
	row("precision", "%s; %s: %s", chosen, have, strings.Join(classes, ", "))
	for i, why := range strings.Split(info.Why, ";") {
		key := ""
		if i == 0 {
			key = "why"
		}
		if why = strings.TrimSpace(why); why != "" {
			row(key, "%s", why)
		}
	}
	if free, total, err := dev.Memory(); err == nil {
		row("memory", "%d of %d MiB free", free>>20, total>>20)
	} else {
		row("memory", "%d MiB for this process", info.MemoryTotal>>20)
	}
	return nil
}

// nodes says how the machine's memory is divided, and where weights will lie.
func (f *computeFlags) nodes(info engine.Info) string {
	caches := "L3 caches unknown"
	if info.Caches > 0 {
		caches = fmt.Sprintf("%d L3 caches", info.Caches)
	}
	s := fmt.Sprintf("%d with memory, %d physical cores, %s; weights: ", info.Nodes, info.Cores, caches)
	switch {
	case info.Nodes < 2:
		return s + "on the one node"
	case f.NUMA == numaOff:
		return s + "where the kernel puts them (--numa off)"
	case info.NodesUsed < 2:
		return s + "on the one node that has compute threads"
	case f.NUMA == engine.Copied.String():
		return s + fmt.Sprintf("a copy on each of %d nodes (--numa copy)", info.NodesUsed)
	case f.NUMA == engine.Interleaved.String():
		return s + fmt.Sprintf("on %d nodes in turn (--numa interleave)", info.NodesUsed)
	}
	return s + fmt.Sprintf("a copy on each of %d nodes if all fit in half of the free memory or budget, "+
		"else on them in turn", info.NodesUsed)
}

func quota(q float64) string {
	if q == 0 {
		return "none"
	}
	return fmt.Sprintf("%.2f", q)
}

func (c *doctorCmd) cache(row func(string, string, ...any)) {
	_, opt, err := c.hub(nil, nil)
	if err != nil {
		row("cache", "%v", err)
		return
	}
	dir := opt.CacheDir
	free := "unknown"
	var st unix.Statfs_t
	for probe := dir; probe != ""; {
		if unix.Statfs(probe, &st) == nil {
			free = fmt.Sprintf("%d GiB", int64(st.Bavail)*st.Bsize>>30)
			break
		}
		i := strings.LastIndexByte(probe, '/')
		if i <= 0 {
			break
		}
		probe = probe[:i]
	}
	row("cache", "%s (free: %s)", dir, free)
	token := "none: gated models can't be fetched; set HF_TOKEN"
	if opt.Token != "" {
		token = "found"
	}
	if opt.Endpoint == "" {
		opt.Endpoint = hub.DefaultEndpoint
	}
	row("hub", "%s, token %s, downloads %s",
		opt.Endpoint, token, map[bool]string{true: "off", false: "on"}[opt.Offline])
}
