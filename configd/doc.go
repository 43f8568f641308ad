// Package configd serves the configuration of a cluster: which models and bundles there are, and
// the hashes by which gateways and workers see that they agree.
//
// Entry points: New with Options, Server.Set with the catalog, then the Server's Serve and
// Shutdown; Build, which renders a catalog. The routes and their answers are those of the
// reference's sie-config 0.10.1; testdata/reference.json holds what that answers. Only reading is
// served: a write gets 501.
//
// All answers are rendered once, by Build, and replaced together by Set, so that a request never
// sees half a change. The package has no goroutine beside those of internal/httpd.
package configd
