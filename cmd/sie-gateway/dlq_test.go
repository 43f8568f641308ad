package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/gateway/dlq"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/work"
)

// output runs a command line and returns what it prints.
func output(t *testing.T, args ...string) (string, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = old }()
	k, err := newParser(&cli{}).Parse(args)
	if err == nil {
		err = sie.Run(k)
	}
	if e := w.Close(); e != nil {
		t.Fatal(e)
	}
	text, e := io.ReadAll(r)
	if e != nil {
		t.Fatal(e)
	}
	return string(text), err
}

// Letters are listed and shown, their texts only when they are asked for, and dropped.
func TestDeadLettersOnTheCommandLine(t *testing.T) {
	s := bustest.Start(t, nil)
	js, err := jetstream.New(s.Connect(bus.GatewayInboxes))
	if err != nil {
		t.Fatal(err)
	}
	lane := bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}
	item := work.Item{
		WorkItemID: "r.0", Operation: "encode", ModelID: "org/m", Instruction: new("secret words"),
	}
	packed, err := item.MarshalMsg(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"dl-1", "dl-2"} {
		if err := dlq.Store(t.Context(), js, bus.Streams{}, dlq.Letter{
			ID: id, Time: time.Unix(1e9, 0), Subject: lane.WorkSubject("org/m"), Model: "org/m",
			Reason: "it ended its server twice", Attempts: 2, Work: packed,
		}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := output(t, "dlq", "list", "--nats-url", s.URL)
	want := "ID    TIME                  MODEL  DEATHS  REASON\n" +
		"dl-2  2001-09-09T01:46:40Z  org/m  2       it ended its server twice\n" +
		"dl-1  2001-09-09T01:46:40Z  org/m  2       it ended its server twice\n"
	if got != want || err != nil {
		t.Errorf("%s%v", got, err)
	}
	got, err = output(t, "dlq", "list", "--json", "--limit", "1", "--nats-url", s.URL)
	if err != nil || strings.Count(got, "\n") != 1 || !strings.Contains(got, `"id":"dl-2"`) ||
		strings.Contains(got, `"work"`) {
		t.Errorf("%s%v", got, err)
	}
	if got, err = output(t, "dlq", "show", "dl-1", "--nats-url", s.URL); err != nil ||
		!strings.Contains(got, `"work_bytes": `) || strings.Contains(got, "secret") {
		t.Errorf("%s%v", got, err)
	}
	if got, err = output(t, "dlq", "show", "dl-1", "--work", "--nats-url", s.URL); err != nil ||
		!strings.Contains(got, "secret words") {
		t.Errorf("%s%v", got, err)
	}
	_, err = output(t, "dlq", "drop", "dl-1", "dl-9", "--nats-url", s.URL)
	if !errors.Is(err, dlq.ErrNotFound) {
		t.Errorf("dropping one that is not there: %v", err)
	}
	got, err = output(t, "dlq", "list", "--nats-url", s.URL)
	if err != nil || strings.Contains(got, "dl-1") {
		t.Errorf("after drop: %s%v", got, err)
	}
	// Nobody serves: a replay says so when its time is up.
	if _, err = output(t, "dlq", "replay", "dl-2", "--timeout", "1s", "--nats-url", s.URL); err == nil ||
		!strings.Contains(err.Error(), "no worker answered") {
		t.Errorf("a replay without workers: %v", err)
	}
	s.Stop()
	if _, err = output(t, "dlq", "list", "--nats-url", s.URL); err == nil ||
		!strings.Contains(err.Error(), "no connection: is it running") {
		t.Errorf("without a broker: %v", err)
	}
}
