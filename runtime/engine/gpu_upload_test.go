//go:build native && cuda && emulated

package engine

import (
	"runtime"
	"testing"
	"unsafe"

	"gorgonia.org/cu"
)

// What is uploaded is there for a stream that waits for nothing: a copy of pageable memory returns
// when it is staged.
func TestGPUUploadIsThereForEveryStream(t *testing.T) {
	command(t, "delay 3000")
	defer command(t, "delay 100")
	d, err := openDriver(Options{Kind: CUDA})
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.enter(); err != nil {
		t.Fatal(err)
	}
	const bytes = 8
	var places [2]devicePtr
	for i := range places {
		if places[i], err = d.allocate(bytes); err != nil {
			t.Fatal(err)
		}
		defer d.free(places[i])
	}
	sent, got := new(int64), new(int64)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(sent)
	for round := range int64(40) {
		*sent = round
		if err := d.upload(places[0], uintptr(unsafe.Pointer(sent)), bytes); err != nil {
			t.Fatal(err)
		}
		if err := d.keepOutput(places[1], places[0], bytes); err != nil { // in the kernels' stream
			t.Fatal(err)
		}
		if err := d.drain(); err != nil {
			t.Fatal(err)
		}
		if err := cu.MemcpyDtoH(unsafe.Pointer(got), cu.DevicePtr(places[1]), bytes); err != nil {
			t.Fatal(err)
		}
		if *got != round {
			t.Fatalf("round %d: the kernels' stream reads %d", round, *got)
		}
	}
}
