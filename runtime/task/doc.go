// Package task says what each family of models does with a request. A family decides which inputs
// and options it takes, which batch items it makes of the inputs, and how it reads the results.
// Each family has a file, which enters it in the table of families.go.
//
// Entry points: Prepare checks a request against its catalog entry. Prepared.Run answers it with a
// loaded model: acquire, tokenise, queue, collect. Tokenize and Detokenize use only the tokenizer.
// Tasks gives the table in the form that runtime/model needs.
//
// Goroutines: none. The package knows neither HTTP nor how answers are written.
package task
