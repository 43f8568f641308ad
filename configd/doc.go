// Package configd serves the configuration of a cluster: which models and bundles there are, and
// the hashes by which gateways and workers see that they agree. It takes changes: models are added,
// replaced and removed over HTTP, and kept in a ledger.Ledger.
//
// Entry points: New with Options, Server.Set with what is built in, then the Server's Serve and
// Shutdown; NATS, which tells gateways and workers of changes. The routes and their answers are
// those of the reference's sie-config 0.10.1; testdata/reference.json and testdata/judge.json.gz
// hold what that answers.
//
// All answers are rendered once, by Content.With, and replaced together, so that a request never
// sees half a change. Changes happen one after the other: each is made on a copy, committed to the
// ledger and only then served. The package has no goroutine beside those of internal/httpd.
package configd
