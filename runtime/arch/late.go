package arch

// Late holds what PyLate writes beside the modules of a late-interaction model: how texts are read.
// A field that the file lacks is nil or 0.
type Late struct {
	QueryPrefix    *string  `json:"query_prefix"` // a token behind the first one
	DocumentPrefix *string  `json:"document_prefix"`
	QueryLength    int64    `json:"query_length"` // tokens, the prefix included
	DocumentLength int64    `json:"document_length"`
	Expand         *bool    `json:"do_query_expansion"` // fill queries up to QueryLength
	Attend         *bool    `json:"attend_to_expansion_tokens"`
	Skip           []string `json:"skiplist_words"` // tokens whose vectors documents lose
}

// maxSkipped bounds the list of tokens whose vectors documents lose.
const maxSkipped = 4096

func (l *Late) check() error {
	for key, length := range map[string]int64{
		"query_length": l.QueryLength, "document_length": l.DocumentLength,
	} {
		if length < 0 || length > 1<<20 {
			return refuse(promptsFile, key, "is %d; 1 to %d tokens are possible", length, 1<<20)
		}
	}
	if len(l.Skip) > maxSkipped {
		return refuse(promptsFile, "skiplist_words", "has %d entries; at most %d are possible",
			len(l.Skip), maxSkipped)
	}
	return nil
}

// Given reports whether the file has any of these settings.
func (l *Late) Given() bool {
	return l.QueryPrefix != nil || l.DocumentPrefix != nil || l.QueryLength > 0 || l.DocumentLength > 0 ||
		l.Expand != nil || l.Attend != nil || l.Skip != nil
}
