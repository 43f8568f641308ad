package row

import (
	"fmt"
	"io"
	"strings"
)

// Header is the heading of lines in a terminal.
const Header = "row                                     requests  lost wrong  dup refused reset twice  longest  sdk long" +
	"  to full  took"

// String returns a line for a terminal, with what is broken below it.
func (l *Line) String() string {
	var b strings.Builder
	mark := "ok"
	switch {
	case l.NotRun != "":
		mark = "NOT RUN"
	case len(l.Broken) > 0:
		mark = "BROKEN"
	}
	fmt.Fprintf(&b, "%-38s %9d %5d %5d %4d %7d %5d %5d %7.1fs %8.1fs %7.1fs %5.0fs  %s", l.Topology+":"+l.Row,
		l.Requests,
		l.Lost, l.Wrong, l.Duplicated, l.Refused, l.Reset, l.RunTwice, l.LongestS, l.SDKLongest,
		l.ToFullS, l.TookS, mark)
	if l.NotRun != "" {
		fmt.Fprintf(&b, "\n    %s", l.NotRun)
	}
	if len(l.Broken) > 0 {
		for _, x := range l.Broken {
			fmt.Fprintf(&b, "\n    %s", x)
		}
		fmt.Fprintf(&b, "\n    steps: %s", strings.Join(l.Steps, " | "))
	}
	return b.String()
}

// Markdown writes the table of lines.
func Markdown(w io.Writer, lines []Line) error {
	var b strings.Builder
	b.WriteString("| cluster | row | requests | lost | wrong | duplicated | refused, with Retry-After | reset | run twice |" +
		" longest wait, s | longest SDK call, s | to full rate, s | |\n" +
		"| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |\n")
	for _, l := range lines {
		verdict := "held"
		if len(l.Broken) > 0 {
			verdict = "**broken**"
		}
		if l.NotRun != "" {
			verdict = l.NotRun
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %d | %d | %.1f | %.1f | %.1f | %s |\n",
			l.Topology, l.Row,
			l.Requests, l.Lost, l.Wrong, l.Duplicated, l.Refused, l.Reset, l.RunTwice, l.LongestS,
			l.SDKLongest,
			l.ToFullS, verdict)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
