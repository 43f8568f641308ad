// Package docform writes documents of models as they are read: YAML whose lines are bounded. OfJSON
// turns JSON into that form, Fold breaks the long lines of a document that has none but quoted
// texts. Every component that hands on a document uses it, so that all read the same.
package docform
