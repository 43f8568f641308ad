// Package obs holds what every binary says about itself: its log, a registry of metrics, and what
// sends both to a collector.
//
// Entry points: NewLogger, NewRegistry with Gauges, StartTelemetry, which alone starts goroutines.
// The package knows no component: names, labels and numbers come from the callers.
package obs
