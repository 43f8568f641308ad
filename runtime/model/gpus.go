package model

import (
	"cmp"
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/lockorder"
	"github.com/sie-engine/sie/runtime/engine"
)

// GPUType returns the machine type by which clients choose GPUs, such as "h100"; "" without a GPU.
// With different GPUs, the first one decides.
func (h *Host) GPUType() string {
	if d := h.devices[0]; d.about.Kind == engine.CUDA {
		return cmp.Or(h.opt.GPUType, gpuType(d.about.Name, d.about.MemoryTotal))
	}
	return ""
}

// reportMemory reports the memory of every GPU whose memory can be read.
func (h *Host) reportMemory(report func(device string, used, total int64)) {
	for _, d := range h.devices {
		if d.memory == nil {
			continue
		}
		if free, total, err := d.memory(); err == nil {
			report(d.name, total-free, total)
		}
	}
}

// reportRefused reports the graphs that each GPU's driver refused.
func (h *Host) reportRefused(report func(device string, graphs int64)) {
	for _, d := range h.devices {
		if d.memory == nil || d.engine == nil {
			continue
		}
		if info, err := d.engine.Info(); err == nil {
			report(d.name, info.GraphsRefused)
		}
	}
}

// GPU describes one GPU and its use.
type GPU struct {
	Device      string // "cuda:0"
	Name        string
	Type        string  // of machine, by which clients choose GPUs
	Utilization int     // percent of the last second or more, with a batch in flight
	Used, Total int64   // bytes of memory
	Threshold   float64 // percent of memory in use above which unused models are unloaded
}

// usage holds the last sample of the GPUs, which is renewed at most once per usageWindow. Status
// frames (five a second for each watcher) therefore do not query the devices each time, and
// utilisation is a mean over at least that window.
type usage struct {
	mu      lockorder.Mutex[lockorder.Usage] // guards the fields below
	at      time.Time
	working []time.Duration
	last    []GPU
	asking  chan struct{} // closed when the sample that is being taken is done; nil if none is
}

const usageWindow = time.Second

// GPUs describes every GPU. The result is shared and read-only.
func (h *Host) GPUs() []GPU {
	u := &h.usage
	u.mu.Lock()
	for u.asking != nil && u.last == nil { // the first sample
		asking := u.asking
		u.mu.Unlock()
		<-asking
		u.mu.Lock()
	}
	now := time.Now()
	if u.asking != nil || !u.at.IsZero() && now.Sub(u.at) < usageWindow {
		defer u.mu.Unlock()
		return u.last
	}
	u.asking = make(chan struct{})
	at, before := u.at, u.working
	u.mu.Unlock()
	defer func() { // also if sample panics, which a server survives
		u.mu.Lock()
		defer u.mu.Unlock()
		close(u.asking)
		u.asking = nil
	}()
	list, working := h.sample(now.Sub(at), before)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at, u.working, u.last = now, working, list
	return list
}

// sample reads the status of every GPU, and its working time so far. before holds the working
// times of the last sample, taken ago earlier; nil: there was none.
func (h *Host) sample(ago time.Duration, before []time.Duration) ([]GPU, []time.Duration) {
	list := []GPU{}
	working := make([]time.Duration, len(h.devices))
	for i, d := range h.devices {
		if d.memory == nil {
			continue
		}
		working[i] = h.slots.BusyTime(i)
		g := GPU{
			Device:    d.name,
			Name:      d.about.Name,
			Type:      cmp.Or(h.opt.GPUType, gpuType(d.about.Name, d.about.MemoryTotal)),
			Total:     d.about.MemoryTotal,
			Threshold: 100 * h.opt.MemoryThreshold,
		}
		if free, total, err := d.memory(); err == nil {
			g.Used, g.Total = total-free, total
		}
		if before != nil {
			g.Utilization = int(min(100, 100*(working[i]-before[i])/max(1, ago)))
		}
		list = append(list, g)
	}
	return list, working
}

// gpuTypes maps a word of a GPU's name to its machine type: those of the reference server, and
// newer GPUs named in the same way.
var gpuTypes = map[string]string{
	"L4": "l4", "T4": "t4", "A10G": "a10g", "A10": "a10", "A30": "a30", "A40": "a40", "L40": "l40",
	"L40S": "l40s", "H100": "h100", "GH200": "gh200", "H200": "h200", "B200": "b200", "GB200": "gb200",
	"B300": "b300",
}

// gpuType returns the machine type of a GPU from its name and its memory in bytes; "unknown", as
// in the reference server, for any other GPU.
func gpuType(name string, memory int64) string {
	words := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool { return r == ' ' || r == '-' })
	for i, word := range words {
		if t, ok := gpuTypes[word]; ok {
			return t
		}
		switch {
		case word == "A100" && memory > 60<<30:
			return "a100-80gb"
		case word == "A100":
			return "a100-40gb"
		case word == "RTX" && i+1 < len(words) && len(words[i+1]) == 4 &&
			strings.Trim(words[i+1], "0123456789") == "":
			return "rtx-" + words[i+1]
		}
	}
	return "unknown"
}
