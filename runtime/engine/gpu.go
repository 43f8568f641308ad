package engine

// GPU is one card as the driver shows it.
type GPU struct {
	Ordinal         int    // for Options.Ordinal; what CUDA_VISIBLE_DEVICES leaves is counted from 0
	Name            string // "NVIDIA H100 80GB HBM3"
	Major, Minor    int    // compute capability
	Multiprocessors int
	MemoryTotal     int64  // bytes
	Refusal         string // why this build cannot use it; "" if it can
}

// GPUReport is what FindGPUs found.
type GPUReport struct {
	Built   bool   // this binary has the CUDA backend
	Driver  string // the newest CUDA version the driver supports, "13.0"; "" without a driver
	Problem string // why no GPU can be used, whatever the card, and what to do; "" if nothing stands in the way
	GPUs    []GPU
}

// FindGPUs asks the driver what is there. It opens no device and works in any build.
func FindGPUs() GPUReport { return findGPUs() }

// Memory returns the bytes of device memory that are free now, and all there are, whoever uses
// them. Errors: ErrUnsupported for a device without memory of its own.
func (d *Device) Memory() (free, total int64, err error) {
	if d.gpu == nil {
		return 0, 0, &Error{Op: "memory", Status: StatusUnsupported, Msg: "this device has no memory of its own"}
	}
	d.do(func() { free, total, err = d.gpu.driver.memory() })
	return free, total, err
}

// devicePtr is an address in device memory, 0 for none.
type devicePtr uint64

// driver is a card as CUDA's driver gives it: its primary context, memory, three streams and their
// events. The kernels' stream runs batches one after another; inputs come on a stream before it and
// outputs leave on one behind it, so that copies overlap the neighbours' kernels. cuda.go
// implements it; a build without the tag cuda has none.
//
// All methods but wait are for the device's own goroutine. Errors are *Error.
type driver interface {
	about() GPU
	version() string
	enter() error          // makes the context current in this thread
	kernelStream() uintptr // CUstream
	memory() (free, total int64, err error)
	allocate(bytes int64) (devicePtr, error)
	free(p devicePtr)
	upload(dst devicePtr, src uintptr, bytes int64) error // returns when it is there
	newEvents() (slotEvents, error)
	freeEvents(e slotEvents)
	// bring copies a batch's input (pinned) to staging, and from there to dst once the batches
	// before have run.
	bring(e slotEvents, dst, staging devicePtr, src uintptr, bytes int64) error
	// keep copies an output out of the way of the next batch: on the kernels' stream.
	keep(dst, src devicePtr, bytes int64) error
	// take copies what was kept to pinned memory, and done marks the end of all that the slot asked
	// for.
	take(e slotEvents, outputs []transfer) error
	wait(e slotEvents) error // blocks until what take enqueued is done; any thread
	drain() error            // blocks until everything enqueued has run
	close()
}

// slotEvents are the driver's marks of one slot: input has arrived, outputs are kept, all is done.
type slotEvents any

// transfer is a copy from device memory to pinned host memory.
type transfer struct {
	dst   uintptr
	src   devicePtr
	bytes int64
}
