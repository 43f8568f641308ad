// Package pools makes, renews and removes the pools of clients, and gives them workers.
//
// A pool takes workers of another pool, its queue pool, for itself: each gets lanes of its own,
// under the pool's name, and serves no other while the pool has it. There is one document of all
// pools in the broker (package lease), and every gateway may change it; none leads. Rules are
// functions over the document: put, expire, assign, merge. A Keeper applies them by
// compare-and-swap.
//
// Entry points: New, then Keeper.Run; Keeper.Put, Renew and Delete for clients; Keeper.Pools and
// Keeper.Lanes, which read what this gateway saw last, and never go back; Keeper.Leases for
// scaling.
//
// The package runs one goroutine, Run. Where the bucket is lost, each gateway puts back what it
// knew and what has not expired; that may revive a pool that was deleted a moment before.
package pools
