// Package check holds the tests of what is below deploy: the chart with every values file, the
// examples for Compose, Argo CD and Flux. It has no code outside its tests.
package check
