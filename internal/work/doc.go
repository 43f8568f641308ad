// Package work defines what gateways and sidecars send each other through the broker: slices of
// requests, their results, marks, receipts and cancellations.
//
// Entry points: Item, Result, Chunk, Mark and Receipt, each with MarshalMsg and a bounded
// UnmarshalMsg; Kind, which tells the messages of an inbox apart. All are msgpack maps. Receivers
// ignore unknown keys and read absent keys as zero.
//
// Items of requests and results of items stay raw msgpack in here: texts and vectors are decoded
// only by whoever uses them. The package starts no goroutine, does no I/O and keeps no state.
package work
