// Package obs holds what every binary says about itself: its log and its metrics.
//
// Entry points: NewLogger and NewMetrics. No goroutine is started. The package knows no component: names and labels are
// here, the numbers come from the callers.
package obs
