// Package words reads texts as the published models of words do: it splits a text into words with
// the offsets that the wire has, and gathers the words of a long text into windows that overlap.
//
// A caller asks CheckLabels once a request, and Windows once an item:
//
//	limits := words.DefaultLimits(maxLen)
//	limits.MaxSubtokens = words.Budget(maxLen, deberta, positions)
//	windows, err := words.Windows(text, limits, tokenize)
//
// Each window is read by the model on its own, as the ids of its words after the prompt's. What is
// found in the windows is put together by runtime/spans.
package words
