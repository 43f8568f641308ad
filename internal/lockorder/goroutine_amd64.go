//go:build lockcheck

package lockorder

// goroutine tells the calling goroutine from all others that live: it is the address of the
// runtime's record of it.
func goroutine() uintptr
