//go:build native

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/weights/hub/hubtest"
)

// TestMain keeps the environment's wish to stay off the hub from the tests, which have hubs of
// their own. Where the process is the command, a test has set its environment.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "sie-server" {
		for _, name := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "SIE_HF_FALLBACK"} {
			os.Unsetenv(name)
		}
	}
	testscript.Main(m, map[string]func(){"sie-server": main})
}

// waitLimit bounds what a script waits for. Nothing takes that long, and a script that waits in
// vain ends.
const waitLimit = 2 * time.Minute

// TestScripts runs the real command line on tiny models; see testdata/script. $GOLDEN holds the
// directories of the models. $HF_ENDPOINT is a hub with two of them, acme/mean at $COMMIT and
// acme/base, and with an adapter of the second, acme/tuned. The tests add these commands to
// testscript's: serve, logged, signal, stop, fifo, npy and same.
func TestScripts(t *testing.T) {
	golden, err := filepath.Abs("../../testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	server := hubtest.New(t)
	model := server.Add("acme/mean", published(t, "st-mean"))
	server.Add("acme/base", published(t, "lora-bert"))
	server.Add("acme/tuned", adapterRepo(t))
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GOLDEN", golden)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("HF_HOME", filepath.Join(e.WorkDir, "hf"))
			e.Setenv("HF_ENDPOINT", server.URL)
			e.Setenv("COMMIT", model.Commit)
			e.Setenv("SIE_DEVICE", "cpu")
			e.Setenv("SIE_PRECISION", "fp32")
			e.Setenv("SIE_THREADS", "1")
			e.Values[running{}] = &serverProcess{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": cmdServe, "logged": cmdLogged, "signal": cmdSignal, "stop": cmdStop, "fifo": cmdFifo,
			"npy": cmdNPY, "same": cmdSame,
		},
	})
}

// running is the key under which a script keeps its server.
type running struct{}

// serverProcess is the server of a script.
type serverProcess struct {
	cmd  *exec.Cmd
	log  testrig.Log
	done chan struct{} // closed when the process has ended
}

func process(ts *testscript.TestScript) *serverProcess {
	return ts.Value(running{}).(*serverProcess)
}

// wait waits until ok holds, and fails the script if it does not.
func wait(ts *testscript.TestScript, p *serverProcess, what string, ok func() bool) {
	for end := time.Now().Add(waitLimit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("waited for %s; the log:\n%s", what, p.log.String())
		}
	}
}

var readyURL = regexp.MustCompile(`msg=ready url=http://localhost:(\d+)`)

// serve [flag...]: starts a server on a free port, waits until it is ready, and sets $URL.
func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	p := process(ts)
	if neg || p.cmd != nil {
		ts.Fatalf("serve once in a script, without !")
	}
	ts.Setenv("SIE_LOG_FORMAT", "text")
	p.cmd = exec.Command(lookPath(ts, "sie-server"),
		append([]string{"serve", "--host", "127.0.0.1", "--port", "0"}, args...)...)
	testrig.DieWithParent(p.cmd)
	p.cmd.Dir = ts.Getenv("WORK")
	for _, key := range []string{"PATH", "HOME", "HF_HOME", "HF_ENDPOINT", "GOLDEN", "SIE_DEVICE",
		"SIE_PRECISION", "SIE_THREADS", "TMPDIR", "SIE_PRELOAD_MODELS"} {
		if v := ts.Getenv(key); v != "" {
			p.cmd.Env = append(p.cmd.Env, key+"="+v)
		}
	}
	p.cmd.Stderr, p.done = &p.log, make(chan struct{})
	ts.Check(p.cmd.Start())
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	ts.Defer(func() { _ = p.cmd.Process.Kill(); <-p.done })
	wait(ts, p, "the server", func() bool {
		select {
		case <-p.done:
			ts.Fatalf("the server ended:\n%s", p.log.String())
		default:
		}
		return readyURL.MatchString(p.log.String())
	})
	ts.Setenv("URL", "http://127.0.0.1:"+readyURL.FindStringSubmatch(p.log.String())[1])
}

func lookPath(ts *testscript.TestScript, name string) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path := filepath.Join(dir, name); testscriptFile(path) {
			return path
		}
	}
	ts.Fatalf("no %s", name)
	return ""
}

func testscriptFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// logged regexp: waits until the server's log matches; ! logged: the log does not match.
func cmdLogged(ts *testscript.TestScript, neg bool, args []string) {
	p, want := process(ts), regexp.MustCompile(args[0])
	if neg {
		if found := want.FindString(p.log.String()); found != "" {
			ts.Fatalf("the log has %q:\n%s", found, p.log.String())
		}
		return
	}
	wait(ts, p, args[0]+" in the log", func() bool { return want.MatchString(p.log.String()) })
}

// signal HUP|TERM: sends it to the server.
func cmdSignal(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(process(ts).cmd.Process.Signal(
		map[string]syscall.Signal{"HUP": syscall.SIGHUP, "TERM": syscall.SIGTERM}[args[0]]))
}

// stop: ends the server with SIGTERM and waits for exit code 0.
func cmdStop(ts *testscript.TestScript, _ bool, _ []string) {
	p := process(ts)
	ts.Check(p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
	case <-time.After(waitLimit):
		ts.Fatalf("the server does not end:\n%s", p.log.String())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		ts.Fatalf("exit code %d:\n%s", code, p.log.String())
	}
}

// fifo path: makes a named pipe.
func cmdFifo(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(syscall.Mkfifo(ts.MkAbs(args[0]), 0o644))
}

// npy file rows columns descr: the file is a NumPy array of that shape and type.
func cmdNPY(ts *testscript.TestScript, _ bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	want := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s, %s), }",
		args[3], args[1], args[2])
	if len(b) < npyHeader || !bytes.Contains(b[:npyHeader], []byte(want)) {
		ts.Fatalf("%s: %.128q, want %s", args[0], b, want)
	}
	rows, _ := strconv.Atoi(args[1])
	columns, _ := strconv.Atoi(args[2])
	size, _ := strconv.Atoi(args[3][2:])
	if len(b) != npyHeader+rows*columns*size {
		ts.Fatalf("%s has %d bytes", args[0], len(b))
	}
}

// same file: standard output has one JSON object per line, whose values are the rows of the float32
// array.
func cmdSame(ts *testscript.TestScript, _ bool, args []string) {
	rest := []byte(ts.ReadFile(args[0]))[npyHeader:]
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	for i, line := range lines {
		var got struct{ Values []float32 }
		ts.Check(json.Unmarshal([]byte(line), &got))
		if len(got.Values) == 0 || len(rest) < 4*len(got.Values) {
			ts.Fatalf("line %d has %d values, the array %d bytes left", i, len(got.Values), len(rest))
		}
		for k, v := range got.Values {
			if math.Float32bits(v) != binary.LittleEndian.Uint32(rest[4*k:]) {
				ts.Fatalf("line %d, value %d differs", i, k)
			}
		}
		rest = rest[4*len(got.Values):]
	}
	if len(rest) != 0 {
		ts.Fatalf("the array has %d bytes more", len(rest))
	}
}
