package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The models: one that encodes, one that scores, and one that extracts, whose directory is its id.
const (
	encoder   = "sentence-transformers/all-MiniLM-L6-v2"
	scorer    = "BAAI/bge-reranker-base"
	extractor = "observed-labels"
	changing  = "test/changing" // is put into sie-config
)

const extractorConfig = `{"architectures": ["BertForSequenceClassification"], "model_type": "bert",
 "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
 "vocab_size": 100, "max_position_embeddings": 512, "type_vocab_size": 2,
 "id2label": {"0": "contradiction", "1": "neutral", "2": "entailment"}}
`

// writeModels makes the extractor's directory and returns what the cluster serves.
func writeModels(dir string) ([]string, error) {
	path := filepath.Join(dir, extractor)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return []string{encoder, scorer, path},
		os.WriteFile(filepath.Join(path, "config.json"), []byte(extractorConfig), 0o644)
}

// traffic is what callers ask all the time: a little of everything, right and wrong.
type traffic struct {
	url    string
	cancel context.CancelFunc
	done   sync.WaitGroup
	calm   chan struct{} // has an element while the traffic may go on
}

func newTraffic(url string) *traffic {
	t := &traffic{url: url, calm: make(chan struct{}, 1)}
	t.calm <- struct{}{}
	return t
}

// call is one request, by the token of a tenant.
type call struct {
	path, body, key string
	pool            string
}

// encode returns a request of texts.
func encode(texts ...string) call {
	items := make([]map[string]string, len(texts))
	for i, s := range texts {
		items[i] = map[string]string{"text": s}
	}
	body, err := json.Marshal(map[string]any{"items": items})
	if err != nil {
		panic("observe: internal error: " + err.Error())
	}
	return call{path: "/v1/encode/" + encoder, body: string(body)}
}

// send sends a request and returns its status, 0 without one.
func (t *traffic) send(ctx context.Context, c call) (int, string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+c.path, strings.NewReader(c.body))
	if err != nil {
		return 0, err.Error()
	}
	key := userKey
	if c.key != "" {
		key = c.key
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if c.pool != "" {
		r.Header.Set("X-SIE-Pool", c.pool)
	}
	resp, err := (&http.Client{Timeout: patience}).Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = io.Copy(&b, io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, b.String()
}

// ordinary are requests that are answered.
func ordinary() []call {
	return []call{
		encode("a", "some text"), {path: "/v1/embeddings", body: `{"model":"` + encoder + `","input":"a"}`},
		{path: "/v1/score/" + scorer, body: `{"query":{"text":"q"},"items":[{"text":"a"},{"text":"b"}]}`},
		{path: "/v1/extract/" + extractor,
			body: `{"items":[{"text":"a"}],"params":{"labels":["x","y"]}}`},
		{path: "/v1/encode/" + encoder, body: encode("b").body, pool: "second"},
	}
}

// warm waits until the cluster answers every ordinary request.
func (t *traffic) warm(ctx context.Context) error {
	for _, c := range ordinary() {
		err := until(ctx, patience, func() error {
			if status, text := t.send(ctx, c); status != http.StatusOK {
				return fmt.Errorf("%s: %d %.300s", c.path, status, text)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// odd are requests that are refused, or that do what is seldom done.
func odd() []call {
	return []call{
		{path: "/v1/encode/" + encoder, body: `{"items":"no list"}`},
		{path: "/v1/encode/no/such", body: encode("a").body},
		{path: "/v1/encode/" + encoder, body: encode("a").body, key: "wrong"},
		{path: "/v1/encode/" + encoder, body: encode("a", "b", "c", "d").body, key: guestKey},
		encode(strings.Repeat("long text ", 120_000)), // is put into the payload store
	}
}

// run asks for ordinary things six times a second, and for the others now and then.
func (t *traffic) run(ctx context.Context) {
	ctx, t.cancel = context.WithCancel(ctx)
	many := func(every time.Duration, calls []call) {
		t.done.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				select {
				case <-t.calm:
					t.calm <- struct{}{}
				default:
					continue
				}
				c := calls[i%len(calls)]
				t.done.Go(func() { t.send(ctx, c) })
			}
		})
	}
	many(150*time.Millisecond, ordinary())
	many(700*time.Millisecond, odd())
	t.done.Go(func() { // clients that leave
		for ctx.Err() == nil {
			left, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			t.send(left, encode("!sleep=600ms"))
			cancel()
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
		}
	})
}

// pause stops the traffic until resume.
func (t *traffic) pause()  { <-t.calm }
func (t *traffic) resume() { t.calm <- struct{}{} }

func (t *traffic) stop() {
	if t.cancel != nil {
		t.cancel()
	}
	t.done.Wait()
}

// flood sends a request n times at once, again and again, until the returned function is called.
func (t *traffic) flood(ctx context.Context, n int, c call) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				t.send(ctx, c)
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return func() error {
		cancel()
		all.Wait()
		return nil
	}
}
