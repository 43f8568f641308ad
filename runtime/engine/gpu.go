package engine

// GPU describes one GPU as the driver shows it.
type GPU struct {
	// for Options.Ordinal; counted from 0 among the GPUs that CUDA_VISIBLE_DEVICES leaves
	Ordinal         int
	Name            string // "NVIDIA H100 80GB HBM3"
	Major, Minor    int    // compute capability
	Multiprocessors int
	MemoryTotal     int64  // bytes
	Refusal         string // why this build cannot use it; "" if it can
}

// GPUReport is the result of FindGPUs.
type GPUReport struct {
	Built   bool   // this binary has the CUDA backend
	Driver  string // the newest CUDA version the driver supports, "13.0"; "" without a driver
	Problem string // why no GPU at all can be used, and what to do; "" if there is no such reason
	GPUs    []GPU
}

// FindGPUs asks the driver which GPUs exist. It opens no device and works in any build.
func FindGPUs() GPUReport { return findGPUs() }

// Memory returns the free and the total bytes of device memory, counting all processes. Errors:
// ErrUnsupported for a device without its own memory.
func (d *Device) Memory() (free, total int64, err error) {
	if d.gpu == nil {
		return 0, 0, &Error{
			Op: "memory", Status: StatusUnsupported, Msg: "this device has no memory of its own",
		}
	}
	d.do(func() { free, total, err = d.gpu.driver.memory() })
	return free, total, err
}

// devicePtr is an address in device memory, 0 for none.
type devicePtr uint64

// driver gives access to a GPU: its primary context, memory, three streams and their events. The
// kernels' stream runs batches one after another. Inputs arrive on a second stream and outputs
// leave on a third, so that copies overlap the kernels of neighbouring batches. cuda.go implements
// driver; a build without the tag cuda has no implementation.
//
// All methods but wait must be called on the device's owner goroutine. Errors are *Error.
type driver interface {
	about() GPU
	version() string
	enter() error          // makes the context current in this thread
	kernelStream() uintptr // CUstream
	memory() (free, total int64, err error)
	allocate(bytes int64) (devicePtr, error)
	free(p devicePtr)
	upload(dst devicePtr, src uintptr, bytes int64) error // returns when the copy is complete
	newEvents() (slotEvents, error)
	freeEvents(e slotEvents)
	// copyInput copies a batch's input from pinned memory to staging. It copies it on to dst once
	// the earlier batches have run.
	copyInput(e slotEvents, dst, staging devicePtr, src uintptr, bytes int64) error
	// keepOutput copies an output, on the kernels' stream, to memory that the next batch does not
	// overwrite.
	keepOutput(dst, src devicePtr, bytes int64) error
	// copyOutputs copies the kept outputs to pinned memory. Then it records the event that wait
	// waits for.
	copyOutputs(e slotEvents, outputs []transfer) error
	wait(e slotEvents) error // blocks until what copyOutputs enqueued is done; any thread
	drain() error            // blocks until everything enqueued has run
	close()
}

// slotEvents holds the driver's events of one slot: the input has arrived, the outputs are kept,
// everything is done.
type slotEvents any

// transfer is a copy from device memory to pinned host memory.
type transfer struct {
	dst   uintptr
	src   devicePtr
	bytes int64
}
