// Package batch turns a stream of tokenised texts into packed batches for one card or several equal
// ones.
//
// A Queue belongs to one recorded program of one model. Callers Submit items that belong to a Group
// (one client request). A Device says which queue's batch is next and on which card it runs: one
// with a free slot. A group may span batches and cards; its results keep their places.
//
// A batch closes
//   - at once, when a card has nothing of its class in flight;
//   - when a slot is free and the lane is full (MaxCost tokens, MaxRequests items, or a tenth of
//     MaxBacklog of work), its oldest item has waited the adaptive wait, or no item arrived for the
//     coalescing window;
//   - while every slot is busy it goes on growing up to MaxCost tokens: MaxRequests is when it may
//     leave.
//
// A queue has a lane for short items and one for long ones: those of more than 512 tokens that run
// for more than 50 ms. The two never share a batch, and long batches hold one slot of a card at
// most, so that short items always have one. Within a lane items leave in the order of arrival.
// Lanes take turns: one that is due is passed by at most one batch of each other lane. So a short
// item overtakes long ones, a long item waits for the long batch that runs and then for its turn,
// and neither starves.
//
// A request is refused when its items do not fit, when admitted requests wait for room, or when the
// work before it is predicted to take longer than MaxBacklog. A request that was admitted is
// finished: its later items wait for room in order, whatever the prediction. An item larger than
// MaxCost runs alone. Items whose group was cancelled or whose deadline passed are dropped before
// they run. A batch that the device has too little memory for is run again after Options.MakeRoom,
// then in halves; any other failed batch in halves at once. So only an item that cannot run alone
// fails, and the others of its batch do not notice. A card that Options.Fatal gives up gets no more
// batches.
//
// Goroutines: one per batch in flight, awaited by Queue.Close, and a Device's timer. One lock,
// Device.mu, guards a device and its queues; it is held for the choice of a batch, never while one
// runs. The package does not tokenise, load models or know HTTP.
package batch
