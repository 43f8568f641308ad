package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sie-engine/sie/tools/chaos/load"
	"github.com/sie-engine/sie/tools/chaos/rig"
	"github.com/sie-engine/sie/tools/chaos/row"
)

type cli struct {
	Run     runCmd      `cmd:"" help:"Run rows."`
	List    listCmd     `cmd:"" help:"Name the rows."`
	Without withoutCmd  `cmd:"" help:"Leave each fix of the protocol out of a build, and demand that its test or row turns red."`
	Load    loadCmd     `cmd:"" help:"Send load to a gateway or a sie-server --device null that runs already, and check every answer."`
	Node    rig.NodeCmd `cmd:"" name:"nats-node" hidden:"" help:"A NATS server, for run."`
}

type listCmd struct{}

// Run prints the rows; those of the short form have a star.
func (listCmd) Run() error {
	for _, r := range row.Table() {
		star := ""
		if r.Short {
			star = " *"
		}
		fmt.Printf("%s:%s%s\n", r.Topology, r.Name, star)
	}
	return nil
}

type runCmd struct {
	Rows    []string `help:"Patterns of row names, as server/kill9 or r3-memory:*/*; all where none is given." sep:" "`
	Short   bool     `help:"The rows of the short form, with shorter faults."`
	Bin     string   `help:"Folder of the programs." default:"bin" type:"path"`
	Venv    string   `help:"Python environment of the SDKs (tools/setup/venv.sh clients)." default:"build/venv-clients" type:"path"`
	NoSDKs  bool     `name:"no-sdks" help:"Raw clients only."`
	Dir     string   `help:"Folder for state and logs; a new temporary one where none is given. It is kept when a row is broken." type:"path"`
	Results string   `help:"File for the results as JSON; beside it a table." type:"path"`
}

// errBroken says that a requirement is broken; the lines say which.
var errBroken = errors.New("a requirement is broken")

