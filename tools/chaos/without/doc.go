// Package without shows that each fix of the cluster's protocol is needed: it leaves the fix out of
// a build and demands that a test, or a row of the chaos table, turns red.
//
// Entry points: Fixes, the table; Bench, which builds with a fix left out and runs its judge. The
// source tree is never changed: `go build -overlay` and `go test -overlay` read the patched files
// from a folder elsewhere. A patch that does not match its file exactly once is an error, so the
// table cannot rot; TestTheTableFitsTheTree finds that without building anything.
package without
