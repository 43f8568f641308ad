// Package fair shares the room of one queue among tenants.
//
// A request is a Ticket with parts, which leave in their order. Parts may be out, that is in the
// queue or at a worker, as long as their cost fits into the room of the Share; the others wait
// here. Whenever there is room, the tenant whose turn it is sends its next part. The turns are
// those of start-time fair queueing: each tenant has a tag that grows by the cost of what it sends,
// and the least tag is next. A tenant that sent less than its share is behind the others, by two
// rooms at most, and goes first until it has caught up: a burst of that size waits for no part of
// those who have more than their share. One that sent more than its share goes last, also when it
// comes back. All are equal when nobody has to wait: nobody saves for a flood.
//
// The bound for a request of cost c of a tenant that has nothing else waiting, where all have
// normal priority, lag is how much less than the others its tenant has sent, and L is the largest
// part: until its last part is granted, each other tenant j is granted at most
// max(0, c-lag+lag_j) + 2L, whatever waits there. The request waits for that, and for the room,
// which is out already.
//
// Within a tenant, tickets of a higher priority go first, then those that came first. A part of
// high priority counts half of its cost and one of low priority twice.
//
// Entry points: Share.Join, Want, Use, Return, Leave and SetRoom. The caller holds a lock of its
// own around all of them. The package knows no time and starts nothing.
package fair
