package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sie-engine/sie/internal/bus"
)

// The bounds of a heartbeat.
const (
	maxHeartbeatBytes = 512 << 10
	maxModelBytes     = 384 // of an id in a list
)

// parse reads the heartbeat of the worker that its subject names.
func parse(subject string, data []byte) (*Worker, error) {
	id, ok := strings.CutPrefix(subject, bus.HealthPrefix)
	if !ok {
		return nil, fmt.Errorf("subject %q does not begin with %s", subject, bus.HealthPrefix)
	}
	if err := bus.CheckToken("worker id", id); err != nil {
		return nil, err
	}
	if len(data) > maxHeartbeatBytes {
		return nil, fmt.Errorf("a heartbeat of %d bytes; the limit is %d", len(data), maxHeartbeatBytes)
	}
	w := &Worker{ID: id, bytes: int64(len(data)) + workerBytes}
	hb := &w.Heartbeat
	if err := json.Unmarshal(data, hb); err != nil {
		return nil, fmt.Errorf("not a heartbeat: %w", err)
	}
	if hb.Name != "" && hb.Name != id {
		return nil, fmt.Errorf("a heartbeat of %q on the subject of another worker", clip(hb.Name))
	}
	if hb.Epoch != "" {
		if err := bus.CheckToken("epoch", hb.Epoch); err != nil {
			return nil, err
		}
	}
	w.Lane = bus.Lane{Pool: hb.PoolName, Profile: hb.MachineProfile, Bundle: hb.Bundle}
	if w.Home = w.Lane; hb.HomePool != "" {
		w.Home.Pool = hb.HomePool
	}
	if hb.Terminated {
		return w, nil // it leaves, whatever else it says
	}
	if err := w.Lane.Validate(); err != nil {
		return nil, err
	}
	if err := w.Home.Validate(); err != nil {
		return nil, err
	}
	return w, w.read()
}

// read makes the sets of models and checks the numbers.
func (w *Worker) read() (err error) {
	hb := &w.Heartbeat
	for _, l := range []struct {
		name string
		from []string
		to   *map[string]struct{}
	}{
		{"loaded_models", hb.LoadedModels, &w.loaded}, {"loading_models", hb.LoadingModels, &w.loading},
		{"failed_models", hb.FailedModels, &w.failed},
		{"unsupported_models", hb.UnsupportedModels, &w.unsupported},
	} {
		if len(l.from) > bus.MaxHeartbeatModels {
			if l.name == "unsupported_models" {
				w.servesNothing, hb.UnsupportedModels = true, nil
				continue
			}
			return fmt.Errorf("%s has %d models; the limit is %d",
				l.name, len(l.from), bus.MaxHeartbeatModels)
		}
		if *l.to, err = set(l.name, l.from); err != nil {
			return err
		}
		w.bytes += int64(len(l.from)) * entryBytes
	}
	if len(hb.Pending) > bus.MaxHeartbeatModels {
		return fmt.Errorf("pending has %d models; the limit is %d", len(hb.Pending), bus.MaxHeartbeatModels)
	}
	w.bytes += int64(len(hb.Pending)) * entryBytes
	for id, p := range hb.Pending {
		if len(id) > maxModelBytes {
			return fmt.Errorf("pending has a model id of %d bytes; the limit is %d", len(id), maxModelBytes)
		}
		if p.Items < 0 || p.Tokens < 0 {
			return errors.New("pending has a negative number")
		}
	}
	if hb.QueueDepth < 0 || hb.PendingCost < 0 || hb.InflightBatches < 0 || hb.GPUCount < 0 ||
		hb.MemoryUsed < 0 || hb.MemoryTotal < 0 || hb.TotalGPUSlots < 0 || hb.ReadyGPUSlots < 0 {
		return errors.New("a number is negative")
	}
	return nil
}

func set(name string, list []string) (map[string]struct{}, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]struct{}, len(list))
	for _, id := range list {
		if id == "" || len(id) > maxModelBytes {
			return nil, fmt.Errorf("%s has a model id of %d bytes; 1 to %d are allowed",
				name, len(id), maxModelBytes)
		}
		out[id] = struct{}{}
	}
	return out, nil
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
