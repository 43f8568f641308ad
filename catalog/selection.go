package catalog

import "strings"

// ParseModelList splits a comma-separated list, such as the value of --models. Blanks and repeats
// are dropped.
func ParseModelList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" && !contains(out, part) {
			out = append(out, part)
		}
	}
	return out
}

// Select returns the catalog of the named ids, and the names that the catalog does not have. The
// missing names keep their order; a caller may serve them with AdHoc or refuse them. "id" selects
// the model with all its variants, "id:profile" only that variant.
func (c *Catalog) Select(ids []string) (selected *Catalog, missing []string) {
	bases, exact := map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		known := false
		for _, r := range c.resolved {
			switch id {
			case r.BaseID:
				bases[id], known = true, true
			case r.ID:
				exact[id], known = true, true
			}
		}
		if !known {
			missing = append(missing, id)
		}
	}
	return c.subset(func(r *Resolved) bool { return bases[r.BaseID] || exact[r.ID] }), missing
}
