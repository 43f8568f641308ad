// Package batch turns a stream of tokenised texts into packed batches for one device or several
// equal ones.
//
// A Queue belongs to one recorded program of one model. Callers Submit items, and each item belongs
// to a Group (one client request). A Scheduler chooses the queue whose batch runs next and a device
// with a free slot for it. A group may span batches and devices; its results are in item order.
//
// A batch leaves its queue
//   - at once (after Options.IdleCoalesce), when a device has no batch of its kind in flight;
//   - when a slot is free and the lane is full (MaxCost tokens, MaxRequests items, or a tenth of
//     MaxBacklog of work), its oldest item has waited the adaptive wait, or no item arrived for the
//     coalescing window.
//
// While every slot is busy a batch grows up to MaxCost tokens, also past MaxRequests.
//
// A queue has a lane for short items and one for long ones: items of more than 512 tokens that run
// for more than 50 ms. The two never share a batch, and long batches hold one slot of a device at
// most, so that short items always have one. Within a lane items leave in the order of arrival.
// Lanes take turns: while one lane is due, each other lane sends at most one batch before it. So a
// short item overtakes long ones, a long item waits for the running long batch and then for its
// turn, and neither starves.
//
// A request is refused when its items do not fit, when admitted requests wait for room, or when the
// work before it is predicted to take longer than MaxBacklog. An admitted request is never refused
// later: its later items wait for room in order, whatever the prediction. An item larger than
// MaxCost runs alone. Items whose group was cancelled or whose deadline passed are dropped before
// they run. When the device has too little memory for a batch, the batch runs again after
// Options.MakeRoom, then in halves. Any other failed batch runs again in halves at once. So an item
// fails only if it cannot run alone. When Options.Fatal reports that a device is lost, all items of
// the failed batch fail and the device gets no more batches, unless it is the last one.
//
// Goroutines: one per batch in flight, awaited by Queue.Close, and a Scheduler's timer. One lock,
// Scheduler.mu, guards a Scheduler and its queues. It is held while a batch is chosen, never while
// one runs. The package does not tokenise, load models or know HTTP.
package batch
