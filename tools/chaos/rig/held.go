package rig

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Held is what a cluster holds at a moment.
type Held struct {
	Processes map[string]Process // by role/index
	Streams   int
	Consumers int
	Messages  uint64 // in the work streams
	TempFiles int
}

// Process is what one process holds.
type Process struct {
	PID         int
	Descriptors int
	Memory      int64 // resident, bytes
	Goroutines  int   // 0: its metrics do not tell
}

// Take counts what the cluster holds now. broker is a URL of NATS, past any proxy.
func (c *Cluster) Take(ctx context.Context, broker string) (Held, error) {
	h := Held{Processes: map[string]Process{}}
	s, err := c.State()
	if err != nil {
		return h, err
	}
	add := func(name string, pid int, metrics string) error {
		p, err := takeProcess(pid)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if metrics != "" {
			if p.Goroutines, err = goroutines(metrics); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		h.Processes[name] = p
		return nil
	}
	for i, g := range s.Gateways {
		if err := add(fmt.Sprintf("gateway/%d", i), g.PID, g.MetricsURL); err != nil {
			return h, err
		}
	}
	for i, w := range s.Workers {
		if err := add(fmt.Sprintf("sidecar/%d", i), w.SidecarPID, w.MetricsURL); err != nil {
			return h, err
		}
		if err := add(fmt.Sprintf("server/%d", i), w.ServerPID, ""); err != nil {
			return h, err
		}
	}
	if err := add("config/0", s.Config.PID, ""); err != nil {
		return h, err
	}
	if s.NATS.PID > 0 {
		if err := add("nats/0", s.NATS.PID, ""); err != nil {
			return h, err
		}
	}
	if err := h.takeStreams(ctx, broker); err != nil {
		return h, err
	}
	err = filepath.WalkDir(c.Temp(), func(_ string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && !d.IsDir() {
			h.TempFiles++
		}
		return err
	})
	return h, err
}

func takeProcess(pid int) (Process, error) {
	p := Process{PID: pid}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return p, err
	}
	p.Descriptors = len(fds)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return p, err
	}
	if f := strings.Fields(string(b)); len(f) > 1 {
		pages, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return p, err
		}
		p.Memory = pages * int64(os.Getpagesize())
	}
	return p, nil
}

// goroutines reads go_goroutines of a page of metrics.
func goroutines(url string) (int, error) {
	v, err := Metric(url, "go_goroutines")
	return int(v), err
}

// Metric returns the sum of a metric's series on a page of metrics that have all labels, each
// written as name="value". It is an error if there is no series of the name, unless labels are
// asked for.
func Metric(url, name string, labels ...string) (float64, error) {
	resp, err := probe.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	sum, found := 0.0, false
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, name) || len(line) == len(name) ||
			line[len(name)] != ' ' && line[len(name)] != '{' {
			continue
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			continue
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", url, err)
		}
		sum, found = sum+v, true
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	if !found && len(labels) == 0 {
		return 0, fmt.Errorf("%s has no series %s", url, name)
	}
	return sum, nil
}

func (h *Held) takeStreams(ctx context.Context, broker string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := nats.Connect(broker, nats.Timeout(2*time.Second), nats.Name("chaos"))
	if err != nil {
		return err
	}
	defer c.Close()
	js, err := jetstream.New(c)
	if err != nil {
		return err
	}
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		if info.Config.Name == "DEAD_LETTERS" { // made by the first letter, and stays
			continue
		}
		h.Streams++
		h.Consumers += info.State.Consumers
		if strings.HasPrefix(info.Config.Name, "WORK_POOL_") {
			h.Messages += info.State.Msgs
		}
	}
	return list.Err()
}

// The growth that is no leak: a runtime's own, pools of connections and buffers that are kept, and
// memory that a runtime has freed and not given back yet.
const (
	moreDescriptors = 24
	moreGoroutines  = 48
	moreMemory      = 128 << 20
)

// Grown returns what b holds beyond a. Processes that were started between are compared with
// nothing.
func (b *Held) Grown(a *Held) (grown []string) {
	for name, now := range b.Processes {
		then, ok := a.Processes[name]
		if !ok || then.PID != now.PID {
			continue
		}
		for _, x := range []struct {
			what           string
			then, now, may int64
		}{
			{"descriptors", int64(then.Descriptors), int64(now.Descriptors), moreDescriptors},
			{"goroutines", int64(then.Goroutines), int64(now.Goroutines), moreGoroutines},
			{"bytes of memory", then.Memory, now.Memory, moreMemory},
		} {
			if x.now > x.then+x.may {
				grown = append(grown, fmt.Sprintf("%s: %d %s, %d before", name, x.now, x.what, x.then))
			}
		}
	}
	if b.Streams != a.Streams || b.Consumers != a.Consumers {
		grown = append(grown, fmt.Sprintf("%d streams and %d consumers, %d and %d before",
			b.Streams, b.Consumers, a.Streams, a.Consumers))
	}
	if b.Messages > 0 {
		grown = append(grown, fmt.Sprintf("%d messages are left in the work streams", b.Messages))
	}
	if b.TempFiles > a.TempFiles {
		grown = append(grown, fmt.Sprintf("%d temporary files, %d before", b.TempFiles, a.TempFiles))
	}
	return grown
}
