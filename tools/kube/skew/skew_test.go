package skew

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/nulldev"
	"github.com/sie-engine/sie/tools/kube/stage"
)

const (
	encoder = "sentence-transformers/all-MiniLM-L6-v2"
	scorer  = "cross-encoder/ms-marco-MiniLM-L-6-v2"
	added   = "org/added"
)

// patience bounds a wait for what is certain to come.
const patience = 2 * time.Minute

// earlier returns the directory of the earlier commit's programs.
func earlier(t *testing.T) string {
	base := os.Getenv("SIE_BASE_BIN")
	if base == "" {
		t.Skip("SIE_BASE_BIN names no directory of the earlier commit's programs: make skew-check BASE=commit")
	}
	return base
}

// Every mixture of the programs of two commits works together, whatever the order of an upgrade.
func TestEveryMixtureOfTwoCommits(t *testing.T) {
	base, now := earlier(t), stage.Programs(t)
	programs := []string{stage.Gateway, stage.Sidecar, stage.Server, stage.Config}
	for set := 1; set < 1<<len(programs)-1; set++ {
		bin, old := map[string]string{"": now}, []string{}
		for i, program := range programs {
			if set>>i&1 == 1 {
				bin[program] = base
				old = append(old, program)
			}
		}
		t.Run("old "+strings.Join(old, ", "), func(t *testing.T) { works(t, bin) })
	}
}

// A store of the earlier sie-config is read by this one, which adds to it. The earlier one then
// either has all of it or refuses to start: it never serves less.
func TestTheStoreOfTheEarlierCommitIsRead(t *testing.T) {
	base, now := earlier(t), stage.Programs(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c, err := stage.New(stage.Options{Dir: stage.Dir(t), NATSURL: bustest.Start(t, nil).URL,
		Models: []string{encoder}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	start := func(bin string) (*stage.Process, string, error) {
		c.Bin = map[string]string{"": bin}
		return c.StartConfig(ctx, 0)
	}
	stop := func(p *stage.Process) {
		t.Helper()
		if err := p.Stop(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	has := func(url string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if got := until(ctx, t, "GET", url+"/v1/configs/models/"+id, "", ""); got != document(id) {
				t.Errorf("%s: %s", id, got)
			}
		}
	}
	p, url, err := start(base)
	if err != nil {
		t.Fatal(err)
	}
	until(ctx, t, "POST", url+"/v1/configs/models", "", document("org/first"))
	has(url, "org/first")
	stop(p)
	if p, url, err = start(now); err != nil {
		t.Fatal(err)
	}
	has(url, "org/first")
	until(ctx, t, "POST", url+"/v1/configs/models", "", document("org/second"))
	has(url, "org/first", "org/second")
	stop(p)
	if p, url, err = start(base); err != nil {
		t.Logf("the earlier sie-config refuses a store that this one wrote: %v", err)
	} else {
		has(url, "org/first", "org/second")
		stop(p)
	}
	if p, url, err = start(now); err != nil {
		t.Fatal(err)
	}
	has(url, "org/first", "org/second")
	stop(p)
}

// document returns the configuration of a model.
func document(id string) string {
	return "sie_id: " + id + "\nhf_id: org/x\ninputs: {text: true}\ntasks: {encode: {dense: {dim: 384}}}\n" +
		"profiles:\n  default: {adapter_path: 'sie_server.adapters.bert_flash:X', max_batch_tokens: 512}\n"
}

// works runs a cluster of programs and asks all that a client asks.
func works(t *testing.T, bin map[string]string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lane := bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}
	c, err := stage.New(stage.Options{Dir: stage.Dir(t), Bin: bin, NATSURL: bustest.Start(t, nil).URL,
		Lanes: []bus.Lane{lane}, Models: []string{encoder, scorer}})
	must(err)
	t.Cleanup(c.Close)
	config, configURL, err := c.StartConfig(ctx, 0)
	must(err)
	gateway, url, err := c.StartGateway(ctx)
	must(err)
	w, err := c.StartWorker(ctx, "w1", lane)
	must(err)
	must(stage.Ready(ctx, url+"/readyz"))
	must(stage.Ready(ctx, w.ProbeURL+"/readyz"))

	wantVector(ctx, t, url, encoder, "")
	answer := until(ctx, t, "POST", url+"/v1/score/"+scorer, "",
		`{"query":{"text":"q"},"items":[{"id":"a","text":"one"},{"id":"b","text":"two"}]}`)
	if n := strings.Count(answer, `"score"`); n != 2 {
		t.Errorf("a score: %s", answer)
	}
	until(ctx, t, "POST", url+"/v1/pools", "", `{"name":"mine","gpus":{"cpu":1}}`)
	wantVector(ctx, t, url, encoder, "mine")
	until(ctx, t, "DELETE", url+"/v1/pools/mine", "", "")
	wantVector(ctx, t, url, encoder, "")
	until(ctx, t, "POST", configURL+"/v1/configs/models", "", document(added))
	wantVector(ctx, t, url, added, "")
	until(ctx, t, "POST", url+"/v1/embeddings", "", fmt.Sprintf(`{"model":%q,"input":["one"]}`, encoder))
	for _, p := range []*stage.Process{gateway, w.Sidecar, w.Server, config} {
		if err := p.Stop(time.Minute); err != nil {
			t.Error(err)
		}
	}
}

// wantVector encodes a text until it is answered, and compares its vector.
func wantVector(ctx context.Context, t *testing.T, url, model, pool string) {
	t.Helper()
	text := "a text of " + t.Name()
	body := fmt.Sprintf(`{"items":[{"id":"a","text":%q}]}`, text)
	answer := until(ctx, t, "POST", url+"/v1/encode/"+model, pool, body)
	var got struct {
		Items []struct {
			Dense struct{ Values []float32 }
		}
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil || len(got.Items) != 1 {
		t.Fatalf("%s: %v: %.300s", model, err, answer)
	}
	want := nulldev.Dense(model, nulldev.Document, text, 384)
	values := got.Items[0].Dense.Values
	if len(values) != len(want) || values[0] != want[0] || values[383] != want[383] {
		t.Errorf("%s: another vector: %.300s", model, answer)
	}
}

// until asks until the answer is of 2xx and no 202, and returns it. What may be asked again is.
func until(ctx context.Context, t *testing.T, method, url, pool, body string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json")
		if pool != "" {
			r.Header.Set("X-SIE-Pool", pool)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, url, err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		unknown := strings.HasSuffix(url, added) && resp.StatusCode == 404 // not heard of it yet
		again := resp.StatusCode == 202 || resp.StatusCode == 503 || unknown
		if !again {
			if resp.StatusCode >= 300 {
				t.Fatalf("%s %s: %d %s", method, url, resp.StatusCode, b)
			}
			return string(b)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s %s: still %d %s", method, url, resp.StatusCode, b)
		}
	}
}
