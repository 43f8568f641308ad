package row

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sie-engine/sie/tools/chaos/rig"
)

// The topologies.
const (
	R1     = "r1-memory" // the cluster's own single NATS server
	Behind = "r1-proxy"  // one server behind a proxy
	R3     = "r3-memory" // three servers, streams in memory
	R3File = "r3-file"   // three servers, streams in files on small disks of their own
	R3Disk = "r3-disk"   // three servers that write each message to this machine's disk
	Ahead  = "r1-ahead"  // R1, and the workers' clocks are ahead
	After  = "r1-after"  // R1, and the workers' clocks are behind
	Four   = "r1-four"   // R1, four workers, for the isolation rows
	Auto   = "r1-auto"   // R1, workers come and go by triggers, at most four
)

// clockOffset is what a topology's workers add to their clocks.
var clockOffset = map[string]string{Ahead: "4s", After: "-4s"}

// Row is one fault.
type Row struct {
	Name     string
	Topology string
	Short    bool // part of the short form too
	Demand   Demand
	Follow   bool // raw clients follow /readyz
	// Fault does the fault and returns when everything runs again. It notes what it does.
	Fault func(ctx context.Context, e *Env) error
	// Alone replaces the steady load and Fault: the row makes its own requests and fills in a line.
	Alone func(ctx context.Context, e *Env) (Line, error)
}

// Env is what a row works on. It belongs to one goroutine.
type Env struct {
	*Setup
	Window Window
	Stop   time.Duration // of SIGSTOP rows
	Short  bool
	Broken []string // requirements that the row's fault saw broken

	before map[string]float64 // work messages that each worker had taken when the row began
}

// note keeps a step with its time.
func (e *Env) note(format string, args ...any) {
	e.Window.Steps = append(e.Window.Steps, clock(time.Now())+" "+fmt.Sprintf(format, args...))
}

// breaks notes a requirement that is broken; the first count.
func (e *Env) breaks(format string, args ...any) {
	if len(e.Broken) < maxBroken {
		e.Broken = append(e.Broken, fmt.Sprintf(format, args...))
	}
}

// hit notes the moment of the fault; the first counts.
func (e *Env) hit(format string, args ...any) {
	e.note(format, args...)
	if e.Window.Fault.IsZero() {
		e.Window.Fault = time.Now()
	}
}

// workerDeath is how long an answer may take when one worker died.
const workerDeath = 30 * time.Second

// fullRate is how soon the full rate must be there again.
const fullRate = 5 * time.Second

// Table returns all rows, in the order in which they run.
func Table() []Row {
	var rows []Row
	for _, t := range []struct {
		target   rig.Target
		demand   Demand
		topology string
	}{
		{rig.Target{Role: rig.Server}, Demand{Longest: workerDeath, FullRate: fullRate}, R1},
		{rig.Target{Role: rig.Sidecar}, Demand{Longest: workerDeath, FullRate: fullRate}, R1},
		{rig.Target{Role: rig.Edge}, Demand{FullRate: fullRate, Resets: []int{0}}, R1},
		{rig.Target{Role: rig.NATS}, Demand{FullRate: fullRate}, R1},
	} {
		rows = append(rows, processRows(t.topology, t.target, t.demand)...)
	}
	rows = append(rows,
		Row{
			Name: "stream/lost", Topology: R1, Short: true, Demand: Demand{FullRate: fullRate},
			Fault: loseStream,
		},
		Row{Name: "stream/full", Topology: R1, Short: true, Demand: Demand{FullRate: fullRate},
			Fault: fillStream},
		Row{Name: "poison", Topology: R1, Short: true, Alone: poison},
		Row{Name: "clock", Topology: Ahead, Demand: Demand{Only200: true, FullRate: fullRate},
			Fault: clockOff},
		Row{Name: "clock", Topology: After, Demand: Demand{Only200: true, FullRate: fullRate},
			Fault: clockOff},
	)
	rows = append(rows, controlRows()...)
	rows = append(rows, partitionRows(Behind)...)
	for _, topology := range []string{R3, R3File} {
		rows = append(rows, brokerRows(topology)...)
	}
	// A slow network is the same to one broker as to three.
	rows = append(rows, partitionRows(R3)[:3]...)
	rows = append(rows,
		Row{Name: "stream/lost", Topology: R3, Demand: Demand{FullRate: fullRate}, Fault: loseStream},
		Row{Name: "disk/full-one", Topology: R3File, Demand: Demand{FullRate: fullRate},
			Fault: fullDisk(1)},
		Row{Name: "disk/full-all", Topology: R3File, Demand: Demand{FullRate: fullRate},
			Fault: fullDisk(3)},
		Row{Name: "disk/slow", Topology: R3Disk, Demand: Demand{FullRate: fullRate}, Fault: slowDisk},
	)
	rows = append(rows, isolationRows()...)
	order := []string{R1, Ahead, After, Behind, R3, R3File, R3Disk, Four, Auto}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return slices.Index(order, a.Topology) - slices.Index(order, b.Topology)
	})
	return rows
}

