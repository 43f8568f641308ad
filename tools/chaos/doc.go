// Command chaos starts a real cluster on this machine, hurts it in every way that its rows list,
// and checks that no caller notices. `run` runs rows and exits with status 1 when a requirement is
// broken; `list` names them; `load` sends the same load to a gateway that runs already.
//
// `make chaos` and `make chaos-short` call it; docs/chaos.md says what the columns mean.
package main
