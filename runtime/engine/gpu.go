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
func FindGPUs() GPUReport { return GPUReport{} }

// Memory returns the bytes of device memory that are free now, and all there are, whoever uses them. Errors:
// ErrUnsupported for a device without memory of its own.
func (d *Device) Memory() (free, total int64, err error) {
	return 0, 0, &Error{Op: "memory", Status: StatusUnsupported, Msg: "this device has no memory of its own"}
}
