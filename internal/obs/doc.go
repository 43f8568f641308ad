// Package obs provides the log, the registry of metrics and the telemetry of every binary.
//
// Entry points: NewLogger, NewRegistry with Gauges, BeginSpan and StartTelemetry. Only
// StartTelemetry starts goroutines. The package knows no component: the callers supply names,
// labels and numbers.
package obs
