// Package load sends a cluster steady requests whose every answer is known, and judges each answer.
//
// Entry points: Start, which runs raw HTTP clients and official SDKs until Stop; Record, one
// request and what became of it; Known, the answers. A raw client speaks HTTP over its own
// connection and retries nothing, so it sees a second answer, a wrong one and a closed connection
// as they come. An SDK runs in a Python process of its own, one for each generation.
//
// A Load runs one goroutine for each client, one reader for each Python process, and with
// FollowReady one poller for each gateway; Stop ends them all.
package load
