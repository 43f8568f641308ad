package task

// Hold asks for room for more bytes of a request's results. items is how many of the request's
// items then have room for their whole results. An error refuses the request. Hold is called before
// the bytes are made, by one goroutine at a time: first for what is certain once the model is
// known, then for what texts turn out to need beyond that.
type Hold func(bytes int64, items int) error

// The bytes that a result takes in addition to its data: entries of the request and the answer,
// slices, ids.
const (
	vectorBytes = 320 // an item of an encode request
	scoreBytes  = 160 // a candidate
	listBytes   = 256 // an item whose result is a list
	entryBytes  = 96  // an entry of such a list: a class, an entity, a token
)
