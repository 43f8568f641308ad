//go:build !lockcheck

package lockorder

import "sync"

// Checked reports whether this build checks the order.
const Checked = false

// Mutex is a sync.Mutex with a rank in the order. The zero value is unlocked.
type Mutex[P Rank] struct{ sync.Mutex }

// AssertNoneHeld marks a place where its caller must hold no lock, because work or a wait follows.
func AssertNoneHeld(string) {}
