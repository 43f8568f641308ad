//go:build native && cuda

package engine

// #include <stdint.h>
// #include <stdlib.h>
// #include "sie.h"
// int sie_driver_start(const char **why);
// void *sie_driver_symbol(const char *name);
import "C"

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"
)

// This file holds every call to the CUDA driver that gorgonia.org/cu offers. What it lacks (pinned
// memory, graphs) is in csrc/cuda. Only package-level functions of cu are used: they act on the
// calling thread's context, while a cu.Ctx would move every call to another thread.

// cudaDriver implements driver.
type cudaDriver struct {
	info                   GPU
	cuda                   string
	device                 cu.Device
	context                cu.CUContext
	inputs, work, outbound cu.Stream
}

// cudaEvents implements slotEvents.
type cudaEvents struct{ arrived, kept, done cu.Event }

func findGPUs() GPUReport {
	r := GPUReport{Built: true}
	if r.Problem = driverProblem(); r.Problem != "" {
		return r
	}
	version := cu.Version()
	r.Driver = cudaVersion(version)
	n, err := cu.NumDevices()
	if err != nil || n == 0 {
		r.Problem = noGPU
		return r
	}
	for i := range n {
		gpu, err := describe(i)
		if err != nil {
			gpu.Refusal = err.Error()
		} else if err := gpuCheck(gpu, version); err != nil {
			gpu.Refusal = err.Msg
		}
		r.GPUs = append(r.GPUs, gpu)
	}
	return r
}

const noGPU = "the CUDA driver shows no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES, in a container run with --gpus all, or use the CPU"

// driverProblem opens the driver's library and initialises it. It returns what prevents that, or
// "".
func driverProblem() string {
	var why *C.char
	code := C.sie_driver_start(&why)
	name := C.CString("cuInit")
	defer C.free(unsafe.Pointer(name))
	switch {
	case code == 0:
		return ""
	case C.sie_driver_symbol(name) == nil:
		return fmt.Sprintf(
			"no CUDA driver (%s): install NVIDIA's driver, in a container run with --gpus all, or use the CPU",
			C.GoString(why))
	case C.sie_gpu_status(code) == C.SIE_UNSUPPORTED:
		return fmt.Sprintf("%s (error %d)", noGPU, int(code))
	}
	return fmt.Sprintf(
		"the CUDA driver does not start (%s): look at nvidia-smi and the kernel's log, or use the CPU",
		C.GoString(why))
}

func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// gpuCheck asks C whether this build runs on the GPU with this driver.
func gpuCheck(gpu GPU, driver int) *Error {
	var e C.sie_error
	if st := C.sie_gpu_check(C.int32_t(gpu.Major), C.int32_t(gpu.Minor), C.int32_t(driver),
		&e); st != C.SIE_OK {
		return fail("open", st, &e).(*Error)
	}
	return nil
}

func describe(ordinal int) (GPU, error) {
	g := GPU{Ordinal: ordinal}
	dev, err := cu.GetDevice(ordinal)
	if err != nil {
		return g, cudaError("GPU", err)
	}
	if g.Name, err = dev.Name(); err != nil {
		return g, cudaError("GPU", err)
	}
	if g.MemoryTotal, err = dev.TotalMem(); err != nil {
		return g, cudaError("GPU", err)
	}
	for _, a := range []struct {
		to   *int
		what cu.DeviceAttribute
	}{{&g.Major, cu.ComputeCapabilityMajor}, {&g.Minor, cu.ComputeCapabilityMinor},
		{&g.Multiprocessors, cu.MultiprocessorCount}} {
		if *a.to, err = dev.Attribute(a.what); err != nil {
			return g, cudaError("GPU", err)
		}
	}
	return g, nil
}

