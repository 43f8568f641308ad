package inference

import (
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/httpd"
)

// maxWarning bounds the header X-SIE-Warning, in bytes.
const maxWarning = 256

// warn names, in a header, the options that were ignored because they belong to other operations. A
// client may send the same options with every call; one that misplaced an option sees it here.
func warn(r *httpd.Request, ignored []string) {
	if len(ignored) > 0 {
		r.Response.Header.Set("X-SIE-Warning", warning(ignored))
	}
}

// warning names as many options as fit in maxWarning bytes, and counts the others.
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
