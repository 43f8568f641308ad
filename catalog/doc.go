// Package catalog reads the YAML files of models and bundles. It answers which model an id names,
// and with which weights, adapter family, templates, limits and options.
//
// Entry points: Builtin (the files embedded in the binary), LoadDir (a user's directory, which
// replaces the embedded files), ParseModel and ParseBundle (one document, as an admin API receives
// it), AdHoc (a model directory or hub id without a model file); then Catalog.Resolve,
// Catalog.List, Catalog.Select, Catalog.InBundle and Catalog.Suggest.
//
// Reading is strict. An unknown key, a wrong type, a missing or repeated key, several documents in
// a file or a broken inheritance is a Problem. A Problem has the file, the line, the key path and,
// if one is near, the key that was probably meant. All problems of a file are reported at once, up
// to a bound. File size, lines, tokens, nesting and alias expansion are bounded, so a hostile file
// costs a fraction of a second and an error.
//
// A file describes one base model and its profiles. Each profile other than "default" is also a
// model with the id "base:profile". It has its own options and the base's weights: models with
// equal WeightsKey share one copy.
//
// A Catalog and everything reached from it is immutable once built and safe for concurrent use.
// Callers must not change the maps and slices they receive. The package starts no goroutine, reads
// no environment variable and never logs. It does I/O only through fs.FS (LoadDir opens the
// directory it is given). It knows nothing about weights files: the loader decides from config.json
// whether an architecture is supported.
package catalog
