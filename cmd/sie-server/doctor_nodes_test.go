package main

import (
	"strings"
	"testing"

	"github.com/sie-engine/sie/runtime/engine"
)

// TestDoctorNodes: what doctor says of a machine's nodes, by what --numa says.
func TestDoctorNodes(t *testing.T) {
	two := engine.Info{Nodes: 2, NodesUsed: 2, Cores: 64, Caches: 8}
	one := engine.Info{Nodes: 1, NodesUsed: 1, Cores: 2}
	part := engine.Info{Nodes: 2, NodesUsed: 1, Cores: 64, Caches: 8}
	for _, c := range []struct {
		numa string
		info engine.Info
		says string
	}{
		{"auto", one, "1 with memory, 2 physical cores, L3 caches unknown; weights: on the one node"},
		{"auto", two, "2 with memory, 64 physical cores, 8 L3 caches; weights: a copy on each of 2 nodes if"},
		{"copy", two, "weights: a copy on each of 2 nodes (--numa copy)"},
		{"interleave", two, "weights: on 2 nodes in turn (--numa interleave)"},
		{"off", two, "weights: where the kernel puts them (--numa off)"},
		{"auto", part, "weights: on the one node that has compute threads"},
	} {
		f := computeFlags{NUMA: c.numa}
		if got := f.nodes(c.info); !strings.Contains(got, c.says) {
			t.Errorf("--numa %s: %q does not say %q", c.numa, got, c.says)
		}
		if one := f.cpu().OneNode; one != (c.numa == "off") {
			t.Errorf("--numa %s: OneNode is %v", c.numa, one)
		}
		if p := f.placement(); (p == c.numa) == (c.numa == "off") {
			t.Errorf("--numa %s: placement %q", c.numa, p)
		}
	}
}
