//go:build lockcheck

package lockorder

// goroutine returns a value that identifies the calling goroutine among all live ones: the address
// of the runtime's record of it.
func goroutine() uintptr
