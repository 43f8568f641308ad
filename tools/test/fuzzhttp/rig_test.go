//go:build native

package fuzzhttp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/golden"
	"github.com/sie-engine/sie/internal/testrig"
)

var (
	lasting = flag.Duration("fuzz.for", 0,
		"how long the fuzzer and the mixer go on; 0: a fixed number of requests")
	seed   = flag.Uint64("fuzz.seed", 0, "what random choices begin with; 0: another one each time")
	binary string
)

// patience is how long a step may take before it counts as hung. No check depends on speed.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if there := testrig.Programs(); there != "" {
		binary = filepath.Join(there, "sie-server")
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "fuzzhttp-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "sie-server")
	if out, err := exec.Command("go", "build", "-tags", "native,disable_grpc_modules,netgo,osusergo",
		"-o", binary, "../../../cmd/sie-server").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build sie-server: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// random returns the random source of part n of a test. For part 0 it prints the seed.
func random(t *testing.T, n uint64) *rand.Rand {
	t.Helper()
	once.Do(func() {
		if *seed == 0 {
			*seed = rand.Uint64()
		}
	})
	if n == 0 {
		t.Logf("seed: -fuzz.seed=%d", *seed)
	}
	return rand.New(rand.NewPCG(*seed, n))
}

var once sync.Once

// process is a running sie-server.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string
	log  *testrig.Log
	done chan struct{} // closed when it has ended
	err  error         // set before done is closed
}

