// Package task is what families of models do with requests: which options and inputs they take,
// which items they make of the inputs, and what becomes of the results. Each family has a file of
// its own and one entry in the table of families.go.
//
// Entry points: Prepare checks a request against its catalog entry, then Prepared.Run answers it
// with a loaded model: acquire, tokenise, queue, collect. Tokenize and Detokenize use the tokenizer
// alone. Tasks is the table in the words of runtime/model.
//
// Goroutines: none. The package knows neither HTTP nor how answers are written.
package task
