package load

import (
	"bufio"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

//go:embed driver.py
var driver string

// Versions are the generations of the SDK.
var Versions = []string{"0.3.4", "0.6.30", "0.10.1"}

// sdkPatience is how long the slowest SDK may take for one call: it retries by itself.
const sdkPatience = 240 * time.Second

// maxLine bounds a line of the driver: 200 vectors of 4,096 numbers.
const maxLine = 8 << 20

// SDK is a Python process with one generation of the SDK. Its methods are safe for concurrent use.
type SDK struct {
	Version string

	cmd  *exec.Cmd
	in   io.WriteCloser
	ends chan struct{} // closed when the process writes no more

	mu      sync.Mutex
	waiting map[string]chan sdkAnswer
	sendMu  sync.Mutex
}

type sdkAnswer struct {
	ID     string           `json:"id"`
	Error  string           `json:"error"`
	IDs    []string         `json:"ids"`
	Dense  [][]byte         `json:"dense"`
	Scores []Scored         `json:"scores"`
	Items  []map[string]any `json:"items"`
}

// StartSDK starts a generation of the SDK from a virtual environment made by tools/setup/venv.sh
// clients. threads bounds the calls at once. The process ends with this one, or by Close.
func StartSDK(venv, version string, threads int, log io.Writer) (*SDK, error) {
	python := filepath.Join(venv, "bin/python")
	cmd := exec.Command(python, "-c", driver, version, fmt.Sprint(threads))
	cmd.Env = os.Environ()
	if version != Versions[len(Versions)-1] {
		cmd.Env = append(cmd.Env, "PYTHONPATH="+filepath.Join(venv, "sdk-"+version))
	}
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start SDK %s (tools/setup/venv.sh clients makes its environment): %w",
			version, err)
	}
	s := &SDK{Version: version, cmd: cmd, in: in, ends: make(chan struct{}),
		waiting: map[string]chan sdkAnswer{}}
	ready := s.expect("ready")
	go s.read(out)
	select {
	case <-ready:
		return s, nil
	case <-s.ends:
		return nil, errors.Join(fmt.Errorf("SDK %s ended before its first line", version), s.Close())
	}
}

// Close ends the process, once its calls have ended.
func (s *SDK) Close() error {
	err := s.in.Close()
	<-s.ends
	return errors.Join(err, s.cmd.Wait())
}

func (s *SDK) read(out io.Reader) {
	defer close(s.ends)
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for lines.Scan() {
		var a sdkAnswer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			a.Error = "a line of the driver: " + err.Error()
		}
		s.mu.Lock()
		c := s.waiting[a.ID]
		delete(s.waiting, a.ID)
		s.mu.Unlock()
		if c != nil {
			c <- a
		}
	}
}

// expect returns the channel on which the answer to id comes.
func (s *SDK) expect(id string) chan sdkAnswer {
	c := make(chan sdkAnswer, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[id] = c
	return c
}

// do calls the SDK and fills in what became of the call.
func (s *SDK) do(k Known, base string, r *Request, rec *Record) {
	rec.Start = time.Now()
	defer func() { rec.End = time.Now() }()
	line, err := json.Marshal(struct {
		URL string `json:"url"`
		*Request
	}{base, r})
	if err != nil {
		rec.Verdict, rec.Why = Failed, err.Error()
		return
	}
	c := s.expect(r.ID)
	s.sendMu.Lock()
	_, err = s.in.Write(append(line, '\n'))
	s.sendMu.Unlock()
	if err != nil {
		rec.Verdict, rec.Why = Lost, "the driver has ended: "+err.Error()
		return
	}
	select {
	case a := <-c:
		s.judge(k, r, &a, rec)
	case <-s.ends:
		rec.Verdict, rec.Why = Lost, "the driver has ended"
	case <-time.After(sdkPatience):
		rec.Verdict, rec.Why = Lost, fmt.Sprintf("no answer in %v", sdkPatience)
	}
}

func (s *SDK) judge(k Known, r *Request, a *sdkAnswer, rec *Record) {
	if a.Error != "" {
		rec.Verdict, rec.Why = Failed, a.Error
		return
	}
	got := &Result{IDs: a.IDs, Scores: a.Scores}
	for _, b := range a.Dense {
		x := make([]float32, len(b)/4)
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		got.Dense = append(got.Dense, x)
	}
	for _, item := range a.Items {
		got.Items = append(got.Items, plain(item).(map[string]any))
	}
	if why := check(k, r, got); why != "" {
		rec.Verdict, rec.Why = Wrong, why
	}
}
