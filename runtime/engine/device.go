package engine

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/sie-engine/sie/internal/lockorder"
)

// Options configures Open. The zero value opens the CPU with every core this process may use.
type Options struct {
	Kind    Kind // 0 = CPU
	Ordinal int  // CUDA: device index
	Threads int  // CPU: executors; 0 = the CPUs of the affinity mask and cgroup quota
	ISA     ISA  // CPU: upper bound on the instruction set
	OneNode bool // CPU: memory and executors go where the kernel puts them, as if there were one node

	NoGraphs bool    // CUDA: launch small batches kernel by kernel, not as graphs
	Overlap  Overlap // CUDA: where a kernel may start under the end of the one before
}

// Overlap says where a kernel of a GPU may start under the end of the one before, which is called
// programmatic dependent launch and exists from compute capability 9.0 on. Results are the same.
type Overlap uint32

// Values of Overlap, those of sie_overlap.
const (
	OverlapAlways   Overlap = iota
	OverlapLaunches         // between launches, never inside a graph
	OverlapNever
)

// Info describes an open device.
type Info struct {
	Kind          Kind
	Ordinal       int    // CUDA: device index
	Name          string // CPU or GPU model
	Capability    string // CUDA: compute capability, "9.0"
	Driver        string // CUDA: the newest CUDA version the driver supports, "13.0"
	Threads       int    // executors
	CPUsAffinity  int    // CPUs in the affinity mask
	CPUsQuota     float64
	Cores         int       // CPU: physical cores of the affinity mask
	Caches        int       // CPU: L3 caches of those cores; 0: not known
	Nodes         int       // CPU: nodes of those cores, parts of the machine with memory of their own
	NodesUsed     int       // CPU: nodes that have executors; 1 where there is one, or OneNode
	ISA           ISA       // in use
	ISADetected   ISA       // best of the machine
	Compute       []Compute // classes that passed their self-test, ascending
	MemoryTotal   int64     // bytes
	MemoryWeights int64     // bytes held by weights now
	GraphsRefused int64     // CUDA: captures that the driver refused; those batches run kernel by kernel
	Why           string    // what was found, chosen and ruled out, one clause each
}

// Supports reports whether weights can be packed for c.
func (i Info) Supports(c Compute) bool {
	for _, have := range i.Compute {
		if have == c {
			return true
		}
	}
	return false
}

// DefaultCompute returns the class for a caller that chose none. It is bf16 where the hardware
// multiplies bf16 matrices, else fp32. AVX512_BF16, which multiplies vectors, has bf16 on request.
func (i Info) DefaultCompute() Compute {
	if (i.Kind == CUDA || i.ISA.Covers(AMX)) && i.Supports(ComputeBF16) {
		return ComputeBF16
	}
	return ComputeF32
}

// Device is an open CPU or GPU. Its methods are safe for concurrent use.
type Device struct {
	// guards every C call on the device's handles, except waits, and the fields below
	mu     lockorder.Mutex[lockorder.Engine]
	handle unsafe.Pointer
	open   map[string]int // handles of the device that are not closed yet, by kind
	groups atomic.Uint32  // of weights so far
	lanes  int            // arena lanes: one for each executor; 1 on a GPU
	gpu    *gpu           // nil on a CPU
	mark   *mark
}

// Open starts a device. Errors: ErrUnsupported when there is no such device or instruction set;
// ErrNoMemory and ErrDeviceLost from a GPU; ErrNotBuilt.
func Open(o Options) (*Device, error) {
	if o.Kind == 0 {
		o.Kind = CPU
	}
	if o.Threads < 0 || o.Threads > 4096 || o.Ordinal < 0 || o.Ordinal > 1<<16 {
		return nil, invalid("open",
			fmt.Sprintf("threads %d or ordinal %d is out of range", o.Threads, o.Ordinal))
	}
	d := &Device{open: make(map[string]int)}
	var gpu *sieGPU
	if o.Kind == CUDA {
		drv, err := openDriver(o)
		if err != nil {
			return nil, err
		}
		if d.gpu, err = startGPU(drv); err != nil {
			drv.close()
			return nil, err
		}
		gpu = &sieGPU{about: drv.about(), stream: drv.kernelStream(), graphs: !o.NoGraphs, overlap: o.Overlap}
	}
	var err error
	d.do(func() { d.handle, err = cDeviceOpen(o, gpu) })
	if err != nil {
		d.closeGPU()
		return nil, err
	}
	d.do(func() {
		var info Info
		if info, err = cDeviceInfo(d.ptrLocked()); err == nil {
			d.lanes = info.Threads
		}
	})
	d.mark = watch(d, "device")
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// sieGPU describes a GPU to C.
type sieGPU struct {
	about   GPU
	stream  uintptr
	graphs  bool
	overlap Overlap
}

// Info returns the device's description.
func (d *Device) Info() (info Info, err error) {
	d.do(func() { info, err = cDeviceInfo(d.ptrLocked()) })
	if err == nil && d.gpu != nil {
		gpu := d.gpu.driver.about()
		info.Ordinal, info.Driver = gpu.Ordinal, d.gpu.driver.version()
		info.Capability = fmt.Sprintf("%d.%d", gpu.Major, gpu.Minor)
	}
	return info, err
}

// Close stops the executors. It panics when a handle of the device is still open, because that
// handle would then point to freed C memory.
func (d *Device) Close() {
	d.mu.Lock()
	for kind, n := range d.open {
		if n != 0 {
			d.mu.Unlock()
			panic(fmt.Sprintf("engine: Device closed while %d of its handles of kind %s are open", n, kind))
		}
	}
	closed := d.handle == nil
	d.mu.Unlock()
	if closed {
		return
	}
	d.do(func() {
		cDeviceClose(d.handle)
		d.handle = nil
	})
	d.mark.close()
	d.closeGPU()
}

// closeGPU closes the driver and stops the owner goroutine. It does nothing on a CPU.
func (d *Device) closeGPU() {
	if d.gpu != nil {
		d.do(d.gpu.driver.close)
		d.gpu.stop()
	}
}

// ptrLocked returns the handle. Caller must hold d.mu.
func (d *Device) ptrLocked() unsafe.Pointer {
	if d.handle == nil {
		panic("engine: use of a closed Device")
	}
	return d.handle
}
