package row

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/nulldev"
)

// addEvery is the time between two models that are added. servedTime bounds the time from the end
// of a fault until all gateways serve what sie-config has.
const (
	addEvery   = 200 * time.Millisecond
	servedTime = 35 * time.Second
)

// adapter is the adapter class of the models that are added.
const adapter = "sie_server.adapters.bert_flash:BertFlashAdapter"

// adder adds and removes models while a cluster is hurt. A call without an answer is sent again
// with its Idempotency-Key, through each gateway in turn. It belongs to one goroutine at a time.
type adder struct {
	env      *Env
	gateways []string
	client   http.Client
	there    []string // that sie-config has said to be there
	gone     []string // that it has said to be gone
}

// whileAdding runs a fault while models are added and removed. Then each gateway must serve those,
// and only those, that sie-config has said to be there.
func whileAdding(fault func(context.Context, *Env) error) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		state, err := e.Cluster.State()
		if err != nil {
			return err
		}
		before, err := e.filters(ctx)
		if err != nil {
			return err
		}
		a := &adder{env: e, client: http.Client{Timeout: 5 * time.Second}}
		defer a.client.CloseIdleConnections()
		for _, g := range state.Gateways {
			a.gateways = append(a.gateways, g.URL)
		}
		ended, added := make(chan struct{}), make(chan error, 1)
		go func() { added <- a.run(ctx, ended) }()
		err = fault(ctx, e)
		close(ended)
		if addErr := <-added; err == nil {
			err = addErr
		}
		if err != nil {
			return err
		}
		e.note("%d models are there, %d are gone", len(a.there), len(a.gone))
		if err := a.check(ctx); err != nil {
			return err
		}
		after, err := e.filters(ctx)
		for f := range after {
			switch {
			case before[f]:
			case strings.Contains(f, "chaos"): // it stays until nobody has pulled for an hour
				e.held.Consumers++
			default:
				e.breaks("a consumer of %s, for which nobody asked", f)
			}
		}
		return err
	}
}

// run adds models until the fault has ended, and at least five; every fifth removes one.
func (a *adder) run(ctx context.Context, ended <-chan struct{}) error {
	for n := 0; ; n++ {
		id := fmt.Sprintf("chaos/row%d-%d", a.env.rows, n)
		if err := a.change(ctx, "POST", id); err != nil {
			return err
		}
		a.there = append(a.there, id)
		if n%5 == 4 {
			old := a.there[len(a.there)/2]
			if err := a.change(ctx, "DELETE", old); err != nil {
				return err
			}
			a.there = slices.DeleteFunc(a.there, func(x string) bool { return x == old })
			a.gone = append(a.gone, old)
		}
		if _, err := a.encode(ctx, a.gateways[n%len(a.gateways)], id); err != nil {
			return err
		}
		select {
		case <-ended:
			if n >= 4 {
				return nil
			}
		default:
		}
		if err := wait(ctx, addEvery); err != nil {
			return err
		}
	}
}

// ask sends a request, with more headers as names and values, and returns its status, 0 for no
// answer, and the answer.
func (a *adder) ask(ctx context.Context, method, url, key string, body any, headers ...string) (
	int, []byte, error,
) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	q, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json")
	if key != "" {
		q.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	resp, err := a.client.Do(q)
	if err != nil {
		return 0, nil, ctx.Err()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return 0, nil, ctx.Err()
	}
	return resp.StatusCode, answer, nil
}

// change adds or removes a model, and returns when sie-config has said so.
func (a *adder) change(ctx context.Context, method, id string) error {
	var body any
	path := "/v1/configs/models/" + id
	if method == "POST" {
		path, body = "/v1/configs/models", map[string]any{"model_id": id, "hf_id": "chaos/weights",
			"tasks": json.RawMessage(fmt.Sprintf(`{"encode":{"dense":{"dim":%d}}}`, nulldev.DefaultDims)),
			"profiles": json.RawMessage(`{"default":{"adapter_path":"` + adapter +
				`","max_batch_tokens":4096}}`)}
	}
	begin := time.Now()
	for n := 0; ; n++ {
		status, answer, err := a.ask(ctx, method, a.gateways[n%len(a.gateways)]+path, method+id, body)
		switch {
		case err != nil:
			return err
		case status == 200 || status == 201:
			return nil
		case status != 0 && status != 503 || time.Since(begin) > warmTime:
			return fmt.Errorf("%s %s: status %d after %v: %.300s", method, id, status, time.Since(begin),
				answer)
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// encode asks a gateway for a vector of a model, and notes a wrong one. It returns the status of
// the answer.
func (a *adder) encode(ctx context.Context, gateway, id string) (int, error) {
	text := "a text for " + id
	status, answer, err := a.ask(ctx, "POST", gateway+"/v1/encode/"+id, "",
		map[string]any{"items": []any{map[string]any{"text": text}}})
	if status == 200 && !a.isVector(answer, id, text) {
		a.env.breaks("%s of %s: a wrong vector: %.200s", id, gateway, answer)
	}
	return status, err
}

// isVector reports whether an answer is the vector of one text.
func (a *adder) isVector(answer []byte, model, text string) bool {
	var v struct {
		Items []struct {
			Dense struct{ Values []float32 }
		}
	}
	return json.Unmarshal(answer, &v) == nil && len(v.Items) == 1 &&
		slices.Equal(v.Items[0].Dense.Values, a.env.Known.Dense(model, text))
}

// check waits until every gateway serves what is there and nothing that is gone.
func (a *adder) check(ctx context.Context) error {
	begin := time.Now()
	for _, g := range a.gateways {
		for _, x := range []struct {
			ids  []string
			want int
		}{{a.there, 200}, {a.gone, 404}} {
			for _, id := range x.ids {
				for {
					status, err := a.encode(ctx, g, id)
					if err != nil {
						return err
					}
					if status == x.want {
						break
					}
					if time.Since(begin) > servedTime {
						a.env.breaks("%v after the fault %s of %s is %d, not %d", servedTime, id, g, status,
							x.want)
						break
					}
					if err := wait(ctx, 50*time.Millisecond); err != nil {
						return err
					}
				}
			}
		}
	}
	a.env.note("all gateways serve them")
	return nil
}