// openDriver finds the GPU and retains its primary context, which the kernels' CUDA runtime shares.
func openDriver(o Options) (driver, error) {
	r := findGPUs()
	if r.Problem != "" {
		return nil, &Error{Op: "open", Status: StatusUnsupported, Msg: r.Problem}
	}
	if o.Ordinal >= len(r.GPUs) {
		return nil, &Error{Op: "open", Status: StatusUnsupported, Msg: fmt.Sprintf(
			"there is no cuda:%d: the driver shows %d GPUs, the first is cuda:0", o.Ordinal, len(r.GPUs))}
	}
	d := &cudaDriver{info: r.GPUs[o.Ordinal], cuda: r.Driver}
	if d.info.Refusal != "" {
		return nil, &Error{
			Op: "open", Status: StatusUnsupported, Msg: fmt.Sprintf("cuda:%d: %s", o.Ordinal, d.info.Refusal),
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.open(o.Ordinal); err != nil {
		return nil, err
	}
	// The owner enters the context on its own thread. This thread may run any goroutine next.
	_ = cu.SetCurrentContext(cu.CUContext{})
	return d, nil
}

func (d *cudaDriver) open(ordinal int) (err error) {
	if d.device, err = cu.GetDevice(ordinal); err != nil {
		return cudaError("open", err)
	}
	// Waiting threads sleep, because spinning would take cores from the tokenizer. If another
	// library of this process has the context active, the context keeps its flags, which is no
	// error.
	_ = d.device.SetPrimaryCtxFlags(cu.SchedBlockingSync)
	if d.context, err = d.device.RetainPrimaryCtx(); err != nil {
		return cudaError("open: primary context", err)
	}
	if err = d.enter(); err == nil {
		for _, s := range []*cu.Stream{&d.inputs, &d.work, &d.outbound} {
			if *s, err = cu.MakeStream(cu.NonBlocking); err != nil {
				err = cudaError("open: stream", err)
				break
			}
		}
	}
	if err != nil {
		d.close()
	}
	return err
}

func (d *cudaDriver) close() {
	for _, s := range []*cu.Stream{&d.inputs, &d.work, &d.outbound} {
		if *s != (cu.Stream{}) {
			_ = s.Destroy()
		}
	}
	_ = cu.SetCurrentContext(cu.CUContext{})
	_ = d.device.ReleasePrimaryCtx()
}

func (d *cudaDriver) about() GPU      { return d.info }
func (d *cudaDriver) version() string { return d.cuda }

func (d *cudaDriver) enter() error { return cudaError("context", cu.SetCurrentContext(d.context)) }

// kernelStream reads the CUstream inside cu's value, because cu's accessor returns a private cgo
// type.
func (d *cudaDriver) kernelStream() uintptr { return *(*uintptr)(unsafe.Pointer(&d.work)) }

func (d *cudaDriver) memory() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, cudaError("memory", err)
}

func (d *cudaDriver) allocate(bytes int64) (devicePtr, error) {
	p, err := cu.MemAlloc(max(bytes, 1))
	if err != nil {
		return 0, cudaError(fmt.Sprintf("%d bytes of memory of %s", bytes, d.info.Name), err)
	}
	return devicePtr(p), nil
}

// free ignores errors: it fails only on a lost device, whose memory is freed when the process
// exits.
func (d *cudaDriver) free(p devicePtr) { _ = cu.MemFree(cu.DevicePtr(p)) }

// upload returns when the bytes are on the device. A copy of pageable memory returns when it is
// staged, and only the default stream waits for the rest: kernels run in a stream that does not.
func (d *cudaDriver) upload(dst devicePtr, src uintptr, bytes int64) error {
	err := cu.MemcpyHtoD(cu.DevicePtr(dst), hostMemory(src), bytes)
	if err == nil {
		err = cu.Stream{}.Synchronize()
	}
	return cudaError("upload", err)
}

func (d *cudaDriver) newEvents() (slotEvents, error) {
	e := new(cudaEvents)
	for _, event := range []*cu.Event{&e.arrived, &e.kept, &e.done} {
		made, err := cu.MakeEvent(cu.BlockingSyncEvent | cu.DisableTiming)
		if err != nil {
			d.freeEvents(e)
			return nil, cudaError("event", err)
		}
		*event = made
	}
	return e, nil
}

func (d *cudaDriver) freeEvents(events slotEvents) {
	e := events.(*cudaEvents)
	for _, event := range []*cu.Event{&e.arrived, &e.kept, &e.done} {
		if *event != (cu.Event{}) {
			_ = cu.DestroyEvent(event)
		}
	}
}

func (d *cudaDriver) copyInput(events slotEvents, dst, staging devicePtr, src uintptr, bytes int64) error {
	e := events.(*cudaEvents)
	if err := cu.MemcpyHtoDAsync(cu.DevicePtr(staging), hostMemory(src), bytes, d.inputs); err != nil {
		return cudaError("input", err)
	}
	if err := e.arrived.Record(d.inputs); err != nil {
		return cudaError("input", err)
	}
	if err := d.work.Wait(e.arrived, 0); err != nil {
		return cudaError("input", err)
	}
	return cudaError("input", cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(staging), bytes, d.work))
}

func (d *cudaDriver) keepOutput(dst, src devicePtr, bytes int64) error {
	return cudaError("output", cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), bytes, d.work))
}

func (d *cudaDriver) copyOutputs(events slotEvents, outputs []transfer) error {
	e := events.(*cudaEvents)
	if err := e.kept.Record(d.work); err != nil {
		return cudaError("output", err)
	}
	if err := d.outbound.Wait(e.kept, 0); err != nil {
		return cudaError("output", err)
	}
	for _, o := range outputs {
		if err := cu.MemcpyDtoHAsync(hostMemory(o.dst), cu.DevicePtr(o.src), o.bytes,
			d.outbound); err != nil {
			return cudaError("output", err)
		}
	}
	return cudaError("output", e.done.Record(d.outbound))
}

func (d *cudaDriver) wait(events slotEvents) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.enter(); err != nil {
		return err
	}
	return cudaError("run", events.(*cudaEvents).done.Synchronize())
}

func (d *cudaDriver) drain() error {
	for _, s := range []cu.Stream{d.inputs, d.work, d.outbound} {
		if err := s.Synchronize(); err != nil {
			return cudaError("run", err)
		}
	}
	return nil
}

// hostMemory returns a C address in the type that cu wants.
func hostMemory(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// cudaError turns an error of cu, whose type is private, into an *Error. nil stays nil.
func cudaError(op string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	status := StatusDeviceLost
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		status = Status(C.sie_gpu_status(C.int32_t(v.Int())))
		return &Error{Op: op, Status: status, Msg: fmt.Sprintf("CUDA error %d, %v", v.Int(), err)}
	}
	return &Error{Op: op, Status: status, Msg: err.Error()}
}
