// Package quota has the gateways of a cluster keep the quotas of tenants together, so that a quota
// is that of the cluster however many gateways there are.
//
// Each gateway tells the others, on a subject of the broker, what it has admitted and what it has
// in flight: soon after it changes, once a second that it is there, and now and then all of it. It
// hears its own messages, too: what has come back to it has come to the others. What follows from
// what is told belongs to internal/tenant.
//
// Entry points: New, Exchange.Subscribe, Run, Connected and Disconnected. While the broker is away
// nobody is taken for gone. A gateway that ends says so; one that is killed is gone after silence.
//
// The package runs one goroutine, Run. Handlers of the subscription run on the connection's.
package quota