// serve starts a server with models of every family and returns when they are loaded. The server
// ends with the test.
func serve(t *testing.T, flags ...string) *process {
	t.Helper()
	p := &process{t: t, log: &testrig.Log{}, done: make(chan struct{})}
	models := writeModels(t)
	args := []string{
		"serve", "--host", "127.0.0.1", "--port", "0", "--no-hf-fallback", "--threads", "2", "--models-dir",
		models, "--preload", "mean,splade,m3,late,ce,nli,tags,moods,lo", "--default-model",
		"mean,splade,late,ce,moods", "--local-cache", t.TempDir(), "--request-timeout", "110s",
	}
	p.cmd = exec.Command(binary, append(args, flags...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	testrig.DieWithParent(p.cmd)
	p.cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	ready := regexp.MustCompile(`msg=ready url=\S+:(\d+)`)
	p.until("it is ready", func() bool {
		found := ready.FindStringSubmatch(p.log.String())
		if found != nil {
			p.addr = "127.0.0.1:" + found[1]
		}
		return found != nil
	})
	if strings.Contains(p.log.String(), "msg=preload") {
		t.Fatal(p.log.String())
	}
	return p
}

// until waits for a condition. It fails the test if the server ends or the condition does not hold
// in time.
func (p *process) until(what string, ok func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.done:
			p.t.Fatalf("the server ended before %s: %v\n%s", what, p.err, tail(p.log.String()))
		default:
		}
		if time.Now().After(end) {
			p.t.Fatalf("waited %v until %s\n%s", patience, what, tail(p.log.String()))
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// dial opens a connection.
func (p *process) dial() (net.Conn, *bufio.Reader, error) {
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		return nil, nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	return c, bufio.NewReaderSize(c, 64<<10), nil
}

// usage is the memory in KiB, the descriptors and the goroutines that a process uses.
type usage struct {
	rss, descriptors, goroutines int
}

// usage reads the server's usage from the kernel and /metrics.
func (p *process) usage() (u usage) {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	if found := regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(status); found != nil {
		u.rss, _ = strconv.Atoi(string(found[1]))
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	u.descriptors = len(open)
	resp, err := http.Get("http://" + p.addr + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		p.t.Fatalf("/metrics: %v %d %.500s", err, resp.StatusCode, b)
	}
	if found := regexp.MustCompile(`(?m)^go_goroutines (\d+)`).FindSubmatch(b); found != nil {
		u.goroutines, _ = strconv.Atoi(string(found[1]))
	}
	return u
}

// calm waits until the server uses no more descriptors and goroutines than before, except a few,
// and fails if that does not happen.
func (p *process) calm(before usage) {
	p.t.Helper()
	var now usage
	p.until("descriptors and goroutines are back", func() bool {
		http.DefaultClient.CloseIdleConnections()
		now = p.usage()
		return now.descriptors <= before.descriptors+4 && now.goroutines <= before.goroutines+8
	})
	p.t.Logf("before %+v, after %+v", before, now)
}

// writeModels writes a directory of model files: a tiny model of every family.
func writeModels(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return golden.Open(t, name).Dir }
	encode := func(outputs string) string { return "tasks: {encode: {" + outputs + "}}" }
	m3 := copied(t, "st-xlmr-mean-torch",
		map[string]string{"colbert_linear.pt": "m3-text", "sparse_linear.pt": "m3-text"})
	for name, content := range map[string]string{
		"1_Pooling/config.json":             `{"word_embedding_dimension": 64, "pooling_mode_cls_token": true}`,
		"config_sentence_transformers.json": `{"prompts": {}}`,
	} {
		if err := os.WriteFile(filepath.Join(m3, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tokens := map[string]string{"tokenizer.json": "st-mean", "tokenizer_config.json": "st-mean"}
	adapters := filepath.Join(at("lora-bert"), "adapters")
	for id, m := range map[string]struct{ dir, adapter, tasks, load string }{
		"mean": {at("st-mean"), "sentence_transformer", encode("dense: {dim: 32}"), ""},
		"prompts": {at("st-mean-dense-tanh-normalize-prompts"), "sentence_transformer",
			encode("dense: {dim: 20}"), ""},
		"splade": {at("splade-bert"), "splade_flash", encode("sparse: {dim: 101}"), ""},
		"m3": {m3, "bge_m3_flash",
			"tasks: {encode: {dense: {dim: 64}, sparse: {dim: 430}, multivector: {dim: 64}}, score: {}}", ""},
		"late": {copied(t, "colbert-linear", tokens), "colbert",
			"tasks: {encode: {multivector: {dim: 24}}, score: {}}",
			"{query_max_length: 12, muvera_config: {}}"},
		"ce":    {at("rerank-sigmoid"), "cross_encoder", "tasks: {score: {}}", ""},
		"nli":   {at("pipeline-zero-shot"), "nli_classification", "tasks: {extract: {}}", ""},
		"tags":  {at("pipeline-tags"), "token_classification", "tasks: {extract: {}}", ""},
		"moods": {copied(t, "classify-bert", tokens), "sequence_classification", "tasks: {extract: {}}", ""},
		"lo": {copied(t, "lora-bert", tokens), "bert_flash", encode("dense: {dim: 64}"),
			fmt.Sprintf("{lora_paths: {four: %s/rank4, other: %s/rslora, third: %s/patterns}}",
				adapters, adapters, adapters)},
	} {
		load := m.load
		if load == "" {
			load = "{}"
		}
		text := fmt.Sprintf(
			"sie_id: %s\nweights_path: %s\nmax_sequence_length: 60\n%s\nprofiles:\n  default: {adapter_path: \"sie_server.adapters.%s:X\", "+
				"max_batch_tokens: 4096, adapter_options: {loadtime: %s}}\n", id, m.dir, m.tasks,
			m.adapter, load)
		if err := os.WriteFile(filepath.Join(dir, id+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// copied returns a copy of a golden model with some files from other models.
func copied(t *testing.T, model string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Open(t, model).Dir)); err != nil {
		t.Fatal(err)
	}
	for name, from := range files {
		data, err := os.ReadFile(filepath.Join(golden.Open(t, from).Dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tree is a JSON object.
type tree = map[string]any

// clone returns a deep copy.
func clone(x any) any {
	switch v := x.(type) {
	case tree:
		out := maps.Clone(v)
		for k := range out {
			out[k] = clone(out[k])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clone(v[i])
		}
		return out
	}
	return x
}

// toJSON encodes a tree; a value that JSON cannot express becomes text.
func toJSON(x any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(x); err != nil {
		return []byte(fmt.Sprint(x))
	}
	return bytes.TrimSpace(b.Bytes())
}
