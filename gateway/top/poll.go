package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxPage bounds a page of a gateway in bytes.
const maxPage = 32 << 20

// Client reads the pages of one gateway.
type Client struct {
	URL  string
	Key  string // "": none
	HTTP *http.Client
}

// Frame is what a gateway said at one time.
type Frame struct {
	Timestamp float64 `json:"timestamp"`
	Ready     bool    `json:"ready"`
	Cluster   struct {
		WorkerCount  int `json:"worker_count"`
		ModelsLoaded int `json:"models_loaded"`
	} `json:"cluster"`
	Workers []worker `json:"workers"`
	Models  []loaded `json:"models"`
	Lanes   []lane   `json:"lanes"`

	connected   bool                  // to NATS
	requests    float64               // that were answered, in any way
	answered    float64               // of them with a result
	queues      map[[4]string]waiting // by pool, machine profile, bundle and model
	republished map[string]float64    // slices by cause
	dead        float64               // letters
	refused     float64
}

// worker, loaded and lane are parts of /health.
type worker struct {
	Name         string   `json:"name"`
	Pool         string   `json:"pool"`
	Profile      string   `json:"gpu"`
	Bundle       string   `json:"bundle"`
	Healthy      bool     `json:"healthy"`
	Saturated    bool     `json:"saturated"`
	Loaded       []string `json:"loaded_models"`
	Loading      []string `json:"loading_models"`
	QueueDepth   int      `json:"queue_depth"`
	PendingCost  int64    `json:"pending_cost"`
	FreeCredit   int64    `json:"free_credit"`
	MemoryUsed   int64    `json:"memory_used_bytes"`
	MemoryTotal  int64    `json:"memory_total_bytes"`
	InflightRuns int      `json:"inflight_batches"`
}

type loaded struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Workers int    `json:"worker_count"`
	Depth   int    `json:"total_queue_depth"`
}

type lane struct {
	Pool       string `json:"pool"`
	Profile    string `json:"machine_profile"`
	Bundle     string `json:"bundle"`
	Workers    int    `json:"workers"`
	Ready      int    `json:"ready"`
	Items      int    `json:"items"`
	FreeCredit int64  `json:"free_credit"`
}

// waiting is a model's work in one lane, of this gateway.
type waiting struct{ untaken, unanswered, rate float64 }

// Poll reads what the gateway says now.
func (c *Client) Poll(ctx context.Context) (*Frame, error) {
	f := &Frame{queues: map[[4]string]waiting{}, republished: map[string]float64{}}
	text, err := c.get(ctx, "/health")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("--url %s: /health is not that of a gateway: %w", c.URL, err)
	}
	if text, err = c.get(ctx, "/metrics"); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	series, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("--url %s: /metrics: %w", c.URL, err)
	}
	f.read(series)
	return f, nil
}

// read takes what the board shows from the series of a gateway.
func (f *Frame) read(series map[string]*dto.MetricFamily) {
	each := func(name string, visit func(labels map[string]string, v float64)) {
		for _, m := range series["sie_gateway_"+name].GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			visit(labels, m.GetCounter().GetValue()+m.GetGauge().GetValue()) // one of them is there
		}
	}
	each("nats_connected", func(_ map[string]string, v float64) { f.connected = v > 0 })
	each("requests_total", func(labels map[string]string, v float64) {
		f.requests += v
		if labels["status"] == "200" {
			f.answered += v
		}
	})
	each("queue_republishes_total", func(l map[string]string, v float64) { f.republished[l["cause"]] += v })
	each("dead_letters_total", func(_ map[string]string, v float64) { f.dead += v })
	each("queue_refusals_total", func(_ map[string]string, v float64) { f.refused += v })
	queue := func(name string, set func(*waiting, float64)) {
		each(name, func(l map[string]string, v float64) {
			key := [4]string{l["pool"], l["machine_profile"], l["bundle"], l["model"]}
			w := f.queues[key]
			set(&w, v)
			f.queues[key] = w
		})
	}
	queue("queue_untaken_items", func(w *waiting, v float64) { w.untaken = v })
	queue("queue_unanswered_items", func(w *waiting, v float64) { w.unanswered = v })
	queue("queue_items_per_second", func(w *waiting, v float64) { w.rate = v })
}

// get returns the content of a page.
func (c *Client) get(ctx context.Context, page string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL, "/")+page, nil)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	if c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.Key)
	}
	answer, err := c.HTTP.Do(r)
	if err != nil {
		return nil, fmt.Errorf("--url %s: %w", c.URL, err)
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return nil, errors.New("the gateway needs an API key: set --api-key or SIE_API_KEY")
	default:
		return nil, fmt.Errorf("--url %s: %s answers %s", c.URL, page, answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxPage+1))
	if err == nil && len(text) > maxPage {
		err = fmt.Errorf("%s has more than %d bytes", page, maxPage)
	}
	if err != nil {
		return nil, fmt.Errorf("--url %s: %w", c.URL, err)
	}
	return text, nil
}
