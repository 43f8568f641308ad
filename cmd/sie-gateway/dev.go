package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"

	"github.com/sie-engine/sie/gateway/dev"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/obs"
)

// devCmd runs a cluster on this machine, and tells a running one what to do.
type devCmd struct {
	Start  devStartCmd  `cmd:"" default:"withargs" help:"Run a cluster on this machine until Ctrl-C: NATS, sie-config, gateways and workers as processes."`
	Scale  devScaleCmd  `cmd:"" help:"Change the number of workers of a running cluster."`
	Kill   devKillCmd   `cmd:"" help:"Kill processes (SIGKILL): ROLE for all of a role, ROLE/i for one."`
	Term   devTermCmd   `cmd:"" help:"End processes in order (SIGTERM); they are started again."`
	Stop   devStopCmd   `cmd:"" help:"Stop processes (SIGSTOP), until cont."`
	Cont   devContCmd   `cmd:"" help:"Continue stopped processes (SIGCONT)."`
	Status devStatusCmd `cmd:"" help:"List the processes of a running cluster."`
}

// stateFlag says which cluster is meant.
type stateFlag struct {
	StateDir string `help:"Directory of the cluster: cluster.json, logs, sockets. Default: sie-dev-UID in the temporary directory." env:"SIE_DEV_STATE_DIR" type:"path"`
}

func (f *stateFlag) dir() string {
	if f.StateDir != "" {
		return f.StateDir
	}
	return dev.DefaultDir()
}

type devStartCmd struct {
	stateFlag `embed:""`

	Host      string   `help:"Address that the gateways listen on; everything else listens on 127.0.0.1." default:"127.0.0.1"`
	Port      int      `help:"Port of the first gateway, the next has the next; all other ports are up to 155 above it. 0 finds a free range." short:"p" default:"8080" range:"0..65380"`
	Gateways  int      `help:"Number of gateways." default:"1" range:"1..8"`
	Workers   int      `help:"Number of workers, each a sie-server and a sidecar." short:"w" default:"2" range:"0..64"`
	Lanes     []string `help:"Lanes as pool/machine-profile/bundle; workers are dealt out in turn." default:"default/cpu/default" sep:","`
	NATSPort  int      `name:"nats-port" help:"Port of the first NATS server; 0: 10 above --port." range:"0|1..65530"`
	NATSNodes int      `name:"nats-nodes" help:"NATS servers: 1, or 3 with replicated streams." default:"1" range:"1..3"`
	NATSURL   string   `name:"nats-url" help:"Addresses of NATS servers that run already, separated by commas; --nats-nodes says how many they are; the cluster then runs none."`

	bus.Access `embed:""` // with --nats-url

	Storage   string   `help:"Storage of the streams: memory or file." default:"memory" enum:"memory,file" env:"SIE_STREAM_STORAGE"`
	Replicas  int      `help:"Replicas of the work streams: 1 or 3; 0: as many as NATS servers." range:"0..3" env:"SIE_STREAM_REPLICAS"`
	Auth      bool     `help:"Give NATS a user for each kind of component, with random passwords."`
	Models    []string `name:"model" help:"Model that the servers serve: an id or a directory; repeat for several. Default: the lane's bundle." short:"m" sep:","`
	ModelsDir string   `help:"Directory of model files in place of the built-in catalog." type:"path"`
	Device    string   `help:"Device of the servers, as of sie-server; null runs none and has made-up vectors." short:"d"`
	NoRestart bool     `help:"Do not start again what ended."`
	Autoscale bool     `help:"Start without workers: requests and pools start them, at most --workers for each lane, and what is idle goes again."`
	Triggers  string   `help:"File of KEDA ScaledObjects that say how lanes are scaled, with --autoscale. Default: the built-in ones." type:"path"`
	BinDir    string   `help:"Directory of sie-config, sie-sidecar and sie-server. Default: that of this program." type:"path"`
	JSONLogs  bool     `help:"Log JSON." env:"SIE_LOG_JSON"`
}

