package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// prometheus is Debian's, on the programs of a cluster.
type prometheus struct {
	url     string
	targets string // file of what is scraped
	cmd     *exec.Cmd
	ended   chan struct{}
}

// target is a group of targets of Prometheus.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// The jobs are the chart's. All are scraped every second, which a chart does every 5 or 15.
const prometheusConfig = `
global: {scrape_interval: 1s, scrape_timeout: 900ms, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - job_name: files
    authorization: {credentials: %s}
    file_sd_configs: [{files: [%s], refresh_interval: 1s}]
`

// startPrometheus starts it with the shortened rules; key opens the metrics that need one.
func startPrometheus(ctx context.Context, dir, key string) (*prometheus, error) {
	rules, err := writeRules(dir, "short.yaml", shorten)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	p := &prometheus{url: "http://" + address, targets: filepath.Join(dir, "targets.json"),
		ended: make(chan struct{})}
	if err := p.scrape(nil); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "prometheus.yaml")
	text := fmt.Sprintf(prometheusConfig, rules, key, p.targets)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command("prometheus", "--config.file="+config, "--web.listen-address="+address,
		"--storage.tsdb.path="+filepath.Join(dir, "prometheus"), "--storage.tsdb.retention.time=1h")
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // killed at the end
		close(p.ended)
	}()
	return p, until(ctx, patience, func() error {
		_, err := p.get("/-/ready", nil)
		return err
	})
}

func (p *prometheus) stop() {
	_ = p.cmd.Process.Kill() // nothing of it is kept
	<-p.ended
}

// scrape sets what is scraped.
func (p *prometheus) scrape(all []target) error {
	if all == nil {
		all = []target{}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.targets+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(p.targets+".new", p.targets)
}

var client = &http.Client{Timeout: 10 * time.Second}

func (p *prometheus) get(path string, values url.Values) ([]byte, error) {
	resp, err := client.Get(p.url + path + "?" + values.Encode())
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("prometheus: %s: %d %.300s", path, resp.StatusCode, body)
	}
	return body, err
}

// alert is one that Prometheus tells of.
type alert struct {
	Labels map[string]string `json:"labels"`
	State  string            `json:"state"`
	Notes  struct {
		Summary string `json:"summary"`
	} `json:"annotations"`
}

// firing returns the alerts that fire, by name. One that is of several things counts once.
func (p *prometheus) firing() (map[string]alert, error) {
	body, err := p.get("/api/v1/alerts", nil)
	if err != nil {
		return nil, err
	}
	var a struct {
		Data struct {
			Alerts []alert `json:"alerts"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, err
	}
	out := map[string]alert{}
	for _, x := range a.Data.Alerts {
		if x.State == "firing" {
			out[x.Labels["alertname"]] = x
		}
	}
	return out, nil
}

// answered returns how many numbers an expression gave since a time, at every second.
func (p *prometheus) answered(expr string, since time.Time) (numbers int, err error) {
	step := max(time.Since(since)/2000, time.Second) // Prometheus gives at most 11,000
	at := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	body, err := p.get("/api/v1/query_range", url.Values{"query": {expr}, "start": {at(since)},
		"end": {at(time.Now())}, "step": {strconv.Itoa(int(step.Seconds()))}})
	if err != nil {
		return 0, err
	}
	var a struct {
		Data struct {
			Result []struct {
				Values [][2]any `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return 0, err
	}
	for _, r := range a.Data.Result {
		for _, v := range r.Values {
			text, _ := v[1].(string)
			if x, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(x) {
				numbers++
			}
		}
	}
	return numbers, nil
}

// until looks four times a second whether something is so, for at most a time, and returns why not.
func until(ctx context.Context, limit time.Duration, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", limit, err)
		case <-time.After(250 * time.Millisecond):
		}
	}
}
