package api

// Bounds that no configuration changes.
const (
	// maxValues bounds the items, media, labels and token lists of one request together. The
	// smallest item takes one byte on the wire and 64 in memory; the bound keeps a body of empty
	// items from costing gigabytes.
	maxValues = 1 << 20
	// maxDepth bounds nesting. The reference stops at nearly the same depth, and its message is
	// used.
	maxDepth = 1000
	// maxOptionValues bounds the values inside one options map, which are decoded into Go values.
	maxOptionValues = 10_000

	maxSchemaDepth  = 128
	maxSchemaValues = 100_000
)

// Defaults of Limits.
const (
	DefaultMaxBodyBytes     = 34 << 20
	DefaultMaxItemTextBytes = 2 << 20
)

// Limits holds the configurable bounds on a request. The zero value is the default: byte limits on,
// count limits off.
type Limits struct {
	MaxBodyBytes int // whole body, in bytes; 0: DefaultMaxBodyBytes, negative: none
	// text and metadata of one item, in bytes of UTF-8; 0: DefaultMaxItemTextBytes, negative: none
	MaxItemTextBytes int
	MaxItems         int // items of an encode or extract request, or inputs of an embeddings request; 0: none
	MaxScoreItems    int // candidates of a score request; 0: none
	MaxLabels        int // labels of an extract request; 0: none

	// AcceptContent makes "content" an alias of an item's "text" when "text" is absent. Queue work
	// items may use it; HTTP bodies may not.
	AcceptContent bool
	// AcceptForeign reads an item's "second" and "tokens" into ItemExtra. Queue work items may have
	// them; HTTP bodies may not.
	AcceptForeign bool

	// OwnBody says that the body is the request's from now on: its texts alias it, and decoding
	// changes it. Otherwise they alias a copy, and the body stays as it is.
	OwnBody bool

	// KeepItems keeps each item of a msgpack body as it came (Item.Raw), so that it can be sent on
	// without being encoded again. An item with a key that only AcceptContent or AcceptForeign
	// reads is not kept: its next reader would take it for another item.
	KeepItems bool
}

// BodyLimit returns the bound on the body in bytes, negative for none. A server can use it to
// refuse a declared length before it reads.
func (l Limits) BodyLimit() int { return orDefault(l.MaxBodyBytes, DefaultMaxBodyBytes) }

func (l Limits) itemTextLimit() int { return orDefault(l.MaxItemTextBytes, DefaultMaxItemTextBytes) }

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}
