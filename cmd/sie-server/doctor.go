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
}

func (c *doctorCmd) Run() error {
	t := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	row := func(k, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", k, fmt.Sprintf(format, args...)) }
	row("version", "%s (%s), %s", build.Version, build.Commit, runtime.Version())
	opt, err := c.options()
	if err != nil {
		return err
	}
	dev, err := engine.Open(opt)
	if err != nil {
		_ = t.Flush()
		return fmt.Errorf("no usable compute device: %w", err)
	}
	defer dev.Close()
	info, err := dev.Info()
	if err != nil {
		return err
	}
	row("CPU", "%s", info.Name)
	row("CPUs", "%d in the affinity mask, quota %s, %d compute threads", info.CPUsAffinity, quota(info.CPUsQuota), info.Threads)
	row("instruction set", "%s in use; the best here is %s", info.ISA, info.ISADetected)
	var classes []string
	for _, k := range info.Compute {
		classes = append(classes, k.String())
	}
	chosen := info.DefaultCompute().String() + " (chosen because nothing else was asked for)"
	if c.Precision != "auto" {
		k, ok := engine.ParseCompute(c.Precision)
		chosen = c.Precision + " (--precision)"
		if !ok || !info.Supports(k) {
			chosen += ": NOT available here"
		}
	}
	row("precision", "%s; passed their self-test: %s", chosen, strings.Join(classes, ", "))
	for i, why := range strings.Split(info.Why, ";") {
		key := ""
		if i == 0 {
			key = "why"
		}
		if why = strings.TrimSpace(why); why != "" {
			row(key, "%s", why)
		}
	}
	row("memory", "%d MiB for this process", info.MemoryTotal>>20)
	c.cache(row)
	row("GPU", "this build has no CUDA backend")
	return t.Flush()
}

func quota(q float64) string {
	if q == 0 {
		return "none"
	}
	return fmt.Sprintf("%.2f", q)
}

func (c *doctorCmd) cache(row func(string, string, ...any)) {
	_, opt, err := c.hub(nil)
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
	row("hub", "%s, token %s, downloads %s", opt.Endpoint, token, map[bool]string{true: "off", false: "on"}[opt.Offline])
}
