// Package build holds what the linker knows about this binary.
package build

// Version is the release. It is what X-SIE-Server-Version says to callers that name no version.
const Version = "0.10.1"

// Commit is the source revision, set with -ldflags -X by the Makefile.
var Commit = "unknown"
