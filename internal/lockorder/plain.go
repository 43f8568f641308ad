//go:build !lockcheck

package lockorder

import "sync"

// Checked reports whether this build checks the order.
const Checked = false

// Mutex is a sync.Mutex at a place of the order. The zero value is unlocked.
type Mutex[P Place] struct{ sync.Mutex }

// None says that its caller holds no lock, since what follows is work or a wait.
func None(string) {}
