// Command control is many workers without a server: each follows sie-config as a sidecar does, over
// a connection to NATS of its own, and sends heartbeats with the hash that its server would have.
// It prints a JSON line when all of them have an epoch, with the time of the last. It ends with its
// standard input.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/work"
	"github.com/sie-engine/sie/sidecar/control"
)

// config is what the flags say.
type config struct {
	nats, url string
	workers   int
	lane      bus.Lane
}

func main() {
	var c config
	flag.StringVar(&c.nats, "nats", "nats://127.0.0.1:4222", "address of NATS")
	flag.StringVar(&c.url, "config", "http://127.0.0.1:8080", "address of sie-config")
	flag.IntVar(&c.workers, "workers", 200, "how many")
	flag.StringVar(&c.lane.Pool, "pool", "default", "pool of all of them")
	flag.StringVar(&c.lane.Profile, "profile", "cpu", "their machine profile")
	flag.StringVar(&c.lane.Bundle, "bundle", "default", "their bundle")
	flag.Parse()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := run(ctx, c, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "control:", err)
		os.Exit(1)
	}
}

// run works until ctx ends.
func run(ctx context.Context, c config, to io.Writer) error {
	all := &reached{workers: c.workers, out: json.NewEncoder(to), by: map[uint64]int{},
		at: make([]uint64, c.workers)}
	var group sync.WaitGroup
	defer group.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for i := range c.workers {
		w := &worker{id: fmt.Sprintf("fake-%03d", i), lane: c.lane}
		if err := w.start(ctx, c, &group, func(epoch uint64) { all.note(i, epoch) }); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// reached counts which workers have which epoch.
type reached struct {
	mu      sync.Mutex
	workers int
	out     *json.Encoder
	at      []uint64       // epoch + 1 of each worker, 0 before its first
	by      map[uint64]int // workers by that
	told    uint64
}

// note remembers that a worker has an epoch, and prints it if it is the last to have it.
func (r *reached) note(worker int, epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by[r.at[worker]]--; r.by[r.at[worker]] <= 0 {
		delete(r.by, r.at[worker])
	}
	r.at[worker] = epoch + 1
	r.by[epoch+1]++
	if r.by[epoch+1] == r.workers && r.told != epoch+1 {
		r.told = epoch + 1
		// who reads no more ends this process
		_ = r.out.Encode(map[string]any{"epoch": epoch, "at": float64(time.Now().UnixNano()) / 1e9})
	}
}

// worker is one of them.
type worker struct {
	id       string
	lane     bus.Lane
	conn     *nats.Conn
	sequence uint64
	news     chan string // the hash of the models that it has now
}

// start connects and begins to follow and to send heartbeats.
func (w *worker) start(ctx context.Context, c config, group *sync.WaitGroup, has func(epoch uint64)) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	conn, err := bus.Connect(bus.Options{URL: c.nats, Name: w.id, Inboxes: bus.SidecarInboxes, Log: log})
	if err != nil {
		return err
	}
	w.conn, w.news = conn, make(chan string, 1)
	f, err := control.New(control.Options{URL: c.url, Bundle: c.lane.Bundle, Trusted: []string{"sie-config"},
		Log: log, Read: func(e *control.Export, _ time.Time) {
			has(e.Epoch)
			select {
			case <-w.news: // an older one
			default:
			}
			w.news <- e.Hash
		}})
	if err == nil {
		_, err = f.Listen(conn)
	}
	if err != nil {
		conn.Close()
		return err
	}
	group.Go(func() { f.Run(ctx) })
	group.Go(func() {
		defer conn.Close()
		w.beats(ctx, log)
	})
	return nil
}

// beats sends a heartbeat every work.WorkerHeartbeat and at each change.
func (w *worker) beats(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(work.WorkerHeartbeat)
	defer tick.Stop()
	hash := ""
	for {
		w.sequence++
		data, err := json.Marshal(bus.WorkerHeartbeat{Name: w.id, Ready: true, MachineProfile: w.lane.Profile,
			PoolName: w.lane.Pool, Bundle: w.lane.Bundle, BundleConfigHash: hash, Sequence: w.sequence,
			LoadedModels: []string{}, LoadingModels: []string{}, Epoch: w.id})
		if err == nil {
			err = w.conn.Publish(bus.HealthPrefix+w.id, data)
		}
		if err != nil && !errors.Is(err, nats.ErrReconnectBufExceeded) {
			log.Warn("heartbeat", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case hash = <-w.news:
		}
	}
}
