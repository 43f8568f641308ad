// Package fair shares the room of one queue among tenants.
//
// A request is a Ticket with parts, which leave in their order. Parts may be out, that is in the
// queue or at a worker, as long as their cost fits into the room of the Share; the others wait
// here. Whenever there is room, the tenant whose turn it is sends its next part. The turns are
// those of start-time fair queueing: each tenant has a tag that grows by the cost of what it sends,
// the least tag is next, and a tenant that comes back begins where the others are. So a tenant that
// has little waits for one part of each other at most, however much they have.
//
// Within a tenant, tickets of a higher priority go first, then those that came first. A part of
// high priority counts half of its cost and one of low priority twice.
//
// Entry points: Share.Join, Want, Use, Return, Leave and SetRoom. The caller holds a lock of its
// own around all of them. The package knows no time and starts nothing.
package fair
