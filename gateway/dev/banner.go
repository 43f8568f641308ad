package dev

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// exampleModel is shown where the servers serve the whole catalog.
const exampleModel = "sentence-transformers/all-MiniLM-L6-v2"

// tell prints where to send what.
func (c *Cluster) tell(took time.Duration) {
	model := exampleModel
	if len(c.o.Models) > 0 {
		model, _, _ = strings.Cut(c.o.Models[0], "=") // id=directory
	}
	url, curl, top := c.o.gatewayURL(0), "curl -s ", " top --url "
	if strings.HasPrefix(url, "https") { // by a certificate that is seldom for this address
		curl, top = "curl -sk ", " top --insecure --url "
	}
	fmt.Fprintf(c.o.Out, `ready in %.1f s; Ctrl-C drains and ends everything

  %[4]s%[2]s/v1/embeddings -d '{"model":"%[3]s","input":"hello world"}'
  SIEClient("%[2]s").encode("%[3]s", {"text": "hello world"})
  OpenAI(base_url="%[2]s/v1", api_key="-").embeddings.create(model="%[3]s", input="hello world")

`, took.Seconds(), url, model, curl)
	dir := ""
	if c.o.StateDir != DefaultDir() {
		dir = " --state-dir " + c.o.StateDir
	}
	self := c.o.program("sie-gateway")
	hints := tabwriter.NewWriter(c.o.Out, 0, 0, 2, ' ', 0)
	for _, h := range [][2]string{
		{c.o.path(stateFile), "what runs: pids, sockets, metrics"},
		{self + top + url, "watch it"},
		{self + " dev scale 4" + dir, "more or fewer workers"},
		{self + " dev kill server/0" + dir, "see it survive"},
	} {
		fmt.Fprintf(hints, "  %s\t%s\n", h[0], h[1])
	}
	_ = hints.Flush() // what the others wrote could not be checked either
	fmt.Fprintln(c.o.Out)
}
