// Package catalog reads the model and bundle YAML files and answers which model an id names, with
// which weights, adapter family, templates, limits and options.
//
// Entry points: Builtin (the files embedded in the binary), LoadDir (a user's directory, which
// replaces the embedded files), ParseModel and ParseBundle (one document, as an admin API receives
// it), AdHoc (a model directory or hub id with no file); then Catalog.Resolve, Catalog.List,
// Catalog.Select, Catalog.InBundle and Catalog.Suggest.
//
// Reading is strict: an unknown key, a wrong type, a missing or repeated key, several documents in
// a file or a broken inheritance is a Problem with file, line, key path and, where one is near, the
// key that was probably meant. All problems of a file are reported at once, up to a bound. File
// size, lines, tokens, nesting and alias expansion are bounded, so a hostile file costs a fraction
// of a second and an error.
//
// A file describes one base model and its profiles. Each profile other than "default" is also a
// model of its own, "base:profile", with its own options and the base's weights: models whose
// WeightsKey is equal share one copy.
//
// A Catalog and everything reached from it is immutable once built and safe for concurrent use;
// callers must not change the maps and slices they are given. The package starts no goroutine,
// reads no environment variable, does no I/O except through fs.FS (LoadDir opens the directory it
// is given), never logs, and knows nothing about weights files: architecture support is decided by
// the loader, from config.json.
package catalog
