package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	v2Mount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Mount = "31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n" +
		"33 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	noLimit = "9223372036854771712" // version 1's maximum, rounded to pages
	machine = 64 << 30
)

// host is a made-up root directory.
func host(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// group2 and group1 add a group's files in the form of their version.
func group2(files map[string]string, dir, limit, use, inactive string) {
	dir = "/sys/fs/cgroup" + dir
	files[dir+"/memory.max"], files[dir+"/memory.current"] = limit+"\n", use+"\n"
	files[dir+"/memory.stat"] = "anon 5\nactive_file 7\ninactive_file_x 9\ninactive_file " + inactive + "\n"
}

func group1(files map[string]string, dir, limit, use, inactive string) {
	dir = "/sys/fs/cgroup/memory" + dir
	files[dir+"/memory.limit_in_bytes"], files[dir+"/memory.usage_in_bytes"] = limit+"\n", use+"\n"
	files[dir+"/memory.stat"] = "inactive_file 3\ntotal_inactive_file " + inactive + "\n"
}

func TestMemoryOfTheTightestGroup(t *testing.T) {
	type files = map[string]string
	for name, c := range map[string]struct {
		make        func(f files)
		used, limit int64
		none        bool
	}{
		"no control groups": {func(files) {}, 0, 0, true},
		"no limit": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "0::/a\n", v2Mount
			group2(f, "/a", "max", "5", "0")
		}, 0, 0, true},
		"more than the machine has": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "0::/a\n", v2Mount
			group2(f, "/a", "68719476736", "5", "0")
		}, 0, 0, true},
		"a unit of systemd on a bare host": {func(f files) {
			f["/proc/self/cgroup"] = "0::/system.slice/sie.service\n"
			f["/proc/self/mountinfo"] = "29 23 0:25 / /tmp rw - tmpfs tmpfs rw\n" + v2Mount
			group2(f, "/system.slice/sie.service", "4000", "1500", "500")
			f["/sys/fs/memory.max"], f["/sys/fs/memory.current"] = "10\n", "10\n" // above the mount: no group
		}, 1000, 4000, false},
		"its slice": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "::::\n0::/big.slice/sie.service/worker\n",
				v2Mount
			group2(f, "/big.slice", "4000", "1500", "0")
			group2(f, "/big.slice/sie.service", "max", "1200", "0")
			group2(f, "/big.slice/sie.service/worker", "max", "1000", "0")
		}, 1500, 4000, false},
		"neighbours fill the slice": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "0::/big.slice/sie.service\n", v2Mount
			group2(f, "/big.slice", "10000", "9500", "100")
			group2(f, "/big.slice/sie.service", "4000", "1000", "0")
		}, 9400, 10000, false},
		"a container's own namespace": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "0::/\n", v2Mount
			group2(f, "", "4000", "1000", "2000")
		}, 0, 4000, false},
		"a container that sees its part": {func(f files) {
			f["/proc/self/cgroup"] = "9:memory:/docker/abc\n3:cpuacct,cpu:/docker/abc\n1:name=systemd:/\n"
			f["/proc/self/mountinfo"] = strings.Replace(v1Mount, "0:29 / ", "0:29 /docker/abc ", 1)
			group1(f, "", "4000", "1000", "300")
		}, 700, 4000, false},
		"a group outside the part that is seen": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "0::/pods/other\n",
				strings.Replace(v2Mount, " / /sys", " /pods/box /sys", 1)
			group2(f, "", "4000", "1000", "0")
			group2(f, "/other", "2000", "1000", "0")
		}, 1000, 4000, false},
		"a name that begins alike": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "0::/pods/boxer\n",
				strings.Replace(v2Mount, " / /sys", " /pods/box /sys", 1)
			group2(f, "", "4000", "1000", "0")
			group2(f, "/er", "2000", "1000", "0")
		}, 1000, 4000, false},
		"above the namespace": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "0::/../else\n", v2Mount
			group2(f, "", "4000", "1000", "0")
			f["/sys/fs/else/memory.max"], f["/sys/fs/else/memory.current"] = "1\n", "1\n"
		}, 1000, 4000, false},
		"version 1, nested": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "8:notmemory,memoryx:/z\n9:memory:/a/b\n",
				v1Mount
			group1(f, "", noLimit, "9000", "0")
			group1(f, "/a", "3000", "1000", "0")
			group1(f, "/a/b", noLimit, "900", "0")
		}, 1000, 3000, false},
		"both versions": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "9:hugetlb,memory:/a\n0::/u\n", v2Mount+
				v1Mount
			f["/sys/fs/cgroup/u/cgroup.procs"] = "1\n"
			group2(f, "/a", "1200", "1000", "0") // in another hierarchy
			group1(f, "/a", "3000", "1000", "0")
		}, 1000, 3000, false},
		"a mount point with a space": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "0::/a\n",
				strings.Replace(v2Mount, "/sys/fs/cgroup", `/sys/fs/c\040g`, 1)
			f["/sys/fs/c g/a/memory.max"], f["/sys/fs/c g/a/memory.current"] = "3000\n", "1000\n"
		}, 1000, 3000, false},
		"use is not known": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "0::/a\n", v2Mount
			f["/sys/fs/cgroup/a/memory.max"] = "3000\n"
		}, 0, 0, true},
		"nonsense": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "::::\n\nno colons\n0::/g",
				"x\n - \n1 2 3 - cgroup2\n"+v2Mount
			group2(f, "/g", "-5", "1", "0")
			group2(f, "", "99999999999999999999999", "1", "0")
		}, 0, 0, true},
		"deeper than is read": {func(f files) {
			f["/proc/self/cgroup"], f["/proc/self/mountinfo"] = "0::"+strings.Repeat("/g", 100)+"\n", v2Mount
			group2(f, "", "4000", "1000", "0")
			group2(f, strings.Repeat("/g", 40), "5000", "1000", "0")
		}, 1000, 5000, false},
	} {
		f := files{}
		c.make(f)
		used, limit, ok := Find(host(t, f)).Memory(machine)
		if used != c.used || limit != c.limit || ok == c.none {
			t.Errorf("%s: %d of %d, %v; want %d of %d", name, used, limit, ok, c.used, c.limit)
		}
	}
}

// Limits and use are read again each time, because an operator may change them while the process
// runs.
func TestMemoryFollowsTheGroup(t *testing.T) {
	f := map[string]string{"/proc/self/cgroup": "0::/a\n", "/proc/self/mountinfo": v2Mount}
	group2(f, "/a", "4000", "1000", "0")
	root := host(t, f)
	g := Find(root)
	if err := os.WriteFile(root+"/sys/fs/cgroup/a/memory.max", []byte("2000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if used, limit, ok := g.Memory(machine); used != 1000 || limit != 2000 || !ok {
		t.Errorf("%d of %d, %v", used, limit, ok)
	}
	if _, _, ok := g.Memory(2000); ok {
		t.Error("a limit of all that the machine has binds")
	}
	if _, _, ok := g.Memory(0); !ok {
		t.Error("where the machine's memory is not known every limit binds")
	}
}

// This process's own groups can be read, whichever they are.
func TestFindHere(t *testing.T) {
	used, limit, ok := Find("").Memory(1 << 60)
	if ok && (used < 0 || limit <= 0) || !ok && (used != 0 || limit != 0) {
		t.Errorf("%d of %d, %v", used, limit, ok)
	}
}