// Run runs the rows, topology after topology.
func (c *runCmd) Run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	rows, err := row.Select(row.Table(), c.Rows, c.Short)
	if err != nil {
		return err
	}
	if c.Dir == "" {
		if c.Dir, err = os.MkdirTemp("", "sie-chaos-"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(c.Dir, "chaos.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	config := row.Config{
		Binary: filepath.Join(c.Bin, "sie-gateway"), Dir: c.Dir, Venv: c.Venv, Short: c.Short, Log: log,
		Known: known{}, Models: models,
	}
	if c.NoSDKs {
		config.Venv = ""
	}
	begin := time.Now()
	lines, err := c.runAll(ctx, config, rows)
	if err != nil {
		return err
	}
	broken := 0
	for _, l := range lines {
		if len(l.Broken) > 0 {
			broken++
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("interrupted after %d of %d rows; logs are in %s", len(lines), len(rows), c.Dir)
	}
	if broken > 0 {
		return fmt.Errorf("%w: %d of %d rows; logs are in %s", errBroken, broken, len(lines), c.Dir)
	}
	fmt.Printf("all %d rows held; %.0f s\n", len(lines), time.Since(begin).Seconds())
	return os.RemoveAll(c.Dir)
}

// runAll runs rows in their order, and goes on after those that are broken. A cluster serves the
// rows of its topology that follow each other; one that a row has left in disorder is replaced. The
// results are written after each row.
func (c *runCmd) runAll(ctx context.Context, config row.Config, rows []row.Row) (
	lines []row.Line, err error,
) {
	begin, done, all := time.Now(), 0, len(rows)
	fmt.Println(row.Header)
	show := func(l row.Line) {
		lines = append(lines, l)
		fmt.Println(l.String())
		if c.Results != "" {
			err = errors.Join(err, c.write(lines))
		}
	}
	for len(rows) > 0 && ctx.Err() == nil {
		topology, up := rows[0].Topology, time.Now()
		n := 0
		for n < len(rows) && rows[n].Topology == topology {
			n++
		}
		s, startErr := row.Up(ctx, config, topology)
		ready := time.Since(up)
		if startErr != nil {
			show(row.Line{Row: "start", Topology: topology, Broken: []string{startErr.Error()}})
			rows, done = rows[n:], done+n
			continue
		}
		for ; n > 0 && ctx.Err() == nil && !s.Spoiled; n-- {
			show(s.Run(ctx, &rows[0]))
			rows, done = rows[1:], done+1
		}
		if downErr := s.Down(); downErr != nil {
			show(row.Line{Row: "end", Topology: topology, Broken: []string{downErr.Error()}})
		}
		fmt.Printf("%s: %.0f s, of which %.0f s for the start; %d of %d rows in %.0f s\n", topology,
			time.Since(up).Seconds(), ready.Seconds(), done, all, time.Since(begin).Seconds())
	}
	return lines, err
}

// results is the file of --results.
type results struct {
	About map[string]string `json:"about"`
	Rows  []row.Line        `json:"rows"`
}

func (c *runCmd) write(lines []row.Line) error {
	r := results{Rows: lines, About: map[string]string{
		"date": time.Now().UTC().Format("2006-01-02 15:04 UTC"), "rows": strings.Join(c.Rows, " "),
	}}
	for name, argv := range map[string][]string{
		"lscpu": {"lscpu"}, "kernel": {"uname", "-r"}, "commit": {"git", "rev-parse", "--short=12", "HEAD"},
	} {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			return fmt.Errorf("%s: %w", argv[0], err)
		}
		r.About[name] = strings.TrimSpace(string(out))
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.Results, append(b, '\n'), 0o644); err != nil {
		return err
	}
	f, err := os.Create(strings.TrimSuffix(c.Results, ".json") + ".md")
	if err != nil {
		return err
	}
	return errors.Join(row.Markdown(f, lines), f.Close())
}

type loadCmd struct {
	URL  []string      `arg:"" help:"Base URLs."`
	Rate float64       `help:"Requests a second." default:"40"`
	For  time.Duration `help:"How long." default:"10s"`
	Venv string        `help:"Python environment of the SDKs; raw clients only where none is given." type:"path"`
	// Extract is empty by default because the built-in catalog has no such model.
	Extract string `help:"Model of extract requests; none are sent where none is given."`
}

// Run sends load until the time is over or a signal comes.
func (c *loadCmd) Run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	asked := models
	asked.Extract = c.Extract
	p := load.Plan{
		Name: fmt.Sprintf("load-%d", os.Getpid()), Gateways: c.URL, Models: asked, Known: known{}, Raw: 16,
		RawRate: c.Rate, SDKRate: c.Rate, Calls: 4,
	}
	for _, v := range load.Versions {
		if c.Venv == "" {
			continue
		}
		s, err := load.StartSDK(c.Venv, v, p.Calls, os.Stderr)
		if err != nil {
			return err
		}
		defer s.Close()
		p.SDKs = append(p.SDKs, s)
	}
	begin := time.Now()
	l, err := load.Start(p)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(c.For):
	}
	end := time.Now()
	records, err := l.Stop()
	steady := row.Rate(begin, end, records)
	line := row.Judge("load", row.Demand{}, row.Window{Fault: begin, Back: begin}, steady, records)
	fmt.Println(row.Header)
	fmt.Println(line.String())
	if len(line.Broken) > 0 {
		err = errors.Join(err, errBroken)
	}
	return err
}

// models are what the load asks for.
var models = load.Models{
	Encode: []string{"sentence-transformers/all-MiniLM-L6-v2", "thenlper/gte-small", "thenlper/gte-base"},
	Score:  "cross-encoder/ms-marco-MiniLM-L-6-v2", Extract: row.Extractor,
}

func main() {
	k := kong.Parse(&cli{}, kong.Name("chaos"), kong.UsageOnError(),
		kong.Description("Hurts a cluster in every way and checks that nobody notices."))
	if err := k.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}
