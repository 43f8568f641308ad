// Package buckets has no code: its module pins the storage servers that tests run
// (tools/setup/buckets.sh). They are built with the product's versions of what they have in common
// with it, which is then compiled once.
package buckets

import _ "github.com/sie-engine/sie/weights/bucket" // whose module's versions these are
