// Package batch turns a stream of tokenised texts into packed batches for one card or several equal ones.
//
// A Queue belongs to one recorded program of one model. Callers Submit items that belong to a Group (one
// client request); the queue's goroutine closes a batch when it is worth running and hands it to a Device,
// which bounds how many batches are in flight and says on which card each runs: the one with most slots free. A group may
// span batches and cards; its results keep their places.
//
// A batch closes
//   - at once, when a card has nothing in flight;
//   - when a slot is free and the queue holds MaxCost tokens or MaxRequests items, its oldest item has waited the
//     adaptive wait, or no item arrived for the coalescing window;
//   - while every slot is busy it goes on growing up to MaxCost tokens: MaxRequests is when it may leave.
//
// Items leave in order of arrival, so none starves. An item larger than MaxCost runs alone. Items whose group was
// cancelled or whose deadline passed are dropped before they run. A batch that the device has too little memory for is run
// again after Options.MakeRoom, then in halves; any other failed batch in halves at once. So only an item that cannot run
// alone fails, and the others of its batch do not notice. A card that Options.Fatal gives up gets no more batches.
//
// Goroutines: one per Queue, stopped and awaited by Queue.Close, and one short-lived per batch in flight. The package
// does not tokenise, load models or know HTTP.
package batch
