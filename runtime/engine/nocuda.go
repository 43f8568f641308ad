//go:build !native || !cuda

package engine

func findGPUs() GPUReport { return GPUReport{} }

func openDriver(Options) (driver, error) {
	return nil, &Error{Op: "open", Status: StatusUnsupported,
		Msg: "this build has no CUDA backend: build with make build-cuda, or use the CPU"}
}
