// Package spans makes entities and relations of a model's scores on the host, as the package gliner
// 0.2.29 and the adapters of sie-server 0.10.1 do, ties and order included.
//
// A window of a span model goes through DecodeSpans, one of a token model through DecodePairs; then
// Entities gives its spans places in the text, Merge puts the windows of an item together, and
// MergeAdjacent joins neighbours where the model asks for it. Scores of the engine are logits:
// LogitFloor says which of them may be left out.
//
//	floor := spans.LogitFloor(d.Threshold)           // the engine lists what is above
//	found := spans.DecodeSpans(candidates, len(window.Words), d)
//	entities[i] = spans.Entities(found, window.Words)
//	all := spans.Merge(windows, entities, d)
//
// A span is a range of words with both ends inside; an entity is a range of code points of the item
// without its end. Labels are numbers from 0 in the order of the request.
package spans
