// Package cgroup reads how much memory the control groups of this process allow and use.
//
// Entry points: [Find] for the groups, [Groups.Memory] for what they say now. Version 1, version 2
// and machines with both are read, in containers and on bare hosts, where systemd sets limits on a
// unit or a slice. CPU quotas are csrc's (cpu_limits.cc). The package starts no goroutine and
// writes nothing.
package cgroup

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// The bounds of what is read.
const (
	maxMounts = 4 << 20 // bytes of mountinfo: 20,000 mounts
	maxFile   = 64 << 10
	maxDepth  = 64 // groups between the process's and the root
)

// hierarchy is what differs between the versions.
type hierarchy struct {
	controller, kind           string // in /proc/self/cgroup and in mountinfo
	limit, use, stat, inactive string
}

var hierarchies = []hierarchy{
	{"", "cgroup2", "memory.max", "memory.current", "memory.stat", "inactive_file"},
	{"memory", "cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file"},
}

// Groups are the control groups that bind this process: its own and those around it.
type Groups struct{ list []group }

type group struct {
	dir string
	*hierarchy
}

// Find returns the groups of this process. root is "" but in tests. What cannot be read binds
// nothing.
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
		for dir, depth := filepath.Join(root, point, below), 0; depth < maxDepth; dir, depth = filepath.Dir(dir), depth+1 {
			g.list = append(g.list, group{dir, h})
			if dir == filepath.Join(root, point) {
				break
			}
		}
	}
	return g
}

// member returns the path of the process in a hierarchy, of lines "id:controllers:path".
func (h *hierarchy) member(own string) (string, bool) {
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && strings.HasPrefix(parts[2], "/") && lists(parts[1], h.controller) {
			return parts[2], true
		}
	}
	return "", false
}

// mounted returns where a hierarchy is mounted, and where the group lies below that. A container
// may see a part of the hierarchy only; a group outside that part is judged by the part's own root.
func (h *hierarchy) mounted(mounts, path string) (point, below string, ok bool) {
	for line := range strings.Lines(mounts) {
		before, after, found := strings.Cut(line, " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if !found || len(mount) < 5 || len(super) < 3 || super[0] != h.kind || h.controller != "" && !lists(super[2], h.controller) {
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

// lists reports whether a name stands in a list with commas; the empty name is the empty list.
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

// Memory returns what is used and allowed, in bytes, in the group that leaves the least. It passes
// over groups without a limit below total, the machine's memory; ok is false where no group has
// one. The page cache that the kernel gives back first does not count as used.
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

// cached is the group's page cache that was not used lately.
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

// number reads a file with one number; "max" is none.
func number(path string) (int64, bool) {
	text, err := files.Read(path, maxFile)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