// options returns the options of the cluster, and all that is wrong with the flags.
func (c *devStartCmd) options() (dev.Options, error) {
	o := dev.Options{
		Host: c.Host, Port: c.Port, Gateways: c.Gateways, Workers: c.Workers, NATSPort: c.NATSPort,
		NATSNodes: c.NATSNodes, NATSURL: c.NATSURL, Access: c.Access,
		Replicas: c.Replicas, Storage: c.Storage, Auth: c.Auth,
		StateDir: c.dir(), BinDir: c.BinDir, Models: c.Models, ModelsDir: c.ModelsDir, Device: c.Device,
		Restart: !c.NoRestart, Autoscale: c.Autoscale, Triggers: c.Triggers,
		Log: obs.NewLogger(os.Stderr, c.JSONLogs, false), Out: os.Stdout,
	}
	var all []error
	for _, s := range c.Lanes {
		l, err := dev.ParseLane(s)
		all = append(all, err)
		o.Lanes = append(o.Lanes, l)
	}
	if o.BinDir == "" {
		self, err := os.Executable()
		all = append(all, err)
		o.BinDir = filepath.Dir(self)
	}
	return o, errors.Join(all...)
}

func (c *devStartCmd) Check() error {
	_, err := c.options()
	return err
}

// Run runs the cluster until a signal; a second signal kills what is left.
func (c *devStartCmd) Run() error {
	o, err := c.options()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	drain, cancelDrain := context.WithCancel(context.Background())
	now, cancelNow := context.WithCancel(context.Background())
	defer cancelNow()
	defer cancelDrain()
	go func() { // ends with the process
		<-signals
		cancelDrain()
		<-signals
		cancelNow()
	}()
	cluster, err := dev.New(o)
	if err != nil {
		return err
	}
	fmt.Printf("sie-gateway dev %s (%s)\n", build.Version, build.Commit)
	return cluster.Run(drain, now)
}

// send gives a command to the running cluster. An interrupt ends the wait, and not the command.
func (f *stateFlag) send(m dev.Command) (dev.Reply, error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	return dev.Send(ctx, f.dir(), m)
}

type devScaleCmd struct {
	stateFlag `embed:""`
	Workers   int `arg:"" help:"Number of workers, 0 to 64."`
}

func (c *devScaleCmd) Run() error {
	_, err := c.send(dev.Command{Do: "scale", Workers: c.Workers})
	return err
}

// targetFlags names processes.
type targetFlags struct {
	stateFlag `embed:""`
	Target    string `arg:"" name:"role" help:"nats, config, gateway, worker, server or sidecar; with /i one of them. A worker is its server and its sidecar."`
}

func (c *targetFlags) Check() error {
	_, _, err := dev.ParseTarget(c.Target)
	return err
}

func (c *targetFlags) signal(do string) error {
	r, err := c.send(dev.Command{Do: do, Target: c.Target})
	if err != nil {
		return err
	}
	for _, p := range r.Processes {
		fmt.Printf("%s: %s\n", do, p.Process)
	}
	return nil
}

type (
	devKillCmd struct {
		targetFlags `embed:""`
	}
	devTermCmd struct {
		targetFlags `embed:""`
	}
	devStopCmd struct {
		targetFlags `embed:""`
	}
	devContCmd struct {
		targetFlags `embed:""`
	}
)

func (c *devKillCmd) Run() error { return c.signal("kill") }
func (c *devTermCmd) Run() error { return c.signal("term") }
func (c *devStopCmd) Run() error { return c.signal("stop") }
func (c *devContCmd) Run() error { return c.signal("cont") }

type devStatusCmd struct {
	stateFlag `embed:""`
}

func (c *devStatusCmd) Run() error {
	r, err := c.send(dev.Command{Do: "status"})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROCESS\tSTATE\tPID\tSTARTS\tLOG")
	for _, p := range r.Processes {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", p.Process, p.State, p.Pid, p.Starts, p.Log)
	}
	return w.Flush()
}
