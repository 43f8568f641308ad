// Command observe proves that the chart's alerts, dashboards and triggers see something. It starts
// a real cluster of null devices on this machine, with Debian's Prometheus on it, makes every alert
// fire by causing what it warns of, sees it stop when the cause has gone, and then demands that
// every expression of every file has been answered. promtool checks the rules, and tests those
// whose causes no machine without a GPU and Kubernetes can have (uncaused.go).
//
// `make observe-check` calls it; docs/runbook.md is about the alerts.
package main
