package dev

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
)

// stateFile is the name of the file that says what runs. A reader sees a whole State, never a part.
const stateFile = "cluster.json"

// State is the content of cluster.json. A pid is 0 while the process does not run.
type State struct {
	Gateways []GatewayState `json:"gateways"`
	NATS     NATSState      `json:"nats"`
	Config   ConfigState    `json:"config"`
	Workers  []WorkerState  `json:"workers"`
}

// GatewayState is one gateway.
type GatewayState struct {
	URL        string `json:"url"`
	MetricsURL string `json:"metrics_url"`
	Pid        int    `json:"pid"`
}

// NATSState is the broker. Of three servers URL names all, separated by commas, and Pid is the
// first's.
type NATSState struct {
	URL string `json:"url"`
	Pid int    `json:"pid"`
}

// ConfigState is sie-config.
type ConfigState struct {
	URL string `json:"url"`
	Pid int    `json:"pid"`
}

// WorkerState is a server and its sidecar.
type WorkerState struct {
	ID         string `json:"id"`
	Pool       string `json:"pool"`
	Profile    string `json:"profile"`
	Bundle     string `json:"bundle"`
	ServerPid  int    `json:"server_pid"`
	SidecarPid int    `json:"sidecar_pid"`
	Socket     string `json:"socket"`
	ProbeURL   string `json:"probe_url"`
	MetricsURL string `json:"metrics_url"`
}

// writeState replaces the file at path as a whole.
func writeState(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// keeper writes the state of a cluster whenever it changes. One goroutine, run, writes; changes
// that come while it writes are written together.
type keeper struct {
	path    string
	current func() State
	log     *slog.Logger

	news  chan struct{}      // holds at most one
	sync  chan chan struct{} // each is closed when the state is in the file
	quit  chan struct{}
	ended chan struct{}
}

func newKeeper(path string, current func() State, log *slog.Logger) *keeper {
	return &keeper{
		path: path, current: current, log: log, news: make(chan struct{}, 1), sync: make(chan chan struct{}),
		quit: make(chan struct{}), ended: make(chan struct{}),
	}
}

// changed tells that the state may have changed. It returns at once.
func (k *keeper) changed() {
	select {
	case k.news <- struct{}{}:
	default: // one that was told before is not written yet, and covers this one
	}
}

// flush returns when the file holds the state of now or later, or when the keeper has ended.
func (k *keeper) flush() {
	done := make(chan struct{})
	select {
	case k.sync <- done:
		<-done
	case <-k.ended:
	}
}

// run writes until close.
func (k *keeper) run() {
	defer close(k.ended)
	var last []byte
	put := func() {
		text, err := json.MarshalIndent(k.current(), "", "  ")
		if err == nil && !bytes.Equal(text, last) {
			if err = writeState(k.path, append(text, '\n')); err == nil {
				last = text
			}
		}
		if err != nil {
			k.log.Error("cannot write the state of the cluster", "error", err)
		}
	}
	for {
		select {
		case <-k.news:
			put()
		case done := <-k.sync:
			put()
			close(done)
		case <-k.quit:
			return
		}
	}
}

// close ends run and waits for it. The caller has started run, and closes once.
func (k *keeper) close() {
	close(k.quit)
	<-k.ended
}
