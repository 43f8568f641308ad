// Package scale decides how many workers each lane has, as KEDA does: from the same definitions,
// with the same arithmetic, over the series of gateways, without Kubernetes or Prometheus.
//
// Entry points: Parse, which reads ScaledObjects; Samples.Add and Samples.Query, a small part of
// PromQL over scraped text; New and Scaler.Decide. The package starts no goroutine and does no I/O.
package scale
