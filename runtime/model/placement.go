package model

import (
	"fmt"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
)

// Auto is the value of Options.Placement that leaves the choice to placement.
const Auto = "auto"

// placementShare is the divisor of the free memory that copies may take: the rest is for the models
// that are loaded next, which would otherwise have to unload this one.
const placementShare = 2

// placement chooses where the weights of a model of that size lie. On one node there is nothing to
// choose. On several, linear weights have a copy on each if all of it fits in half of what the
// budget and the machine have free; otherwise all pages lie on the nodes in turn.
func (h *Host) placement(size arch.Size) engine.Placement {
	nodes := h.nodes()
	if nodes < 2 {
		return engine.Interleaved
	}
	for p, name := range engine.PlacementNames {
		if h.opt.Placement == name {
			return p
		}
	}
	m := h.memory()
	free := int64(h.opt.MemoryThreshold*float64(m.total)) - m.used
	if budget := h.opt.MemoryBudget; budget > 0 {
		free = min(free, budget-h.models.Bytes()/int64(len(h.devices)))
	}
	if size.On(nodes, engine.Copied) <= free/placementShare {
		return engine.Copied
	}
	return engine.Interleaved
}

// nodes returns the number of nodes that executors are on, which all have their part of the
// weights.
func (h *Host) nodes() int {
	if len(h.devices) == 0 || h.opt.Null != nil {
		return 1
	}
	return max(1, h.devices[0].about.NodesUsed)
}

// checkPlacement refuses a placement that there is none of.
func (o *Options) checkPlacement() error {
	if o.Placement == "" || o.Placement == Auto {
		return nil
	}
	for _, name := range engine.PlacementNames {
		if o.Placement == name {
			return nil
		}
	}
	return fmt.Errorf("Placement must be auto, %s or %s; got %q", engine.Interleaved, engine.Copied,
		o.Placement)
}

// weightsOn says where the model's weights lie, for the log.
func (l *Model) weightsOn() string {
	switch nodes := l.host.nodes(); {
	case nodes < 2:
		return "one node"
	case l.weights.Placement == engine.Copied:
		return fmt.Sprintf("%d nodes, a copy on each", nodes)
	default:
		return fmt.Sprintf("%d nodes in turn", nodes)
	}
}
