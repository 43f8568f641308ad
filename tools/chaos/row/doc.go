// Package row runs one fault after another against a cluster under load, and judges each.
//
// Entry points: Table, the rows; Judge, which makes a row's Line of the records and says what the
// row demands and did not get.
//
// The package runs the goroutines of its load; each ends with its row.
package row
