// Package build holds the version and the source revision of this binary.
package build

// Version is the release. X-SIE-Server-Version carries it for callers that name no version.
const Version = "0.10.1"

// Commit is the source revision, set with -ldflags -X by the Makefile.
var Commit = "unknown"
