package model

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memory is what the machine, or the container this process lives in, has in bytes.
type memory struct{ used, total int64 }

// HostMemory is what the machine, or the container, uses and has, in bytes.
func (h *Host) HostMemory() (used, total int64) {
	m := h.memory()
	return m.used, m.total
}

// hostMemory reads the cgroup's limit and use when there is a limit, else the machine's.
func hostMemory() memory {
	var si unix.Sysinfo_t
	m := memory{}
	if err := unix.Sysinfo(&si); err == nil {
		unit := int64(si.Unit)
		m.total = int64(si.Totalram) * unit
		m.used = m.total - availableMemory(int64(si.Freeram)*unit)
	}
	for _, g := range []struct{ limit, use, stat, cache string }{
		{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file"},
		{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
			"/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"},
	} {
		limit, ok := readNumber(g.limit)
		if !ok || limit <= 0 || (m.total > 0 && limit >= m.total) {
			continue
		}
		if use, ok := readNumber(g.use); ok {
			// The page cache counts as used in the group, but is given back under pressure.
			return memory{used: max(0, use-statValue(g.stat, g.cache)), total: limit}
		}
	}
	return m
}

// ratio is the used share, 0 when unknown.
func (m memory) ratio() float64 {
	if m.total <= 0 {
		return 0
	}
	return float64(m.used) / float64(m.total)
}

// availableMemory prefers the kernel's estimate, which counts reclaimable caches, over what is plainly free.
func availableMemory(free int64) int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return free
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			f := strings.Fields(rest)
			if len(f) > 0 {
				if kb, err := strconv.ParseInt(f[0], 10, 64); err == nil {
					return kb << 10
				}
			}
		}
	}
	return free
}

func readNumber(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

func statValue(path, key string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, key+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}
