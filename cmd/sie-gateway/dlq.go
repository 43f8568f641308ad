package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/gateway/dlq"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/obs"
)

// dlqCmd shows dead letters: work that ended every server that ran it.
type dlqCmd struct {
	List   dlqListCmd   `cmd:"" help:"List dead letters, the newest first."`
	Show   dlqShowCmd   `cmd:"" help:"Print a dead letter as JSON."`
	Replay dlqReplayCmd `cmd:"" help:"Run a dead letter once more, alone in its server, and say what became of it. The letter stays."`
	Drop   dlqDropCmd   `cmd:"" help:"Delete dead letters."`
}

// brokerFlags say where the broker is.
type brokerFlags struct {
	NATS string `name:"nats-url" help:"Addresses of NATS, separated by commas." env:"SIE_NATS_URL" default:"nats://127.0.0.1:4222"`

	bus.Access `embed:""` // the gateway's
}

// letterTime bounds a command about letters, but for the time of a replay.
const letterTime = 30 * time.Second

// errNotConnected is returned when the broker does not answer.
var errNotConnected = errors.New("is it running, and are SIE_NATS_USER and SIE_NATS_PASSWORD right?")

// with calls f with a connection to the broker and the time that f may take.
func (b *brokerFlags) with(
	limit time.Duration, f func(context.Context, *nats.Conn, jetstream.JetStream) error,
) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx, cancelTime := context.WithTimeout(ctx, limit)
	defer cancelTime()
	connected := make(chan struct{}, 1)
	conn, err := bus.Connect(bus.Options{
		URL: b.NATS, Name: "sie-gateway dlq", Access: b.Access, Inboxes: bus.GatewayInboxes,
		Log: obs.NewLogger(io.Discard, false, false),
		Connected: func() {
			select {
			case connected <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	select {
	case <-connected:
	case <-time.After(connectTime):
		return fmt.Errorf("--nats-url %s: no connection: %w", bus.Redacted(b.NATS), errNotConnected)
	case <-ctx.Done():
		return ctx.Err()
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	return f(ctx, conn, js)
}

// connectTime bounds the wait for the broker.
const connectTime = 2 * time.Second

type dlqListCmd struct {
	brokerFlags `embed:""`
	Limit       int  `help:"The most letters to list." default:"50" range:"1..10000"`
	JSON        bool `name:"json" help:"One JSON object a line."`
}

func (c *dlqListCmd) Run() error {
	return c.with(letterTime, func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
		all, err := dlq.List(ctx, js, c.Limit)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			fmt.Fprintln(os.Stderr, "There are no dead letters.")
		}
		return printLetters(os.Stdout, all, c.JSON)
	})
}

// printLetters writes letters without their work.
func printLetters(w io.Writer, all []dlq.Letter, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(w)
		for _, l := range all {
			if err := out.Encode(l); err != nil {
				return err
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tTIME\tMODEL\tDEATHS\tREASON")
	for _, l := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n",
			l.ID, l.Time.UTC().Format(time.RFC3339), l.Model, l.Attempts, l.Reason)
	}
	return table.Flush()
}

type dlqShowCmd struct {
	brokerFlags `embed:""`
	ID          string `arg:"" help:"Id of the letter."`
	Work        bool   `help:"Print the work too, which holds the caller's texts."`
}

func (c *dlqShowCmd) Run() error {
	return c.with(letterTime, func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
		l, err := dlq.Get(ctx, js, c.ID)
		if err != nil {
			return named(err)
		}
		return showLetter(os.Stdout, l, c.Work)
	})
}

// showLetter writes a letter, and its work as JSON where it is asked for.
func showLetter(w io.Writer, l dlq.Letter, withWork bool) error {
	packed := l.Work
	l.Work = nil
	var unpacked json.RawMessage
	if withWork && len(packed) > 0 {
		var text bytes.Buffer
		if _, err := msgp.UnmarshalAsJSON(&text, packed); err != nil {
			return fmt.Errorf("the work of %s: %w", l.ID, err)
		}
		unpacked = text.Bytes()
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(struct {
		dlq.Letter
		Bytes int             `json:"work_bytes"`
		Work  json.RawMessage `json:"work,omitempty"`
	}{l, len(packed), unpacked})
}

type dlqReplayCmd struct {
	brokerFlags `embed:""`
	ID          string        `arg:"" help:"Id of the letter."`
	Timeout     time.Duration `help:"Time for an outcome." default:"1m" range:"1s..1h"`
	Storage     string        `name:"stream-storage" help:"Storage of a work stream that this makes: memory or file." default:"memory" enum:"memory,file" env:"SIE_STREAM_STORAGE"`
	Replicas    int           `name:"stream-replicas" help:"Its replicas: 1, 3 or 5." default:"1" range:"1..5" env:"SIE_STREAM_REPLICAS"`
}

func (c *dlqReplayCmd) Run() error {
	return c.with(c.Timeout, func(ctx context.Context, conn *nats.Conn, js jetstream.JetStream) error {
		l, err := dlq.Get(ctx, js, c.ID)
		if err != nil {
			return named(err)
		}
		o, err := dlq.Replay(ctx, conn, bus.Streams{Storage: c.Storage, Replicas: c.Replicas}, l)
		switch {
		case err != nil:
			return err
		case o.Died:
			return fmt.Errorf("%s ended the server of %s again", c.ID, o.Worker)
		case o.Err != nil:
			return fmt.Errorf("%s failed on %s: %s (%s)", c.ID, o.Worker, o.Err.Message, o.Err.Code)
		}
		fmt.Printf("%s ran on %s: %d results\n", c.ID, o.Worker, o.Results)
		return nil
	})
}

type dlqDropCmd struct {
	brokerFlags `embed:""`
	IDs         []string `arg:"" name:"id" help:"Ids of letters."`
}

func (c *dlqDropCmd) Run() error {
	return c.with(letterTime, func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
		var all []error
		for _, id := range c.IDs {
			err := dlq.Drop(ctx, js, id)
			if err == nil {
				fmt.Println(id, "is dropped")
			}
			all = append(all, named(err))
		}
		return errors.Join(all...)
	})
}

// named adds to the error for an id without a letter where ids are found.
func named(err error) error {
	if errors.Is(err, dlq.ErrNotFound) {
		return fmt.Errorf("%w; `sie-gateway dlq list` names those that are kept", err)
	}
	return err
}
