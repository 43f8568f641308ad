// Package pull asks a consumer for work: pulls over core NATS whose size is the free credit, and an
// end of pulling that loses nothing.
//
// Entry points: New for one consumer; Queue.Pull and Queue.Watch send a pull; Queue.Heard reads
// what came; Queue.Close ends, once Queue.Quiet. A Queue belongs to one goroutine, except that the
// function given to New is called on a goroutine of the connection, for each message in its order.
package pull
