package server

import (
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/httpd"
)

// maxWarning bounds the header X-SIE-Warning, in bytes.
const maxWarning = 256

// warn names the options of a request that were ignored because they are made for other operations.
// A client that gives its options once, for all calls, has the answers it wants; whoever misplaced
// one can see it.
func warn(r *httpd.Request, ignored []string) {
	if len(ignored) > 0 {
		r.Response.Header.Set("X-SIE-Warning", warning(ignored))
	}
}

// warning names as many options as there is room for, and how many there are besides.
func warning(ignored []string) string {
	const room = maxWarning - len(" and 99 more")
	var b strings.Builder
	b.WriteString("options of other operations ignored: ")
	for i, name := range ignored {
		if b.Len()+len(name)+1 > room {
			b.WriteString(" and " + strconv.Itoa(len(ignored)-i) + " more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name)
	}
	return b.String()
}
