package row

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/sie-engine/sie/tools/chaos/rig"
)

// How long a disk is full or slow.
const (
	fullDiskTime = 10 * time.Second
	slowDiskTime = 15 * time.Second
	// slowBytes is what a slow disk writes in a second.
	slowBytes = 128 << 10
)

// fullDisk fills the file systems of the first nodes. A NATS server that meets a full disk ends its
// JetStream for good, so the nodes are started again once there is room, as an operator does.
func fullDisk(nodes int) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		var old []int
		var empty []func() error
		for i := range nodes {
			pid, err := e.Nodes.PID(i)
			if err != nil {
				return err
			}
			old = append(old, pid)
			e.hit("the disk of node %d is filled", i)
			clear, err := e.Nodes.FillDisk(i)
			if err != nil {
				return err
			}
			empty = append(empty, clear)
		}
		if err := wait(ctx, fullDiskTime); err != nil {
			return err
		}
		for i, clear := range empty {
			if err := clear(); err != nil {
				return err
			}
			e.note("the disk of node %d has room; it is started again", i)
			if err := e.Nodes.Signal(i, syscall.SIGTERM); err != nil {
				return err
			}
		}
		return e.Nodes.Back(ctx, old)
	}
}

// errNotHere says that the machine does not permit a row's fault.
var errNotHere = errors.New("not run: this machine does not permit it")

// slowDisk limits what the nodes may write to their disk. The row uses nodes of its own, because
// the others keep their files in memory.
func slowDisk(ctx context.Context, e *Env) error {
	var pids []int
	for i := range e.Nodes.Proxies {
		pid, err := e.Nodes.PID(i)
		if err != nil {
			return err
		}
		pids = append(pids, pid)
	}
	lift, err := rig.SlowDisk(e.Dir, slowBytes, pids...)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	e.hit("the disk writes %d bytes a second", slowBytes)
	err = wait(ctx, slowDiskTime)
	e.note("the disk is fast again")
	return errors.Join(err, lift())
}
