package row

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sie-engine/sie/tools/chaos/load"
	"github.com/sie-engine/sie/tools/chaos/rig"
)

const (
	poisonText = "!crash the server that runs this"
	// goodItems is how many good texts are answered around the poison.
	goodItems = 1000
	// maxDeaths is how many servers one text may end.
	maxDeaths = 3
	// poisonTime bounds the wait for the poison's own answer.
	poisonTime = 120 * time.Second
)

// poison sends a text that ends its server, among a thousand good ones. Its caller is told, no
// more than maxDeaths servers end, and every good text is answered.
func poison(ctx context.Context, e *Env) (Line, error) {
	p, err := e.plan("poison", false)
	if err != nil {
		return Line{}, err
	}
	letters, err := e.deadLetters(ctx)
	if err != nil {
		return Line{}, err
	}
	state, err := e.Cluster.State()
	if err != nil {
		return Line{}, err
	}
	work, err := load.Start(p)
	if err != nil {
		return Line{}, err
	}
	begin := time.Now()
	err = wait(ctx, steadyTime)
	steady := Rate(begin, time.Now(), work.Records(0))
	answered := make(chan string, 1)
	e.hit("the poison is sent")
	go func() { answered <- sendPoison(p.Gateways[0], e.Models.Encode[0]) }()
	deaths, why := e.countDeaths(ctx, state, answered)
	e.note("the poison is answered; %d servers ended", deaths)
	for err == nil && items(work.Records(0)) < goodItems {
		err = wait(ctx, rateStep)
	}
	for i := range state.Workers {
		err = errors.Join(err, e.Cluster.Back(ctx, rig.Target{Role: rig.Server, Index: i}, 0))
	}
	e.Window.Back = time.Now()
	if err == nil {
		err = wait(ctx, tailTime)
	}
	records, stopErr := work.Stop()
	l := Judge("poison", Demand{Longest: 3 * workerDeath}, e.Window, steady, records)
	if why != "" {
		l.Broken = append(l.Broken, why)
	}
	if deaths > maxDeaths || deaths == 0 {
		l.Broken = append(l.Broken, fmt.Sprintf("%d servers ended with one text; 1 to %d", deaths,
			maxDeaths))
	}
	if now, err := e.deadLetters(ctx); err != nil || now != letters+1 {
		l.Broken = append(l.Broken, fmt.Sprintf("%d dead letters, %d before; one more (%v)", now, letters,
			err))
	}
	return l, errors.Join(err, stopErr)
}

func items(records []load.Record) (n int) {
	for i := range records {
		if records[i].Verdict == load.OK {
			n += records[i].Items
		}
	}
	return n
}

// countDeaths counts the servers that end until the poison is answered, and returns what is wrong
// with the answer, or "".
func (e *Env) countDeaths(ctx context.Context, before rig.State, answered <-chan string) (deaths int,
	why string) {
	pids := make([]int, len(before.Workers))
	for i, w := range before.Workers {
		pids[i] = w.ServerPID
	}
	look := func() {
		s, err := e.Cluster.State()
		if err != nil {
			return // it is being replaced
		}
		for i, w := range s.Workers {
			if i < len(pids) && w.ServerPID != pids[i] && w.ServerPID > 0 {
				pids[i], deaths = w.ServerPID, deaths+1
			}
		}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return deaths, ctx.Err().Error()
		case why := <-answered:
			// The last death may not be in the file yet.
			end := time.Now().Add(5 * time.Second)
			for time.Now().Before(end) && wait(ctx, 50*time.Millisecond) == nil {
				look()
			}
			return deaths, why
		case <-tick.C:
			look()
		}
	}
}

// sendPoison returns what is wrong with the poison's answer, or "".
func sendPoison(gateway, model string) string {
	body, err := json.Marshal(map[string]any{"items": []any{map[string]any{"id": "p", "text": poisonText}}})
	if err != nil {
		return err.Error()
	}
	c := http.Client{Timeout: poisonTime}
	resp, err := c.Post(gateway+"/v1/encode/"+model, "application/json", bytes.NewReader(body))
	if err != nil {
		return "the poison's caller got no answer: " + err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return "the poison's caller got half an answer: " + err.Error()
	}
	retry := resp.StatusCode == 503 || resp.Header.Get("Retry-After") != ""
	if resp.StatusCode < 400 || retry {
		return fmt.Sprintf("the poison's caller got %d (Retry-After %q): %.300s", resp.StatusCode,
			resp.Header.Get("Retry-After"), b)
	}
	if strings.Contains(string(b), poisonText) {
		return fmt.Sprintf("the poison's answer repeats its text: %.300s", b)
	}
	return ""
}

// deadLetters counts the dead letters.
func (e *Env) deadLetters(ctx context.Context) (n uint64, err error) {
	err = e.jetStream(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		s, err := js.Stream(ctx, "DEAD_LETTERS")
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := s.Info(ctx)
		if err == nil {
			n = info.State.Msgs
		}
		return err
	})
	return n, err
}
