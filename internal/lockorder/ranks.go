// Package lockorder defines the order in which the locks of the module are taken, and checks it in
// tests.
//
// A [Mutex] is a sync.Mutex whose type names its rank in the order. Without the build tag lockcheck
// it is nothing more. With the tag it panics when a goroutine takes a lock while it holds one of
// the same or a later rank. [AssertNoneHeld] then panics when its caller holds any lock; callers
// place it before work, so that no lock is held over work. Both checks are exact, while a bound on
// the time that a lock is held would depend on the machine.
//
// The order is that of the types below, the outermost lock first. Entry points: Mutex,
// AssertNoneHeld.
package lockorder

// Rank is a lock's rank in the order.
type Rank interface{ rank() (int, string) }

// The ranks. A goroutine takes locks from top to bottom.
type (
	Swap        struct{} // model.Host.swap: one SetCatalog at a time
	Uploader    struct{} // hub.uploader.mu
	Registry    struct{} // registry.Registry.mu
	Adapters    struct{} // model.adapterCache.mu
	Model       struct{} // model.Model.mu
	Usage       struct{} // model.usage.mu
	Folds       struct{} // arch.folds.mu
	Scheduler   struct{} // batch.Scheduler.mu
	Group       struct{} // batch.Group.mu
	Reservation struct{} // hub.reservation.mu
	InProcess   struct{} // hub.inProcessLocks.mu
	Engine      struct{} // engine.Device.mu: one C call at a time
)

func (Swap) rank() (int, string)        { return 1, "model.Host.swap" }
func (Uploader) rank() (int, string)    { return 2, "hub.uploader.mu" }
func (Registry) rank() (int, string)    { return 3, "registry.Registry.mu" }
func (Adapters) rank() (int, string)    { return 4, "model.adapterCache.mu" }
func (Model) rank() (int, string)       { return 5, "model.Model.mu" }
func (Usage) rank() (int, string)       { return 6, "model.usage.mu" }
func (Folds) rank() (int, string)       { return 7, "arch.folds.mu" }
func (Scheduler) rank() (int, string)   { return 8, "batch.Scheduler.mu" }
func (Group) rank() (int, string)       { return 9, "batch.Group.mu" }
func (Reservation) rank() (int, string) { return 10, "hub.reservation.mu" }
func (InProcess) rank() (int, string)   { return 11, "hub.inProcessLocks.mu" }
func (Engine) rank() (int, string)      { return 12, "engine.Device.mu" }
