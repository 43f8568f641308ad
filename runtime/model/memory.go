package model

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/cgroup"
)

// memory is the memory of the machine, or of this process's container, in bytes.
type memory struct{ used, total int64 }

// HostMemory returns the used and total memory of the machine, or of this process's container, in
// bytes.
func (h *Host) HostMemory() (used, total int64) {
	m := h.memory()
	return m.used, m.total
}

// groups returns the control groups of this process. It reads them once, because the process is not
// moved to other groups while it runs.
var groups = sync.OnceValue(func() cgroup.Groups { return cgroup.Find("") })

// hostMemory reads the memory of the machine. If control groups have limits, it reads the use and
// the limit of the group that leaves the least free.
func hostMemory() memory {
	var si unix.Sysinfo_t
	m := memory{}
	if err := unix.Sysinfo(&si); err == nil {
		unit := int64(si.Unit)
		m.total = int64(si.Totalram) * unit
		m.used = m.total - availableMemory(int64(si.Freeram)*unit)
	}
	if used, limit, ok := groups().Memory(m.total); ok {
		return memory{used: used, total: limit}
	}
	return m
}

// ratio returns the used share, 0 if unknown.
func (m memory) ratio() float64 {
	if m.total <= 0 {
		return 0
	}
	return float64(m.used) / float64(m.total)
}

// availableMemory returns the kernel's estimate of available memory, which includes reclaimable
// caches, or free if there is no estimate.
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