// processRows are the four ways to hurt one process.
func processRows(topology string, t rig.Target, d Demand) []Row {
	gentle := d
	if t.Role != rig.NATS {
		// Whoever drains leaves nobody without an answer.
		gentle.Only200, gentle.Resets = true, nil
	}
	frozen := d
	frozen.Resets = nil // a stopped process closes no connection
	frozen.Felt = 2 * time.Second
	twice := d
	rows := []Row{
		{Name: t.Role + "/kill9", Short: true, Demand: d, Fault: restarts(t, syscall.SIGKILL, 1)},
		{Name: t.Role + "/stop", Demand: frozen, Fault: stop(t)},
		{
			Name: t.Role + "/term", Short: true, Demand: gentle, Follow: t.Role == rig.Edge,
			Fault: restarts(t, syscall.SIGTERM, 1),
		},
		{Name: t.Role + "/restart3", Demand: twice, Fault: restarts(t, syscall.SIGKILL, 3)},
	}
	for i := range rows {
		rows[i].Topology = topology
	}
	return rows
}

// restarts sends a signal that ends a process and waits until it runs again, n times in a row.
func restarts(t rig.Target, sig syscall.Signal, n int) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		t := e.busiest(t)
		for range n {
			old, err := e.Cluster.PID(t)
			if err != nil {
				return err
			}
			e.hit("%v of %v, process %d", sig, t, old)
			if _, err := e.Cluster.Signal(t, sig); err != nil {
				return err
			}
			if err := e.Cluster.Back(ctx, t, old); err != nil {
				return err
			}
			e.note("%v is back", t)
		}
		return nil
	}
}

// stop freezes a process for a while.
func stop(t rig.Target) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		t := e.busiest(t)
		e.hit("SIGSTOP of %v", t)
		pid, err := e.Cluster.Signal(t, syscall.SIGSTOP)
		if err != nil {
			return err
		}
		defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }() // also where the wait is cut short
		if err := wait(ctx, e.Stop); err != nil {
			return err
		}
		e.note("SIGCONT")
		return syscall.Kill(pid, syscall.SIGCONT)
	}
}

// wait lasts for d: how long a fault lasts is part of it.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// brokerRows hurt one NATS node and all of them.
func brokerRows(topology string) []Row {
	var rows []Row
	for _, x := range []struct {
		name  string
		nodes int
	}{{"node", 1}, {"all-nodes", 3}} {
		d := Demand{FullRate: fullRate}
		frozen := d
		if x.nodes > 1 {
			frozen.Felt = 2 * time.Second // two of three nodes go on without the third
		}
		rows = append(rows,
			Row{Name: x.name + "/kill9", Demand: d, Fault: nodeRestarts(x.nodes, syscall.SIGKILL, 1)},
			Row{Name: x.name + "/stop", Demand: frozen, Fault: nodesStop(x.nodes)},
			Row{Name: x.name + "/term", Demand: d, Fault: nodeRestarts(x.nodes, syscall.SIGTERM, 1)},
			Row{Name: x.name + "/restart3", Demand: d, Fault: nodeRestarts(x.nodes, syscall.SIGKILL, 3)})
	}
	for i := range rows {
		rows[i].Topology = topology
	}
	return rows
}

// nodeRestarts ends the first nodes of three at once and waits until the cluster has a leader, n
// times.
func nodeRestarts(nodes int, sig syscall.Signal, n int) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		for range n {
			var old []int
			for i := range nodes {
				pid, err := e.Nodes.PID(i)
				if err != nil {
					return err
				}
				old = append(old, pid)
			}
			for i := range nodes {
				e.hit("%v of node %d", sig, i)
				if err := e.Nodes.Signal(i, sig); err != nil {
					return err
				}
			}
			if err := e.Nodes.Back(ctx, old); err != nil {
				return err
			}
			e.note("%d nodes are back", nodes)
		}
		return nil
	}
}

func nodesStop(nodes int) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		each := func(sig syscall.Signal) error {
			var all []error
			for i := range nodes {
				all = append(all, e.Nodes.Signal(i, sig))
			}
			return errors.Join(all...)
		}
		e.hit("SIGSTOP of %d nodes", nodes)
		if err := each(syscall.SIGSTOP); err != nil {
			return err
		}
		defer func() { _ = each(syscall.SIGCONT) }()
		if err := wait(ctx, e.Stop); err != nil {
			return err
		}
		if err := each(syscall.SIGCONT); err != nil {
			return err
		}
		e.note("SIGCONT")
		return e.Nodes.Ready(ctx)
	}
}

// Select returns the rows whose name, or topology:name, matches one of the patterns; all for none.
func Select(rows []Row, patterns []string, short bool) ([]Row, error) {
	var out []Row
	used := make([]bool, len(patterns))
	for _, r := range rows {
		take := len(patterns) == 0 && (!short || r.Short)
		for i, p := range patterns {
			full := r.Name
			if strings.Contains(p, ":") {
				full = r.Topology + ":" + r.Name
			}
			ok, err := path.Match(p, full)
			if err != nil {
				return nil, fmt.Errorf("row pattern %q: %w", p, err)
			}
			if ok {
				take, used[i] = true, true
			}
		}
		if take {
			out = append(out, r)
		}
	}
	for i, u := range used {
		if !u {
			return nil, fmt.Errorf("no row matches %q; `chaos list` names them", patterns[i])
		}
	}
	return out, nil
}
