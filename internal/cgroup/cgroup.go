// Package cgroup reads how much memory the control groups of this process allow and use.
//
// Entry points: [Find] for the groups, [Groups.Memory] for their current memory. It reads version
// 1, version 2 and machines with both, in containers and on bare hosts, where systemd sets limits
// on a unit or a slice. csrc reads CPU quotas itself (cpu_limits.cc). The package starts no
// goroutine and writes nothing.
package cgroup

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// Bounds on the files and groups that are read.
const (
	maxMounts = 4 << 20 // bytes of mountinfo: 20,000 mounts
	maxFile   = 64 << 10
	maxDepth  = 64 // groups between the process's and the root
)

// hierarchy holds the names that differ between the versions.
type hierarchy struct {
	controller, kind           string // in /proc/self/cgroup and in mountinfo
	limit, use, stat, inactive string
}

var hierarchies = []hierarchy{
	{"", "cgroup2", "memory.max", "memory.current", "memory.stat", "inactive_file"},
	{"memory", "cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat",
		"total_inactive_file"},
}

// Groups holds the control groups that limit this process: its own group and the groups around it.
type Groups struct{ list []group }

type group struct {
	dir string
	*hierarchy
}

// Find returns the groups of this process. root is "" except in tests. A file that cannot be read
// counts as no limit.
func Find(root string) Groups {
	var g Groups
	own, err := files.Read(root+"/proc/self/cgroup", maxFile)
	if err != nil {
		return g
	}
	mounts, err := files.Read(root+"/proc/self/mountinfo", maxMounts)
	if err != nil {
		return g
	}
	for i := range hierarchies {
		h := &hierarchies[i]
		path, ok := h.member(string(own))
		if !ok {
			continue
		}
		point, below, ok := h.mounted(string(mounts), path)
		if !ok {
			continue
		}
		for dir, depth := filepath.Join(root, point, below),
			0; depth < maxDepth; dir, depth = filepath.Dir(dir), depth+1 {
			g.list = append(g.list, group{dir, h})
			if dir == filepath.Join(root, point) {
				break
			}
		}
	}
	return g
}

// member returns the path of the process's group in a hierarchy; own has lines
// "id:controllers:path".
func (h *hierarchy) member(own string) (string, bool) {
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && strings.HasPrefix(parts[2], "/") && lists(parts[1], h.controller) {
			return parts[2], true
		}
	}
	return "", false
}

// mounted returns the mount point of a hierarchy and the group's path below it. A container may see
// only a part of the hierarchy. For a group outside that part the path is "", so that the root of
// the part stands in for it.
func (h *hierarchy) mounted(mounts, path string) (point, below string, ok bool) {
	for line := range strings.Lines(mounts) {
		before, after, found := strings.Cut(line, " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if !found || len(mount) < 5 || len(super) < 3 || super[0] != h.kind ||
			h.controller != "" && !lists(super[2], h.controller) {
			continue
		}
		top := strings.TrimSuffix(unescape(mount[3]), "/")
		below, inside := strings.CutPrefix(path, top)
		if !inside || below != "" && below[0] != '/' || strings.Contains(below+"/", "/../") {
			below = ""
		}
		return unescape(mount[4]), below, true
	}
	return "", "", false
}

// lists reports whether a comma-separated list contains name; the empty name matches only the empty
// list.
func lists(list, name string) bool {
	if name == "" {
		return list == ""
	}
	return strings.Contains(","+list+",", ","+name+",")
}

// unescape replaces the octal escapes of mountinfo: space, tab, newline, backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// Memory returns the used and the allowed bytes of the group with the least memory left. It ignores
// groups whose limit is not below total, the machine's memory. ok is false if no group has such a
// limit. Page cache that was not used lately does not count as used, because the kernel reclaims it
// first.
func (g Groups) Memory(total int64) (used, limit int64, ok bool) {
	least := int64(math.MaxInt64)
	for _, m := range g.list {
		most, known := number(m.dir + "/" + m.limit)
		if !known || most <= 0 || total > 0 && most >= total {
			continue
		}
		use, known := number(m.dir + "/" + m.use)
		if !known {
			continue
		}
		use = max(0, use-m.cached())
		if left := most - use; left < least {
			least, used, limit, ok = left, use, most, true
		}
	}
	return used, limit, ok
}

// cached returns the size of the group's page cache that was not used lately.
func (m group) cached() int64 {
	text, err := files.Read(m.dir+"/"+m.stat, maxFile)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, m.inactive+" "); found {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return max(0, n)
		}
	}
	return 0
}

// number reads a file that holds one number; "max" counts as no number.
func number(path string) (int64, bool) {
	text, err := files.Read(path, maxFile)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
