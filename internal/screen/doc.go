// Package screen draws boards in a terminal: what `sie-server top` and `sie-gateway top` share.
//
// Entry points: Terminal; Open and the Screen that it returns; Spark, Fit and the other functions
// that make lines. A Screen has one goroutine, which reads keys until the process ends.
package screen
